"""kill -9 after an abort: the job is cancelled all the same, and runs nowhere else."""

from __future__ import annotations

from tests.crash.worker_processes import IN_TURNS, LONG_MS, WorkerProcesses
from tests.crash.workers import Options, Work

pytestmark = IN_TURNS
IGNORES_ABORT = Options(threads=True, ttr="1h")
"""Its handlers are threads that ask nobody whether their job was aborted."""


def test_a_worker_is_killed_with_a_job_that_was_aborted(processes: WorkerProcesses) -> None:
    worker = processes.serving(processes.start(IGNORES_ABORT, worker_timeout_s=2))
    processes.put("ignores_cancellation", Work(ms=LONG_MS))
    processes.started("ignores_cancellation")
    assert processes.queue.abort("work", "ignores_cancellation") == "aborting"
    worker.kill()
    processes.serving(processes.start(IGNORES_ABORT, worker_timeout_s=2))
    processes.emptied()
    assert processes.journal.count("start") == {"ignores_cancellation": 1}
    assert (processes.counts().cancelled, processes.counts().reclaimed) == (1, 0)


def test_redis_is_killed_after_the_abort(persistent: WorkerProcesses) -> None:
    worker = persistent.serving(persistent.start(IGNORES_ABORT, worker_timeout_s=2))
    persistent.put("ignores_cancellation", Work(ms=LONG_MS))
    persistent.started("ignores_cancellation")
    assert persistent.queue.abort("work", "ignores_cancellation") == "aborting"
    persistent.server.kill()
    persistent.server.start()
    worker.kill()
    persistent.serving(persistent.start(IGNORES_ABORT, worker_timeout_s=2))
    persistent.emptied()
    assert persistent.journal.count("start") == {"ignores_cancellation": 1}
    assert persistent.counts().cancelled == 1
