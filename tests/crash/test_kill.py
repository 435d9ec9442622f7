"""kill -9: nothing is lost, and little runs twice."""

import signal
from dataclasses import asdict

import pytest

from streamdq import NewJob
from streamdq.keys import NamespaceKeys
from tests.crash.worker_processes import IN_TURNS, WorkerProcesses, half_way, left_in
from tests.crash.workers import Options, Work
from tests.waiting import until

pytestmark = IN_TURNS


def test_only_worker_killed_and_started_again(processes: WorkerProcesses) -> None:
    ids = processes.fill(300, Work(ms=10))
    first = processes.start(Options(concurrency=10))
    half_way(processes, len(ids))
    first.kill()
    held = set(processes.held())
    assert held
    second = processes.serving(processes.start(Options(concurrency=10)))
    processes.emptied()
    assert processes.journal.ids("end") == set(ids)
    assert held <= processes.journal.ids("start", second.pid)


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
    processes.started(processes.put("job", Work(), delay="100ms"))


def test_the_only_mover_killed_while_idle_and_started_again(processes: WorkerProcesses) -> None:
    first = processes.serving(processes.start(Options()))
    with processes.server.client() as client:
        until(lambda: client.pttl(NamespaceKeys("streamdq").mover) > 5_000, "it has nothing to do")
    first.kill()
    processes.put("job", Work(), delay="100ms")
    processes.serving(processes.start(Options()))
    processes.started("job")
