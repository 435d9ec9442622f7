"""kill -9: nothing is lost, and little runs twice."""

import signal
import time
from dataclasses import asdict

import psutil
import pytest

from streamdq import NewJob
from streamdq.keys import NamespaceKeys
from tests.crash.worker_processes import TAKEOVER_S, WorkerProcess, WorkerProcesses, left_in
from tests.crash.workers import Options, Work
from tests.waiting import until

TTR_S = 1.0


def recovery_s(mover: bool) -> float:
    """What a job waits at most for its next attempt after its worker was killed."""
    return max(TTR_S + 1, TAKEOVER_S) if mover else TTR_S + 1


def half_way(processes: WorkerProcesses, jobs: int) -> None:
    until(lambda: len(processes.journal.ids("end")) >= jobs // 2, "half of the jobs are done")


def pick(processes: WorkerProcesses, workers: list[WorkerProcess], mover: bool) -> WorkerProcess:
    """The worker whose mover is at work, or the other."""
    until(lambda: processes.leader() is not None, "a mover is at work")
    leads = processes.leader()
    return next(worker for worker in workers if (worker.pid == leads) is mover)


def stop_at_work(processes: WorkerProcesses, worker: WorkerProcess) -> None:
    """Stops it in the middle of a handler, and not between a claim and its start: it is to die there."""

    def is_stopped_at_work() -> bool:
        worker.signal(signal.SIGSTOP)
        until(lambda: psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED, "it is stopped")
        if processes.journal.running(worker.pid) & processes.held().keys():
            return True
        worker.signal(signal.SIGCONT)
        return False

    until(is_stopped_at_work, "it runs jobs")


def check_recovery(processes: WorkerProcesses, ids: list[str], killed: WorkerProcess, mover: bool) -> None:
    """Kills it, waits for the end, and counts."""
    stop_at_work(processes, killed)
    at = killed.kill()
    held = {id for id, pid in processes.held().items() if pid == killed.pid}
    assert held, "it was killed while it had work"
    begun = processes.journal.ids("start", killed.pid) & held
    processes.emptied()
    assert processes.journal.ids("end") == set(ids), "lost"

    starts = processes.journal.count("start")
    twice = {id for id, count in starts.items() if count > 1}
    assert twice <= begun, "runs again: only what ran, or had ended without Redis knowing, when it was killed"
    assert max(starts.values()) == 2
    again = [line for line in processes.journal.lines("start") if line.id in held and line.pid != killed.pid]
    assert {line.id for line in again} == held
    assert max(line.at for line in again) - at <= recovery_s(mover)
    assert processes.counts().reclaimed == len(held)
    assert left_in(processes.server, "work") == {}


def test_killed_half_way_while_another_works_on(processes: WorkerProcesses) -> None:
    workers = [processes.serving(processes.start(Options(concurrency=10))) for _ in range(2)]
    ids = processes.fill(1500, Work(ms=10))
    until(lambda: len({line.pid for line in processes.journal.lines("end")}) == 2, "both work")
    half_way(processes, len(ids))
    check_recovery(processes, ids, pick(processes, workers, mover=False), mover=False)


def test_killed_half_way_with_the_mover(processes: WorkerProcesses) -> None:
    workers = [processes.serving(processes.start(Options(concurrency=10))) for _ in range(2)]
    ids = processes.fill(1500, Work(ms=10))
    until(lambda: len({line.pid for line in processes.journal.lines("end")}) == 2, "both work")
    half_way(processes, len(ids))
    check_recovery(processes, ids, pick(processes, workers, mover=True), mover=True)


def test_only_worker_killed_and_started_again(processes: WorkerProcesses) -> None:
    ids = processes.fill(300, Work(ms=10))
    first = processes.start(Options(concurrency=10))
    half_way(processes, len(ids))
    at = first.kill()
    held = set(processes.held())
    assert held
    second = processes.serving(processes.start(Options(concurrency=10)))
    serves = time.time()
    processes.emptied()
    assert processes.journal.ids("end") == set(ids)
    again = [line.at for line in processes.journal.lines("start", second.pid) if line.id in held]
    assert len(again) == len(held)
    assert max(again) <= max(at + recovery_s(mover=True), serves) + 1


def test_both_die_and_a_restart_recovers_everything(processes: WorkerProcesses) -> None:
    ids = processes.fill(200, Work(ms=20))
    ids += processes.fill(50, Work(), topic="later", delay="1s")
    ids += processes.fill(20, Work(fail=1), topic="again")
    both = Options(topics=("work", "later", "again"), concurrency=5, retry="1s")
    workers = [processes.start(both, lease_s=1) for _ in range(2)]
    until(
        lambda: len(processes.journal.ids("end")) >= 50 and processes.journal.ids("raised"),
        "some are done, some have failed",
    )
    for worker in workers:
        worker.kill()
    left = {topic: processes.queue.audit(topic).left for topic in both.topics}
    assert left["work"]
    assert left["again"]
    assert processes.queue.audit().balanced
    processes.start(both, lease_s=1)
    processes.emptied()
    assert processes.journal.ids("end") == set(ids)
    assert all(line.attempt >= 2 for line in processes.journal.lines("end") if line.topic == "again")
    for topic in both.topics:
        assert left_in(processes.server, topic) == {}


def test_killed_again_and_again_it_is_buried(processes: WorkerProcesses) -> None:
    processes.queue.configure("work", max_deliveries=2)
    id = processes.put("poison", Work(ms=60_000))
    for attempt in (1, 2):
        worker = processes.start(Options(ttr="250ms"), lease_s=0.5)
        processes.started(id, attempt)
        worker.kill()
    processes.start(Options(ttr="250ms"), lease_s=0.5)
    until(lambda: processes.queue.dead("work"), "it is among the dead letters")
    assert processes.journal.count("start")[id] == 2, "buried before it runs a third time"
    assert processes.queue.dead("work")[0].groups["default"].reason == "crashed"
    assert processes.queue.audit().balanced


def test_what_was_fetched_ahead_of_a_job_that_kills_its_worker_has_not_crashed(processes: WorkerProcesses) -> None:
    """Though one crash is enough here."""
    processes.queue.configure("work", max_deliveries=1)
    first = processes.serving(processes.start(Options(concurrency=1)))
    jobs = [NewJob(asdict(Work()), id=f"short-{number}") for number in range(300)]
    jobs += [NewJob(asdict(Work(die=True, company=first.pid)), id="deadly")]
    jobs += [NewJob(asdict(Work()), id=f"innocent-{number}") for number in range(2000)]
    processes.queue.enqueue_many("work", jobs)
    assert first.wait() == -signal.SIGKILL
    untold = processes.journal.ids("end") & set(processes.held())  # ended, and Redis was not told any more
    ahead = set(processes.held()) - untold - {"deadly"}
    assert ahead, "it has fetched some of them ahead"
    # If the deadly one was fetched ahead as well, nobody could tell that it had started. Now it is told.
    second = processes.start(Options(concurrency=1))
    until(lambda: second.ended or not processes.live(), "it has ended too, or all is done")
    untold |= processes.journal.ids("end") & set(processes.held())
    processes.start(Options(concurrency=1))
    processes.emptied()
    assert {job.id for job in processes.queue.dead("work")} - untold == {"deadly"}
    starts = {id: count for id, count in processes.journal.count("start").items() if id not in untold}
    assert starts.pop("deadly") <= 2
    assert set(starts.values()) == {1}, "none of the others was tried twice, or not at all"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_an_idle_mover_that_is_gone_holds_no_job_up(processes: WorkerProcesses, how: signal.Signals) -> None:
    """Its lease would last for seconds."""
    mover = processes.serving(processes.start(Options(topics=("other",))))
    until(lambda: processes.leader() == mover.pid, "it is at work")
    processes.serving(processes.start(Options()))
    keys = NamespaceKeys("streamdq")
    with processes.server.client() as client:
        until(lambda: client.exists(keys.deputy) and client.pttl(keys.mover) > 5_000, "a deputy, and nothing to do")
        mover.signal(how)
        assert client.pttl(keys.mover) > 3_000
    at = time.time()
    (start,) = processes.started(processes.put("job", Work(), delay="100ms"))
    assert start.at - at <= TAKEOVER_S


def test_the_only_mover_killed_while_idle_and_started_again(processes: WorkerProcesses) -> None:
    first = processes.serving(processes.start(Options()))
    with processes.server.client() as client:
        until(lambda: client.pttl(NamespaceKeys("streamdq").mover) > 5_000, "it has nothing to do")
    first.kill()
    processes.put("job", Work(), delay="100ms")
    processes.serving(processes.start(Options()))
    at = time.time()
    (start,) = processes.started("job")
    assert start.at - at <= TAKEOVER_S
