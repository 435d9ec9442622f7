"""streamdq erase: what it shows and asks, and its exit codes."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from streamdq import NewJob, Queue
from tests.cli.conftest import Run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def jobs(queue: Queue) -> Queue:
    queue.enqueue_many("t", [NewJob({"user": n % 3}, id=f"j{n}", delay="1h", key=f"k{n % 3}") for n in range(9)])
    return queue


def test_dry_run_counts(run: Run, jobs: Queue) -> None:
    counted = run("erase", "--where", "body.user=1", "--dry-run")
    assert (counted.code, counted.out) == (0, "delayed jobs: 3 found\n")
    assert jobs.find("t").count() == 9


def test_it_erases_by_key_or_body(run: Run, jobs: Queue) -> None:
    erased = run("erase", "--where", "body.user=1", "--yes")
    assert (erased.code, erased.out) == (0, "delayed jobs: 3 found, 3 erased\n")
    assert run("erase", "t", "--key", "k2", "--yes", "--json").json == {
        "dry_run": False, "places": {"delayed jobs": {"found": 3, "erased": 3}}, "remaining": [], "whole": True,
    }  # fmt: skip
    assert sorted(job.id for job in jobs.find("t")) == ["j0", "j3", "j6"]
    assert run("erase", "--key", "k2", "--yes").out == "nothing found\n"


def test_what_remains_is_shown_and_exits_with_1(run: Run, jobs: Queue, tmp_path: Path) -> None:
    jobs.schedule("t", {"user": 1}, id="weekly", cron="0 9 * * 1")
    erased = run("erase", "--where", "body.user=1", "--dump", str(tmp_path / "none"), "--yes")
    assert erased.code == 1
    assert "remaining: 1 in schedules of t" in erased.out
    assert "weekly" in erased.out
    assert "holds no dump" in erased.out
    assert "remaining: 3 in jobs of t" in erased.out
    assert run("erase", "--where", "body.user=1", "--schedules", "--yes").code == 0
    assert jobs.schedules("t") == []


def test_it_asks_first(run: Run, jobs: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = run("erase", "--key", "k1")
    assert refused.code == 2
    assert "--yes" in refused.err
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert run("erase", "--key", "k1").code == 130
    assert jobs.find("t").count() == 9
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    asked = run("erase", "--key", "k1")
    assert asked.code == 0
    assert "delayed jobs: 3 found\n" in asked.out
    assert jobs.find("t").count() == 6


def test_nothing_is_erased_without_a_condition(run: Run, jobs: Queue) -> None:
    refused = run("erase", "--yes")
    assert refused.code == 2
    assert "--key or --where" in refused.err
    assert jobs.find("t").count() == 9
