"""What each change is tried with: a worker, its mover, and Redis are killed under load, and nothing is lost."""

from __future__ import annotations

import pytest

from tests.crash.producer import RUN, produce_through
from tests.crash.worker_processes import WorkerProcesses, half_way, left_in, stop_at_work
from tests.crash.workers import Options, Work
from tests.waiting import until


@pytest.mark.parametrize(
    "mover",
    [pytest.param(False, marks=pytest.mark.thorough, id="a-worker"), pytest.param(True, id="the-mover")],
)
def test_killed_half_way_while_another_works_on(processes: WorkerProcesses, mover: bool) -> None:
    workers = [processes.serving(processes.start(Options(concurrency=5, ttr="2s"))) for _ in range(2)]
    ids = processes.fill(200, Work(ms=10))
    until(lambda: len({line.pid for line in processes.journal.lines("end")}) == 2, "both work")
    half_way(processes, len(ids))
    until(lambda: processes.leader() is not None, "a mover is active")
    leads = processes.leader()
    killed = next(worker for worker in workers if (worker.pid == leads) is mover)
    ids += stop_at_work(processes, killed)
    killed.kill()
    held = {id for id, pid in processes.held().items() if pid == killed.pid}
    assert held, "it was killed while it had work"
    processes.emptied()
    assert processes.journal.ids("end") == set(ids), "lost"
    again = [id for id, count in processes.journal.count("start").items() for _ in range(count - 1)]
    assert len(again) <= processes.counts().reclaimed
    assert held <= {line.id for line in processes.journal.lines("start") if line.pid != killed.pid}
    assert left_in(processes.server, "work") == {}


def test_nothing_is_lost_that_a_killed_redis_has_accepted(persistent: WorkerProcesses) -> None:
    accepted = produce_through(persistent, 200)
    persistent.emptied()
    assert set(accepted) <= persistent.journal.ids("end"), "lost"
    for topic in RUN.topics:
        assert left_in(persistent.server, topic) == {}
