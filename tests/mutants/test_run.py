"""Mutants are tried: what a test notices is killed, and so is what hangs; what no test can tell survives, and so does
what a test failed on only by chance.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.mutant import ROOT

_HANGS_S = 1200
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(_HANGS_S + 60)]

TRY = """
import sys
from tests.mutants import lua, run
from tests.mutants.mutant import Mutant

source = lua.text_of("lua/lease.lua")
wait = sys.argv[1] == "hang"
found = [Mutant("lua/lease.lua", 0, "", now, source.replace(was, now)) for was, now in ((
    ("redis.call('SET'", "repeat until false redis.call('SET'"),
    ("local turns", "while redis.call('SET', KEYS[1], 1) do end local turns"),
) if wait else (
    ("holder == name", "false"),
    ("local turns", "local  turns"),
))]
results = {}
# Of those that hang nothing else is asked: a slow machine may hold another for one.
options = run.Options(int(sys.argv[2]), quick=True, tests=tuple(sys.argv[3:]), slow_s=4 if wait else 600)
broken = run.try_mutants(found, options, lambda result: results.update({result.mutant: result}))
print(*broken, sep="\\n")
print(*(results[mutant].killer for mutant in found if mutant in results), sep="\\n")
"""


NOTICE = tuple(
    f"tests/lua/test_lease.py::{test}["
    for test in (
        "test_the_holder_renews_it",
        "test_another_leaves_it_as_it_is",
        "test_one_that_lasts_too_long_is_cut",
    )
)

SOMETIMES = """
from pathlib import Path
from streamdq.store import assembly

def test_it():
    assembly.load_script("lease")  # otherwise it would not concern the mutants
    with Path(__file__).with_suffix(".runs").open("a+") as runs:
        runs.write("x")
        assert runs.tell() % 2
"""


def tried(*tests: str | Path, workers: int = 2, which: str = "end") -> list[str]:
    command = [sys.executable, "-c", TRY, which, str(workers), *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_HANGS_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line]


def test_what_a_test_notices_is_killed() -> None:
    bad, same = tried("tests/lua/test_lease.py")
    assert bad.startswith(NOTICE), "which of them is first is left open"
    assert same == "None"


def test_what_hangs_is_killed_whether_or_not_it_writes() -> None:
    loops, loops_and_writes = tried("tests/lua/test_lease.py", which="hang")
    # The test's own call gives up, or the limit ends the test: which of them comes first is left open.
    assert "None" not in (loops, loops_and_writes)


def test_none_is_tried_if_a_test_fails_without(tmp_path: Path) -> None:
    fails = tmp_path / "test_fails.py"
    fails.write_text("def test_it() -> None:\n    assert False\n")
    (broken,) = tried("tests/lua/test_lease.py", fails)
    assert broken.endswith("::test_it")


def test_what_failed_once_and_not_again_killed_nothing(tmp_path: Path) -> None:
    sometimes = tmp_path / "test_sometimes.py"
    sometimes.write_text(SOMETIMES)
    *_, same = tried("tests/lua/test_lease.py", sometimes, workers=1)
    assert same == "None"
    assert sometimes.with_suffix(".runs").read_text() == "xxx"  # without a mutant, failed, and again
