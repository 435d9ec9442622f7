"""SIGSTOP and SIGCONT: what a process believes when it wakes is out of date, and must do no harm."""

import os
import signal
import time
from dataclasses import asdict

import pytest

from streamdq import NewJob
from tests.crash.worker_processes import IN_TURNS, WorkerProcess, WorkerProcesses, left_in
from tests.crash.workers import Fault, Options, Work
from tests.waiting import until

pytestmark = IN_TURNS


def stale_ends(worker: WorkerProcess) -> int:
    return worker.output.count("outcome=stale")


def waits(processes: WorkerProcesses) -> bool:
    """Whether some worker is in a blocked read of the ready streams."""
    with processes.server.client() as client:
        return any(each["cmd"] == "xreadgroup" and "b" in each["flags"] for each in client.client_list())


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


def test_what_waited_for_a_slot_when_it_was_stopped_does_not_start_late(processes: WorkerProcesses) -> None:
    first = processes.start(Options(ttr="800ms", concurrency=1), lease_s=0.5)
    jobs = [NewJob(asdict(Work()), id=f"short-{number}") for number in range(300)]
    jobs += [NewJob(asdict(Work(stop=first.pid, company=first.pid)), id="stops")]
    jobs += [NewJob(asdict(Work()), id=f"waits-{number}") for number in range(2000)]
    processes.queue.enqueue_many("work", jobs)
    until(lambda: first.stopped, "it is stopped, in a handler")
    ids = set(processes.held())
    begun = processes.journal.ids("start") & ids
    assert "stops" in begun
    assert len(ids) > len(begun), "it has fetched others ahead"
    second = processes.start(Options(ttr="800ms"), lease_s=0.5)
    processes.emptied()
    first.signal(signal.SIGCONT)
    until(lambda: stale_ends(first) == len(ids), "it is refused all that it holds")
    starts = [line for line in processes.journal.lines("start") if line.id in ids]
    assert sorted(line.id for line in starts if line.pid == first.pid) == sorted(begun)
    assert {line.id for line in starts if line.pid == second.pid} == ids
    for worker in (first, second):
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0


@pytest.mark.parametrize("threads", [False, True], ids=["async", "threads"])
def test_stopped_between_its_claim_and_the_start_it_starts_nothing_that_was_taken_over(
    processes: WorkerProcesses, threads: bool
) -> None:
    """It wakes with a reply that is as old as it slept. By then the jobs are cancelled, and due in an hour."""
    ids = processes.fill(20, Work())
    stops = Fault("claim", before=False, stop=True)
    first = processes.start(Options(ttr="500ms", threads=threads, fault=stops), lease_s=0.5)
    until(lambda: first.stopped, "it is stopped with jobs in hand")
    assert set(processes.held()) == set(ids)
    processes.start(Options(topics=("other",)), lease_s=0.5)  # its mover takes over what the first holds
    until(lambda: processes.counts().ready == len(ids), "all are ready again")
    assert all(processes.queue.cancel("work", id) for id in ids[:10])
    assert all(processes.queue.reschedule("work", id, delay="1h") for id in ids[10:])
    first.signal(signal.SIGCONT)
    until(lambda: stale_ends(first) == len(ids), "it is refused all that it holds")
    assert processes.journal.lines("start") == []
    assert processes.counts().cancelled == 10
    assert processes.queue.stats().delayed == 10


def test_another_mover_takes_over(processes: WorkerProcesses) -> None:
    # It serves another topic: what is delivered to a stopped consumer waits for its TTR.
    first = processes.serving(processes.start(Options(topics=("other",))))
    until(lambda: processes.leader() == first.pid, "its mover is at work")
    second = processes.serving(processes.start(Options(ttr="30s")))
    first.signal(signal.SIGSTOP)
    ids = processes.fill(20, Work(), delay="100ms")
    until(lambda: processes.journal.ids("end") == set(ids), "due jobs are delivered")
    assert processes.leader() == second.pid
    first.signal(signal.SIGCONT)
    ids += processes.fill(100, Work(), topic="other", delay="10ms")
    until(lambda: processes.journal.ids("end") == set(ids), "all are done")
    assert processes.leader() == second.pid, "one leader"
    assert {line.pid for line in processes.journal.lines() if line.topic == "other"} == {first.pid}
    assert set(processes.journal.count("start").values()) == {1}, "nothing doubled"
    processes.emptied()


def test_read_by_a_stopped_worker_but_never_claimed(processes: WorkerProcesses) -> None:
    # Its blocked read takes the job; the claim that should follow never comes.
    first = processes.serving(processes.start(Options(), lease_s=0.5))
    until(lambda: processes.leader() == first.pid, "its mover is at work")
    until(lambda: waits(processes), "it waits for a job")
    first.signal(signal.SIGSTOP)
    # Nothing else happens here, and the others stop watching long before the TTR has passed.
    id = processes.put("unclaimed", Work())
    second = processes.start(Options(watch_s=0.4), lease_s=0.5)
    (line,) = processes.started(id)
    assert line.pid == second.pid
    processes.emptied()
    first.signal(signal.SIGCONT)
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    assert processes.journal.count("start")[id] == 1
    assert left_in(processes.server, "work") == {}


def test_redis_stopped_for_a_while(processes: WorkerProcesses) -> None:
    options = Options(topics=("work", "later"), ttr="1h")
    workers = [processes.serving(processes.start(options)) for _ in range(2)]
    work = processes.fill(300, Work(ms=5))
    at_ms = round(time.time() * 1000) + 1000
    later = processes.fill(100, Work(), topic="later", at=at_ms)
    os.kill(processes.server.pid, signal.SIGSTOP)
    end = time.monotonic() + 2
    until(lambda: time.monotonic() > end, "two seconds")
    os.kill(processes.server.pid, signal.SIGCONT)
    processes.emptied()
    assert processes.journal.ids("end") == {*work, *later}
    assert all(line.at * 1000 >= at_ms for line in processes.journal.lines("start") if line.topic == "later")
    assert set(processes.journal.count("start").values()) == {1}
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
