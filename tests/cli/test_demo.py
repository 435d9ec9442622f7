"""The demo, faster than usual: its figures are real, and nothing of it stays."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamdq.demo.interrupts import ending_on_sigterm, interrupted_afterwards
from streamdq.demo.processes import WorkerProcesses
from streamdq.demo.report import lateness, lateness_by_kill, steps_of
from streamdq.demo.shop import NOTIFY, SHOP_GROUP, Scale
from streamdq.store.history.rows import Event, HistoryRow
from tests.cli.conftest import Start
from tests.servers import binaries
from tests.waiting import HANG_S, until

pytestmark = pytest.mark.skipif(not binaries(), reason="no Redis server on this machine")


def family(directory: Path) -> list[psutil.Process]:
    """Every process that has to do with a demo in this directory: workers, supervisor, Redis."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), process.cwd(), *process.environ().values()]
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(str(directory) in word for word in words):
            found.append(process)
    return found


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A directory for the demo's; its path is short, as a socket's must be."""
    with tempfile.TemporaryDirectory(prefix="sdq-") as name:
        yield Path(name)


def test_the_demo_balances_and_shows_everything_it_promises(start: Start, temporary: Path) -> None:
    process = start("demo", "--speed", "8", "--json", env={**os.environ, "TMPDIR": str(temporary)})

    out, err = process.communicate(timeout=HANG_S)

    assert process.returncode == 0, err
    report = json.loads(out)
    assert report["good"]
    assert report["audit"]["balanced"]
    assert report["audit"]["left"] == 0
    assert {(b["topic"], b["group"]) for b in report["audit"]["balances"]} == {
        (topic, group) for topic in ("order.close", "payment.notify") for group in ("default", "analytics")
    }
    assert report["counters"]["cancelled"] > 0
    assert report["counters"]["kicked"] == 1
    assert report["counters"]["reclaimed"] == len(report["reclaimed"]) > 0
    assert report["lateness"]["all"]["early"] == 0
    assert all(step["taken"] > 0 and step["waited_p50_ms"] >= step["scaled_ms"] for step in report["steps"])
    assert "1 s = 6h40m" in err  # the scales are shown
    assert "kill -9" in err
    assert list(temporary.iterdir()) == []
    until(lambda: family(temporary) == [], "all have ended")


def test_an_interruption_while_a_worker_is_started_ends_it_as_well(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker of which nobody knew began when the demo had gone, and made its folder again."""

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)

    processes = WorkerProcesses(f"embedded://{temporary / 'redis'}", temporary, Scale(1.0))
    with ending_on_sigterm(), pytest.raises(KeyboardInterrupt), processes:
        pytest.fail("nobody was hired without an interruption")

    assert [one.process.returncode for one in processes.spawned] == [-signal.SIGKILL]
    assert family(temporary) == []


def test_a_request_that_is_ignored_stays_so() -> None:
    """As by `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_on_sigterm(), interrupted_afterwards():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.thorough
def test_a_killed_demo_leaves_no_process(start: Start, temporary: Path) -> None:
    process = start("demo", env={**os.environ, "TMPDIR": str(temporary)})
    until(lambda: len(family(temporary)) >= 5, "the demo, three workers and Redis run")

    process.kill()

    until(lambda: family(temporary) == [], "workers and Redis have ended")


def row(event: Event, started_ms: int | None, finished_ms: int, due_ms: int = 0, id: str = "n") -> HistoryRow:
    return HistoryRow(
        NOTIFY, 0, "1-0", event, id, SHOP_GROUP, 1, 0, "c", 0, due_ms, None, started_ms, finished_ms, "", "", 1
    )


def test_lateness_is_start_minus_due() -> None:
    rows = [row(Event.DONE, started_ms=100 + i, finished_ms=999, due_ms=100) for i in range(100)]
    rows += [row(Event.RETRY, started_ms=99, finished_ms=999, due_ms=100), row(Event.CANCELLED, None, 5)]

    found = lateness(rows)

    assert (found.attempts, found.p50_ms, found.p99_ms, found.max_ms, found.early) == (101, 49, 98, 99, 1)


def test_what_the_kill_delayed_is_shown_apart() -> None:
    rows = [
        row(Event.DONE, started_ms=990, finished_ms=995, due_ms=985),  # before the kill
        row(Event.RECLAIMED, started_ms=998, finished_ms=1990, due_ms=997),  # lost by it
        row(Event.DONE, started_ms=2000, finished_ms=2001, due_ms=997),  # the lost one again
        row(Event.DONE, started_ms=1050, finished_ms=1051, due_ms=1020),
        row(Event.DONE, started_ms=7000, finished_ms=7001, due_ms=6998),
    ]

    undisturbed, hit, every = lateness_by_kill(rows, 1000).values()

    assert (undisturbed.attempts, undisturbed.max_ms) == (3, 5)
    assert (hit.attempts, hit.max_ms) == (2, 1003)
    assert every.attempts == 5
    assert lateness_by_kill(rows, None)["undisturbed"] == every


def test_steps_count_again_after_a_kick() -> None:
    rows = [
        row(Event.RETRY, 0, 10), row(Event.RETRY, 17, 20), row(Event.DEAD, 95, 96), row(Event.KICKED, None, 100),
        row(Event.RETRY, 101, 110), row(Event.DONE, 119, 120),
    ]  # fmt: skip

    steps = steps_of(rows, Scale(1))

    assert [step.taken for step in steps[:3]] == [2, 1, 0]
    assert [step.waited_p50_ms for step in steps[:3]] == [9, 75, None]
    assert [step.documented for step in steps] == ["15s", "3m", "10m", "30m", "30m", "1h", "2h", "6h", "15h"]
