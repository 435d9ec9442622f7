"""SIGTERM: what runs may finish, the rest is handed back at once, and the process ends well."""

import signal
import time

import pytest

from streamdq.worker.signals import ONE_SIGNAL_S
from tests.crash.worker_processes import IN_TURNS, LONG_MS, WorkerProcess, WorkerProcesses
from tests.crash.workers import Options, Work
from tests.waiting import until

pytestmark = IN_TURNS

TTR = "2h"
"""Long: whatever another worker starts sooner was handed back."""

IN_THREADS = pytest.mark.parametrize("threads", [False, True], ids=["async", "threads"])


def drained(worker: WorkerProcess) -> None:
    """Tells it to stop, and waits for its end."""
    until(lambda: "worker started" in worker.output, "it serves")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "worker stopped" in worker.output


@IN_THREADS
def test_what_runs_may_finish(processes: WorkerProcesses, threads: bool) -> None:
    ids = processes.fill(4, Work(ms=400))
    worker = processes.start(Options(ttr=TTR, threads=threads))
    for id in ids:
        processes.started(id)
    drained(worker)
    assert processes.journal.ids("end") == set(ids)
    assert processes.emptied().balances[0].done == 4


@IN_THREADS
def test_what_does_not_finish_in_time_is_handed_back(processes: WorkerProcesses, threads: bool) -> None:
    slow = processes.put("slow", Work(ms=LONG_MS))
    first = processes.start(Options(ttr=TTR, threads=threads), grace_s=0.3)
    processes.started(slow)
    drained(first)
    assert processes.journal.ids("end") == set()
    assert processes.counts().running == 0
    processes.serving(processes.start(Options(ttr=TTR, threads=threads)))
    assert [line.attempt for line in processes.started(slow, attempts=2)] == [1, 1], "no attempt is lost"
    assert processes.counts().reclaimed == 0
    assert processes.queue.audit().balanced


def test_a_second_signal_ends_the_grace(processes: WorkerProcesses) -> None:
    slow = processes.put("slow", Work(ms=LONG_MS))
    worker = processes.start(Options(ttr=TTR), grace_s=LONG_MS)
    processes.started(slow)
    worker.signal(signal.SIGTERM)
    until(lambda: "draining" in worker.output, "it drains")
    moment = time.monotonic() + ONE_SIGNAL_S
    until(lambda: time.monotonic() > moment, "what comes sooner is the same signal")
    drained(worker)
    assert processes.journal.ids("end") == set()
    job = processes.queue.get("work", slow)
    assert job is not None
    assert (job.state, job.attempt) == ("ready", 0)


def test_a_signal_that_comes_twice_at_once_is_one(processes: WorkerProcesses) -> None:
    """A service manager sends it to each process of a service, and the supervisor passes it on."""
    ids = processes.fill(2, Work(ms=600))
    worker = processes.start(Options(ttr=TTR))
    for id in ids:
        processes.started(id)
    worker.signal(signal.SIGTERM)
    drained(worker)
    assert processes.journal.ids("end") == set(ids)


def test_another_worker_takes_over_what_is_handed_back_at_once(processes: WorkerProcesses) -> None:
    slow = processes.put("slow", Work(ms=LONG_MS))
    first = processes.start(Options(ttr=TTR), grace_s=0)
    processes.started(slow)
    processes.serving(processes.start(Options(ttr=TTR)))
    drained(first)
    first_start, second_start = processes.started(slow, attempts=2)
    assert first_start.attempt == second_start.attempt == 1


def test_a_retry_is_handed_back_as_the_same_retry(processes: WorkerProcesses) -> None:
    id = processes.put("slow", Work(ms=300, fail=1))
    first = processes.start(Options(ttr=TTR), grace_s=0)
    processes.started(id, attempts=2)
    drained(first)
    processes.start(Options(ttr=TTR))
    assert [line.attempt for line in processes.started(id, attempts=3)] == [1, 2, 2]
    processes.emptied()


def test_a_handler_that_ignores_its_end_holds_nothing_up(processes: WorkerProcesses) -> None:
    id = processes.put("deaf", Work(ms=LONG_MS, deaf=True))
    first = processes.start(Options(ttr=TTR), grace_s=0.2)
    processes.started(id)
    drained(first)
    processes.start(Options(ttr=TTR))
    assert [line.attempt for line in processes.started(id, attempts=2)] == [1, 1]


def wait_for_ends(processes: WorkerProcesses, count: int) -> None:
    until(lambda: len(processes.journal.ids("end")) >= count, f"{count} are done")


@IN_THREADS
def test_drained_under_load_nothing_waits_for_a_ttr(processes: WorkerProcesses, threads: bool) -> None:
    ids = processes.fill(600, Work(ms=3))
    options = Options(ttr=TTR, threads=threads, concurrency=5)
    workers = [processes.start(options) for _ in range(2)]
    for done in (50, 200):
        wait_for_ends(processes, done)
        drained(workers.pop(0))
        workers.append(processes.start(options))
    processes.emptied(within_s=15)
    assert processes.journal.ids("end") == set(ids)
    assert set(processes.journal.count("start").values()) == {1}, "none ran twice"
    assert {line.attempt for line in processes.journal.lines("start")} == {1}
    assert processes.counts().reclaimed == 0


def test_an_idle_worker_ends_at_once_and_leaves_no_consumer(processes: WorkerProcesses) -> None:
    worker = processes.serving(processes.start(Options()))
    until(lambda: processes.leader() == worker.pid, "its mover is at work")
    drained(worker)
    assert processes.leader() is None, "the lease is free for the next"
    assert processes.counts().consumers == 0
