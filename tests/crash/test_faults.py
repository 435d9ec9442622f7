"""Each fault under load: what was accepted is neither lost nor early, little runs again, and soon all is as before.

Most take seconds: `pytest -m chaos`, or `make faults`, which prints the table of docs/reliability.md.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import BINARIES, needs_server
from tests.crash.faults import FAULTS
from tests.crash.judge import Accepted, judge
from tests.crash.scene import Fault, broken, tried
from tests.crash.worker_processes import IN_TURNS, Line
from tests.forked import ROOT
from tests.servers import Binary

ROWS = [
    pytest.param(
        fault, binary, id=f"{fault.name}-{binary.name}",
        marks=IN_TURNS if fault.quick and binary is BINARIES[-1] else pytest.mark.chaos,
    )
    for fault in FAULTS
    for binary in BINARIES
]  # fmt: skip


@pytest.mark.parametrize(("fault", "binary"), ROWS or [needs_server])
def test_a_fault_under_load(fault: Fault, binary: Binary, tmp_path: Path) -> None:
    if why := fault.needs(binary):
        pytest.skip(why)
    assert broken(tried(fault, binary, tmp_path), timed=False) == []


def test_the_page_has_a_row_for_each_fault() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    _, _, table = page.partition("| fault | Redis |")
    rows = re.findall(r"^\| ([^|]+) \|.* \| `(\w+)` \|$", table.partition("\n\n")[0], re.MULTILINE)
    assert rows == [(fault.what, fault.name) for fault in FAULTS]


# -- the judge

FIVE = {name: Accepted(due_ms=1000.0, called=0.4, at=0.5) for name in ("done", "lost", "twice", "early", "failed")}


def lines(*each: tuple[float, str, str, int]) -> list[Line]:
    return [Line(what, "work", id, 1, pid, at) for at, id, what, pid in each]


def test_the_judge_finds_what_is_lost_early_and_run_again() -> None:
    found = judge(
        FIVE,
        lines(
            (1.0, "done", "start", 1), (1.1, "done", "end", 1), (1.0, "twice", "start", 1), (2.5, "twice", "start", 2),
            (2.6, "twice", "end", 2), (0.9, "early", "start", 1), (1.0, "early", "end", 1), (1.0, "failed", "start", 1),
            (1.1, "failed", "raised", 1), (1.6, "failed", "start", 2), (1.7, "failed", "end", 2),
            (1.0, "lost", "start", 2),
        ),
        since=1.2,
        over=1.2,
        retry_s=0.5,
    )  # fmt: skip
    assert (set(found.lost), dict(found.again), list(found.early)) == ({"lost"}, {"twice": 1}, ["early"])
    assert found.recovered_s == pytest.approx(1.3)


def test_the_judge_goes_by_redis_s_clock() -> None:
    job = {"j": Accepted(due_ms=3_601_000.0, called=0.4, at=0.5)}
    done = lines((1.5, "j", "start", 1), (1.6, "j", "end", 1))
    assert judge(job, done, 1.0, 1.0, 0.5).early == ("j",)
    assert judge(job, done, 1.0, 1.0, 0.5, lambda at: (at + 3600) * 1000).early == ()
