"""SIGSTOP and SIGCONT: what a process believes when it wakes is out of date, and must do no harm."""

import signal

import pytest

from tests.crash.worker_processes import IN_TURNS, WorkerProcess, WorkerProcesses, left_in
from tests.crash.workers import Options, Work
from tests.waiting import until

pytestmark = IN_TURNS


def stale_ends(worker: WorkerProcess) -> int:
    return worker.output.count("outcome=stale")


@pytest.mark.parametrize("threads", [False, True], ids=["async", "threads"])
def test_stopped_past_its_ttr_its_ends_are_refused(processes: WorkerProcesses, threads: bool) -> None:
    ids = [
        processes.put("finish", Work(ms=400)),
        processes.put("retry", Work(ms=400, fail=1)),  # only the first attempt fails: the stale one
        processes.put("bury", Work(ms=400, bury=True)),
    ]
    first = processes.start(Options(ttr="800ms", threads=threads), lease_s=0.5)
    for id in ids:
        processes.started(id)
    first.signal(signal.SIGSTOP)
    second = processes.start(Options(ttr="800ms"), lease_s=0.5)
    until(lambda: processes.journal.ids("start", second.pid) == set(ids), "another has them")
    until(lambda: processes.live() == 0, "and has ended them")
    first.signal(signal.SIGCONT)
    until(lambda: stale_ends(first) == len(ids), "what the first has to say is refused")

    assert stale_ends(second) == 0
    assert [sorted(line.attempt for line in processes.journal.of(id) if line.what == "start") for id in ids] == [
        [1, 2]
    ] * 3
    account = processes.emptied().balances[0]
    assert (account.enqueued, account.done, account.dead) == (3, 2, 1)
    counts = processes.counts()
    assert (counts.reclaimed, counts.retried) == (3, 0)
    assert [job.id for job in processes.queue.dead("work")] == ["bury"]
    processes.queue.purge("work", all=True)
    assert left_in(processes.server, "work") == {}
