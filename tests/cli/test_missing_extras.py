"""A command whose optional packages are not installed names the package, and the extra that brings it."""

import subprocess
import sys

import pytest

from tests.extras import run_without
from tests.waiting import HANG_S

COMMANDS = [
    ("pyarrow", "analytics", ("capacity", "tables")),
    ("jinja2", "analytics", ("capacity", "tables")),
    ("pyarrow", "analytics", ("analyze", "dump", "--output", "tables")),
    ("pyspark", "spark", ("what-if", "dump", "--retry", "t=1m")),
    ("pyspark", "spark", ("live", "--output", "tables")),
    ("pyarrow", "analytics", ("sql", "dump", "select 1")),
    ("pyarrow", "dump", ("--url", "redis://unused", "dump", "--out", "dump")),
    ("watchfiles", "reload", ("worker", "shop:worker", "--reload")),
]


@pytest.mark.parametrize(
    ("missing", "extra", "command"),
    [*COMMANDS[:1], *(pytest.param(*command, marks=pytest.mark.thorough) for command in COMMANDS[1:])],
)
def test_a_command_without_its_extra(missing: str, extra: str, command: tuple[str, ...]) -> None:
    code, err = run_without(missing, *command)
    assert (code, err) == (
        2, f"streamdq: this needs {missing}, which is not installed: pip install 'streamdq[{extra}]'\n"
    )  # fmt: skip


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_the_command_without_its_extra(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from streamdq.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, done.stderr) == (
        2, f"streamdq: the command needs {missing}: pip install 'streamdq[cli]'\n"
    )  # fmt: skip
