"""The core's tests with other versions: `make test-versions` prints what ran as a table.

A column is a Python, releases of the dependencies, and a server. Pythons are those of the PATH and of pyenv, each
in an environment of its own. Servers are those that the tests find anyway.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers import Binary, binaries, recent_binary

ROOT = Path(__file__).parents[2]
CORE = (
    "tests/unit/job", "tests/unit/times", "tests/unit/schedules", "tests/unit/link", "tests/unit/test_config.py",
    "tests/redis/test_api.py", "tests/redis/test_names.py", "tests/redis/test_retry.py", "tests/redis/test_take.py",
    "tests/cli/test_commands.py",
)  # fmt: skip
ON_SERVERS = tuple(
    f"tests/redis/test_{name}.py"
    for name in (
        "after",
        "api",
        "audit",
        "keys",
        "library",
        "names",
        "results",
        "retry",
        "schedules",
        "take",
        "topics",
        "uniqueness",
    )
)
TOOLS = ("fakeredis[lua]", "hypothesis", "pytest", "pytest-asyncio", "pytest-timeout")
UV = shutil.which("uv", path=str(Path(sys.executable).parent))
OLDEST, NEWEST = 11, 16
_SHOWN = """
import json, platform, pydantic, redis
print(json.dumps([platform.python_version(), redis.__version__, pydantic.VERSION]))
"""
_COUNTED = re.compile(r"(\d+) (passed|failed|errors?)\b")


@dataclass(frozen=True, slots=True)
class Column:
    """``python``: None for that of this environment, with what it has. ``releases``: what is installed beside
    the package. ``server``: None for the newest.
    """

    name: str
    python: Path | None = None
    releases: tuple[str, ...] = ()
    lowest: bool = False
    server: Binary | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What ran and how it ended."""

    versions: Sequence[str]
    passed: int
    output: str
    ok: bool


def columns() -> list[Column]:
    own = Path(sys.executable)
    newest = [Column(f"python {path.name.removeprefix('python')}", path) for path in pythons()]
    dependencies = [
        Column("lowest releases", own, lowest=True),
        Column("redis-py 7", own, ("redis==7.*",)),
        Column("pydantic 2.7", own, ("pydantic==2.7.*",)),
    ]
    recent = recent_binary()
    servers = {binary.name: binary for binary in [*binaries(), *([recent] if recent else [])]}
    return [*newest, *dependencies, *(Column(name, server=binary) for name, binary in servers.items())]


def pythons() -> list[Path]:
    """One of each minor version, with threads that have no lock (3.13t) as a version of their own."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    folders = os.pathsep.join([*os.get_exec_path(), *map(str, sorted(pyenv.glob("3.*/bin")))])
    found = []
    for name in (f"python3.{minor}{kind}" for minor in range(OLDEST, NEWEST) for kind in ("", "t")):
        places = (Path(folder, name) for folder in folders.split(os.pathsep))
        working = (path for path in places if path.is_file() and "shims" not in path.parts)
        found += [path for path in [next(working, None)] if path is not None]
    return found


def uv(*words: str | Path) -> str:
    """What uv prints.

    Raises:
        RuntimeError: it failed.
    """
    assert UV is not None
    env = {**os.environ, "UV_SYSTEM_CERTS": "true"}
    done = subprocess.run([UV, *words], cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def environment(column: Column, folder: Path) -> Path:
    """The Python of a new environment."""
    if column.python is None:
        return Path(sys.executable)
    python = folder / "bin" / "python"
    uv("venv", "--quiet", "--python", column.python, folder)
    wanted: list[str | Path] = [*TOOLS, *column.releases]
    if column.lowest:
        releases = folder / "lowest.txt"
        lowest = ("--resolution", "lowest-direct", "--no-header", "--no-annotate", "--python", column.python)
        uv("pip", "compile", "--quiet", *lowest, "--extra", "embedded", "--output-file", releases, "pyproject.toml")
        wanted += ["--requirement", releases]
    uv("pip", "install", "--quiet", "--python", python, *wanted, "--editable", ".[embedded]")
    return python


def run(column: Column) -> Outcome:
    """Runs the tests in a temporary environment."""
    with tempfile.TemporaryDirectory(prefix="streamdq-versions-") as folder:
        python = environment(column, Path(folder, "environment"))
        shown = subprocess.run([python, "-c", _SHOWN], capture_output=True, text=True, timeout=60, check=True)
        chosen, env = ["-m", "not thorough and not chaos", *CORE], dict(os.environ)
        if column.server:
            chosen = ["-k", column.server.name, "-m", "not chaos", *ON_SERVERS]
            env["STREAMDQ_REDIS_SERVER"] = str(column.server.path)
        done = subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen],
            cwd=ROOT, env=env, capture_output=True, text=True, timeout=1800,
        )  # fmt: skip
    counts = {what: int(number) for number, what in _COUNTED.findall(done.stdout[-2000:])}
    passed = counts.get("passed", 0)
    return Outcome(json.loads(shown.stdout), passed, done.stdout + done.stderr, done.returncode == 0 and passed > 0)


def table(wanted: Sequence[Column]) -> Iterator[str]:
    """Its lines, each as soon as it is known; then, of what failed, the end of the output."""
    newest = binaries()[-1].name
    yield "| column | Python | redis-py | pydantic | server | tests |"
    yield "| --- | --- | --- | --- | --- | --- |"
    failed = []
    for column in wanted:
        try:
            outcome = run(column)
        except (RuntimeError, subprocess.SubprocessError) as error:
            outcome = Outcome(["", "", ""], 0, str(error), ok=False)
        result = f"{outcome.passed} passed" if outcome.ok else "**failed**"
        server = column.server.name if column.server else newest
        yield f"| {' | '.join([column.name, *outcome.versions, server, result])} |"
        failed += [] if outcome.ok else [f"\n{column.name}:\n{outcome.output[-4000:]}"]
    yield from failed


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="only columns whose name begins with this")
    only = parser.parse_args(arguments).only
    bad = False
    for line in table([column for column in columns() if column.name.startswith(only)]):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        bad = bad or "**failed**" in line
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
