"""Whatever ends a process that runs the job of a key: the key goes on, and never has two attempts at once."""

import signal

from tests.crash.worker_processes import IN_TURNS, WorkerProcess, WorkerProcesses, left_in, stop_at_work
from tests.crash.workers import Options, Work
from tests.waiting import until

pytestmark = IN_TURNS

SOON = Options(ttr="500ms", concurrency=10)


def started(processes: WorkerProcesses, count: int) -> list[WorkerProcess]:
    processes.queue.configure("work", key_order=True)
    return [processes.serving(processes.start(SOON)) for _ in range(count)]


def fill(processes: WorkerProcesses, per_key: int, work: Work) -> dict[str, list[str]]:
    """Jobs of four keys; their ids in the order in which they are to start."""
    return {
        key: [processes.put(f"{key}-{number}", work, key=key) for number in range(per_key)]
        for key in ("a", "b", "c", "d")
    }


def check(processes: WorkerProcesses, jobs: dict[str, list[str]], killed: bool) -> None:
    """All have run, each key's in order. What was killed wrote no end to the journal."""
    processes.emptied()
    assert processes.journal.ids("end") == {id for ids in jobs.values() for id in ids}
    for ids in jobs.values():
        lines = [line for line in processes.journal.lines() if line.id in ids]
        starts = list(dict.fromkeys(line.id for line in lines if line.what == "start"))
        assert starts == ids
        runs = ""
        for line in lines:
            assert not (line.what == "start" and runs not in ("", line.id)), "two attempts at once"
            assert killed or not (line.what == "start" and runs)
            runs = line.id if line.what == "start" else ""
    assert processes.queue.audit().balanced
    assert left_in(processes.server, "work") == {}


def test_a_worker_is_killed(processes: WorkerProcesses) -> None:
    workers = started(processes, 2)
    jobs = fill(processes, 30, Work(ms=10))
    until(lambda: len(processes.journal.ids("end")) >= 20, "some are done")
    stop_at_work(processes, workers[0])
    workers[0].kill()
    check(processes, jobs, killed=True)
    assert processes.counts().reclaimed > 0


def test_all_are_killed_and_started_again(processes: WorkerProcesses) -> None:
    """With the mover, so that what was let out is in the bucket and nobody has been told."""
    workers = started(processes, 2)
    jobs = fill(processes, 30, Work(ms=5))
    for done in (10, 30, 50):
        until(lambda done=done: len(processes.journal.ids("end")) >= done, "some are done")  # type: ignore[misc]
        for worker in workers:
            worker.kill()
        workers = [processes.start(SOON, lease_s=1) for _ in range(2)]
    check(processes, jobs, killed=True)


def test_a_worker_hands_its_jobs_back(processes: WorkerProcesses) -> None:
    processes.queue.configure("work", key_order=True)
    slow = Options(ttr="30s", concurrency=10)
    first = processes.serving(processes.start(slow, grace_s=0))
    jobs = {"a": [processes.put("a-0", Work(ms=300), key="a"), processes.put("a-1", Work(), key="a")]}
    processes.started("a-0")
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    processes.start(slow)
    check(processes, jobs, killed=False)
    assert [line.what for line in processes.journal.of("a-0")] == ["start", "cancelled", "start", "end"]
    assert processes.counts().reclaimed == 0
