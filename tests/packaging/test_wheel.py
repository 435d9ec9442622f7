"""What is installed from the wheel works as the checkout does: it has the scripts, the types and the command."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
USE = """
import streamdq, streamdq.scripts
from streamdq import Queue
print(streamdq.__file__)
print(streamdq.scripts.lua_directory())
with Queue("memory://wheel") as queue:
    queue.enqueue("t", {"n": 1}, id="j")
    with queue.take("t", timeout=5) as claim:
        print(claim.job.id, claim.job.body)
    print(queue.audit().balanced, queue.audit().left)
"""


def test_it_holds_every_script(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    scripts = {f"streamdq/lua/{path.relative_to(ROOT / 'lua')}" for path in (ROOT / "lua").rglob("*.lua")}
    assert len(scripts) > 20
    assert scripts <= names
    assert "streamdq/py.typed" in names
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)


def test_it_holds_the_web_page(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    pages = ROOT / "streamdq" / "http"
    files = {
        f"streamdq/http/{path.relative_to(pages)}"
        for folder in ("templates", "static")
        for path in (pages / folder).rglob("*")
        if path.is_file()
    }
    assert {"streamdq/http/templates/job.html", "streamdq/http/static/vendor/htmx.LICENSE"} <= files
    assert files <= names


def test_installed_alone_it_runs_a_job(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    install: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        target,
        wheel,
    ]
    subprocess.run(install, check=True, capture_output=True, timeout=100)
    run = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(target)!r})\n{USE}"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    where, scripts, job, audit = done.stdout.splitlines()[:4]
    assert where.startswith(str(target))
    assert scripts == str(target / "streamdq" / "lua")
    assert job == "j {'n': 1}"
    assert audit == "True 0"
