"""kill -9 after an abort: the job is cancelled all the same, and runs nowhere else."""

from __future__ import annotations

from tests.crash.worker_processes import IN_TURNS, LONG_MS, WorkerProcesses
from tests.crash.workers import Options, Work

pytestmark = IN_TURNS
DEAF = Options(threads=True, ttr="1h")
"""Its handlers are threads that ask nobody whether their job was aborted."""


def test_a_worker_is_killed_with_a_job_that_was_aborted(processes: WorkerProcesses) -> None:
    worker = processes.serving(processes.start(DEAF, worker_timeout_s=2))
    processes.put("deaf", Work(ms=LONG_MS))
    processes.started("deaf")
    assert processes.queue.abort("work", "deaf") == "aborting"
    worker.kill()
    processes.serving(processes.start(DEAF, worker_timeout_s=2))
    processes.emptied()
    assert processes.journal.count("start") == {"deaf": 1}
    assert (processes.counts().cancelled, processes.counts().reclaimed) == (1, 0)


def test_redis_is_killed_after_the_abort(persistent: WorkerProcesses) -> None:
    worker = persistent.serving(persistent.start(DEAF, worker_timeout_s=2))
    persistent.put("deaf", Work(ms=LONG_MS))
    persistent.started("deaf")
    assert persistent.queue.abort("work", "deaf") == "aborting"
    persistent.server.kill()
    persistent.server.start()
    worker.kill()
    persistent.serving(persistent.start(DEAF, worker_timeout_s=2))
    persistent.emptied()
    assert persistent.journal.count("start") == {"deaf": 1}
    assert persistent.counts().cancelled == 1
