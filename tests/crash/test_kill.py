"""kill -9: nothing is lost, and little runs twice."""

import signal
from dataclasses import asdict

from streamdq import NewJob
from tests.crash.worker_processes import IN_TURNS, WorkerProcesses
from tests.crash.workers import Options, Work
from tests.waiting import until

pytestmark = IN_TURNS


def test_what_was_fetched_ahead_of_a_job_that_kills_its_worker_has_not_crashed(processes: WorkerProcesses) -> None:
    """Though one crash is enough here."""
    processes.queue.configure("work", max_deliveries=1)
    first = processes.serving(processes.start(Options(concurrency=1)))
    jobs = [NewJob(asdict(Work()), id=f"short-{number}") for number in range(300)]
    jobs += [NewJob(asdict(Work(die=True, company=first.pid)), id="deadly")]
    jobs += [NewJob(asdict(Work()), id=f"innocent-{number}") for number in range(2000)]
    processes.queue.enqueue_many("work", jobs)
    assert first.wait() == -signal.SIGKILL
    unannounced = processes.journal.ids("end") & set(processes.held())  # ended, but Redis never learnt of it
    ahead = set(processes.held()) - unannounced - {"deadly"}
    assert ahead, "it has fetched some of them ahead"
    # If the deadly one was fetched ahead as well, nobody could tell that it had started. Now it is reported.
    second = processes.start(Options(concurrency=1))
    until(lambda: second.ended or not processes.live(), "it has ended too, or all is done")
    unannounced |= processes.journal.ids("end") & set(processes.held())
    processes.start(Options(concurrency=1))
    processes.emptied()
    assert {job.id for job in processes.queue.dead("work")} - unannounced == {"deadly"}
    starts = {id: count for id, count in processes.journal.count("start").items() if id not in unannounced}
    assert starts.pop("deadly") <= 2
    assert set(starts.values()) == {1}, "none of the others was tried twice, or not at all"
