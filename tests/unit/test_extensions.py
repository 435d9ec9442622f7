"""Commands and codecs of other packages: the example of docs/extending.md, installed, and packages that are broken."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamdq import Queue
from streamdq.cli import app as cli
from streamdq.errors import ExtensionBroken
from streamdq.link.connection import forget_memory
from tests.servers import Server
from tests.waiting import HANG_S

EXTENDED = "memory://extended"

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
ROUND_TRIP = """
from streamdq import BodyUnreadable, Queue
with Queue("memory://codec") as queue, Queue("memory://codec", codec=[]) as other:
    queue.enqueue("t", "hello", id="j")
    print(queue.get("t", "j").body)
    try:
        other.get("t", "j").body
    except BodyUnreadable as error:
        print(error.why)
"""


def block(first_line: str) -> str:
    return PAGE.read_text().partition(f"{first_line}\n")[2].partition("```")[0]


class Site:
    """A folder of packages, in front of what is installed."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], url: str) -> None:
        self.folder = folder
        self._url = url
        self._capsys = capsys

    def install(self, name: str, version: str, entry_points: dict[str, dict[str, str]], **modules: str) -> None:
        """As pip leaves a package."""
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = [
            line
            for group, entries in entry_points.items()
            for line in (f"[{group}]", *(f"{entry} = {value}" for entry, value in entries.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
        for module, text in modules.items():
            (self.folder / f"{module}.py").write_text(text)

    def python(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, timeout=HANG_S, check=False,
            env={**os.environ, "PYTHONPATH": str(self.folder), "NO_COLOR": "1", **environment},
        )  # fmt: skip

    def process(self, *words: str) -> tuple[int, str, str]:
        done = self.python("-m", "streamdq", "--url", self._url, *words)
        return done.returncode, done.stdout, done.stderr

    def streamdq(self, *words: str) -> tuple[int, str, str]:
        """The same in this process, as if it had just begun."""
        importlib.invalidate_caches()
        cli.application.cache_clear()
        for name in [path.stem for path in self.folder.glob("*.py")]:
            sys.modules.pop(name, None)
        self._capsys.readouterr()
        return cli.run(["--url", self._url, *words]), *self._capsys.readouterr()


@pytest.fixture
def site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], newest: Server
) -> Iterator[Site]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    yield Site(tmp_path, capsys, newest.url)
    cli.application.cache_clear()
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)
    forget_memory(EXTENDED)


@pytest.fixture
def acme(site: Site) -> Site:
    """The page's example."""
    project = tomllib.loads(block("# pyproject.toml"))["project"]
    site.install(
        project["name"], project["version"], project["entry-points"], acme_jobs=block("# acme_jobs.py")
    )  # fmt: skip
    return site


def broken(site: Site, name: str = "backup") -> None:
    site.install(
        "bad-one", "0.1", {"streamdq.commands": {name: "bad_one:app"}}, bad_one="raise RuntimeError('no such driver')"
    )


@pytest.mark.thorough
def test_a_command(acme: Site) -> None:
    code, out, err = acme.process("--help")
    assert (code, err) == (0, "")
    assert "Count the jobs that a topic holds." in out.partition("\nTopics:")[2].partition("\nWorkers:")[0]
    assert acme.streamdq("backlog", "--help")[0] == 0
    code, out, err = acme.streamdq("backlog", "none")
    assert (code, out) == (2, ""), "it raised UnknownTopic"
    assert "none" in err


def test_a_codec(acme: Site) -> None:
    done = acme.python("-c", ROUND_TRIP, STREAMDQ_CODEC="reversed")
    output = "hello\nits codec 'reversed' is not configured here; see docs/bodies.md\n"
    assert (done.stdout, done.stderr) == (output, "")
    without = acme.python("-c", ROUND_TRIP, STREAMDQ_CODEC="unheard")
    assert "'unheard' is none of trace, zstd" in without.stderr


def test_a_broken_command_is_a_line_and_harms_no_other(acme: Site) -> None:
    broken(acme)
    line = "streamdq: the command backup of bad-one 0.1 can't be used: RuntimeError: no such driver\n"
    assert acme.streamdq("backup") == (2, "", line)
    code, out, err = acme.streamdq("--help")
    assert (code, err) == (0, line)
    assert "  backlog " in out
    assert "backup" not in out
    assert acme.streamdq("stats")[::2] == (0, "")


def test_what_is_no_application(site: Site) -> None:
    site.install("bad-one", "0.1", {"streamdq.commands": {"backup": "os:sep"}})
    line = "streamdq: the command backup of bad-one 0.1 can't be used: os:sep is no typer.Typer\n"
    assert site.streamdq("backup") == (2, "", line)


def test_no_package_replaces_a_command(site: Site) -> None:
    broken(site, "stats")
    assert site.streamdq("stats")[::2] == (0, "")
    code, out, err = site.streamdq("--help")
    assert (code, err) == (
        0, "streamdq: the command stats of bad-one 0.1 can't be used: streamdq has a command of that name\n"
    )  # fmt: skip
    assert out.count("  stats ") == 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("class Stop(BaseException): pass\nraise Stop('here')", "Stop: here"),
        ("class Odd(Exception):\n    __str__ = None\nraise Odd", "Odd: its message can't be read"),
    ],
)
def test_a_command_that_ends_the_process_when_it_is_imported(site: Site, module: str, why: str) -> None:
    site.install("bad-one", "0.1", {"streamdq.commands": {"backup": "bad_one:app"}}, bad_one=module)
    line = f"streamdq: the command backup of bad-one 0.1 can't be used: {why}\n"
    assert site.streamdq("backup") == (2, "", line)
    code, out, err = site.streamdq("--help")
    assert (code, err) == (0, line)
    assert "  stats " in out


@pytest.mark.thorough
def test_a_package_of_which_only_its_entry_points_are_left(acme: Site) -> None:
    broken(acme)
    (acme.folder / "bad_one-0.1.dist-info" / "METADATA").unlink()
    code, out, err = acme.streamdq("--help")
    line = "streamdq: the command backup of (no name) (no version) can't be used: RuntimeError: no such driver\n"
    assert (code, err) == (0, line)
    assert "  backlog " in out
    assert acme.streamdq("backlog", "--help")[0] == 0


def test_a_command_of_another_name_replaces_none(site: Site) -> None:
    app = "import typer\napp = typer.Typer()\nfor name in ('backup', 'stats'):\n    app.command(name)(lambda: None)"
    site.install("bad-one", "0.1", {"streamdq.commands": {"backup": "bad_one:app"}}, bad_one=app)
    code, out, err = site.streamdq("--help")
    assert (code, err) == (
        0, "streamdq: the command backup of bad-one 0.1 can't be used: it has a command stats, and so has streamdq\n"
    )  # fmt: skip
    assert "Show " in next(line for line in out.splitlines() if line.startswith("  stats "))


@pytest.mark.parametrize("text", ["import sys\nsys.exit(4)", "import sys\ndef rot(settings): sys.exit(4)"])
def test_a_codec_that_ends_the_process(site: Site, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    site.install("bad-one", "0.1", {"streamdq.codecs": {"rot": "bad_one:rot"}}, bad_one=text)
    monkeypatch.setenv("STREAMDQ_CODEC", "rot")
    with pytest.raises(ExtensionBroken, match=r"^the codec rot of bad-one 0\.1 can't be used: SystemExit: 4$"):
        Queue(EXTENDED)


def test_a_broken_codec_is_an_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install(
        "bad-one",
        "0.1",
        {"streamdq.codecs": {"rot": "bad_one:rot"}},
        bad_one="def rot(settings): raise OSError('gone')",
    )
    monkeypatch.setenv("STREAMDQ_CODEC", "rot")
    with pytest.raises(ExtensionBroken, match=r"^the codec rot of bad-one 0\.1 can't be used: OSError: gone$"):
        Queue(EXTENDED)
