"""SIGTERM: what runs may finish, the rest is handed back at once, and the process ends well."""

import signal
import time

import pytest

from tests.crash.crew import Crew, WorkerProcess
from tests.crash.workers import Options, Work
from tests.servers import until

TTR = "30s"
"""Long: whatever another worker starts sooner was handed back."""

IN_THREADS = pytest.mark.parametrize("threads", [False, True], ids=["async", "threads"])


def drained(worker: WorkerProcess, within_s: float) -> float:
    """Tells it to stop; how long it took to end."""
    until(lambda: "worker started" in worker.output, "it serves")
    began = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.wait(within_s) == 0
    assert "worker stopped" in worker.output
    return time.monotonic() - began


@IN_THREADS
def test_what_runs_may_finish(crew: Crew, threads: bool) -> None:
    ids = crew.fill(4, Work(ms=400))
    worker = crew.start(Options(ttr=TTR, threads=threads))
    for id in ids:
        crew.started(id)
    drained(worker, within_s=5)
    assert crew.journal.ids("end") == set(ids)
    assert crew.emptied().balances[0].done == 4


@IN_THREADS
def test_what_does_not_finish_in_time_is_handed_back(crew: Crew, threads: bool) -> None:
    slow = crew.put("slow", Work(ms=20_000))
    quick = crew.put("quick", Work(ms=100))
    first = crew.start(Options(ttr=TTR, threads=threads), grace_s=0.3)
    crew.started(slow)
    crew.started(quick)
    assert drained(first, within_s=3) < 1.5
    assert crew.journal.ids("end") == {quick}
    assert crew.counts().running == 0
    began = time.monotonic()
    crew.serving(crew.start(Options(ttr=TTR, threads=threads)))
    assert [line.attempt for line in crew.started(slow, attempts=2, within_s=5)] == [1, 1], "no attempt is lost"
    assert time.monotonic() - began < 5
    assert crew.counts().reclaimed == 0
    assert crew.queue.audit().balanced


def test_a_second_signal_ends_the_grace(crew: Crew) -> None:
    slow = crew.put("slow", Work(ms=20_000))
    worker = crew.start(Options(ttr=TTR), grace_s=20)
    crew.started(slow)
    worker.signal(signal.SIGTERM)
    until(lambda: "draining" in worker.output, "it drains")
    assert drained(worker, within_s=5) < 5
    assert crew.journal.ids("end") == set()
    job = crew.queue.get("work", slow)
    assert job is not None
    assert (job.state, job.attempt) == ("ready", 0)


def test_another_worker_takes_over_what_is_handed_back_at_once(crew: Crew) -> None:
    slow = crew.put("slow", Work(ms=20_000))
    first = crew.start(Options(ttr=TTR), grace_s=0)
    crew.started(slow)
    crew.serving(crew.start(Options(ttr=TTR)))
    at = time.time()
    drained(first, within_s=3)
    first_start, second_start = crew.started(slow, attempts=2, within_s=3)
    assert second_start.at - at < 1
    assert first_start.attempt == second_start.attempt == 1


def test_a_retry_is_handed_back_as_the_same_retry(crew: Crew) -> None:
    id = crew.put("slow", Work(ms=300, fail=1))
    first = crew.start(Options(ttr=TTR), grace_s=0)
    crew.started(id, attempts=2)
    drained(first, within_s=3)
    crew.start(Options(ttr=TTR))
    assert [line.attempt for line in crew.started(id, attempts=3, within_s=5)] == [1, 2, 2]
    crew.emptied()


def test_a_handler_that_ignores_its_end_holds_nothing_up(crew: Crew) -> None:
    id = crew.put("deaf", Work(ms=20_000, deaf=True))
    first = crew.start(Options(ttr=TTR), grace_s=0.2)
    crew.started(id)
    drained(first, within_s=8)
    crew.start(Options(ttr=TTR))
    assert [line.attempt for line in crew.started(id, attempts=2, within_s=5)] == [1, 1]


def wait_for_ends(crew: Crew, count: int) -> None:
    until(lambda: len(crew.journal.ids("end")) >= count, f"{count} are done")


@IN_THREADS
def test_drained_under_load_nothing_waits_for_a_ttr(crew: Crew, threads: bool) -> None:
    ids = crew.fill(600, Work(ms=3))
    options = Options(ttr=TTR, threads=threads, concurrency=5)
    workers = [crew.start(options) for _ in range(2)]
    for done in (50, 200):
        wait_for_ends(crew, done)
        drained(workers.pop(0), within_s=5)
        workers.append(crew.start(options))
    crew.emptied(within_s=15)
    assert crew.journal.ids("end") == set(ids)
    assert set(crew.journal.count("start").values()) == {1}, "none ran twice"
    assert {line.attempt for line in crew.journal.lines("start")} == {1}
    assert crew.counts().reclaimed == 0


def test_an_idle_worker_ends_at_once_and_leaves_no_consumer(crew: Crew) -> None:
    worker = crew.serving(crew.start(Options()))
    until(lambda: crew.leader() == worker.pid, "its mover is at work")
    assert drained(worker, within_s=3) < 1
    assert crew.leader() is None, "the lease is free for the next"
    assert crew.counts().consumers == 0
