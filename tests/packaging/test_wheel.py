"""What is installed from the wheel works as the checkout does: it has the scripts, the types and the command."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.waiting import HANG_S

ANALYZE = """
import streamdq_spark, streamdq_spark.analysis, streamdq_spark.source
from streamdq.cli.app import run
assert run(["analyze", "--help"]) == 0
print(streamdq_spark.__file__)
"""
ROOT = Path(__file__).parents[2]
USE = """
import streamdq, streamdq.store.assembly
from streamdq import Queue
print(streamdq.__file__)
print(streamdq.store.assembly.lua_directory())
with Queue("memory://wheel") as queue:
    queue.enqueue("t", {"n": 1}, id="j")
    with queue.take("t", timeout=60) as claim:
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


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the wheel alone is installed into."""
    target = tmp_path_factory.mktemp("site")
    install: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-compile",
        "--target",
        target,
        wheel,
    ]
    subprocess.run(install, check=True, capture_output=True, timeout=HANG_S)
    return target


def run_there(site: Path, program: str, cwd: Path) -> list[str]:
    """The lines that the program prints with the installed wheel before all else on its path."""
    run = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r})\n{program}"]
    done = subprocess.run(run, cwd=cwd, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.thorough
def test_installed_alone_it_has_the_analysis(site: Path, wheel: Path, tmp_path: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "spark" / "streamdq_spark"
    files = {f"streamdq_spark/{path.relative_to(package)}" for path in package.rglob("*") if path.suffix != ".pyc"}
    assert {name for name in files if (package.parent / name).is_file()} <= names
    *helped, where = run_there(site, ANALYZE, tmp_path)
    assert any("The folder or URL of a dump." in line for line in helped)
    assert where == str(site / "streamdq_spark" / "__init__.py")


def test_installed_alone_it_runs_a_job(site: Path, tmp_path: Path) -> None:
    where, scripts, job, audit = run_there(site, USE, tmp_path)[:4]
    assert where.startswith(str(site))
    assert scripts == str(site / "streamdq" / "lua")
    assert job == "j {'n': 1}"
    assert audit == "True 0"
