"""A worker without a heartbeat loses its claims within seconds, whatever their TTR; one that lives keeps them."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from streamdq.keys import NamespaceKeys
from tests.crash.worker_processes import IN_TURNS, LONG_MS, WorkerProcess, WorkerProcesses, left_in
from tests.crash.workers import Options, Work
from tests.waiting import until

pytestmark = IN_TURNS

SERVES = Options(ttr="1h")


def start(processes: WorkerProcesses, options: Options = SERVES, timeout_s: float = 3) -> WorkerProcess:
    return processes.start(options, worker_timeout_s=timeout_s)


def passed(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def pair(processes: WorkerProcesses, mover: bool) -> tuple[WorkerProcess, WorkerProcess]:
    """The worker whose mover is active (or is not), and the other."""
    workers = [processes.serving(start(processes)) for _ in range(2)]
    until(lambda: processes.leader() is not None, "a mover is active")
    leads = processes.leader()
    first = next(worker for worker in workers if (worker.pid == leads) is mover)
    return first, next(worker for worker in workers if worker is not first)


def put_on(processes: WorkerProcesses, worker: WorkerProcess, work: Work) -> str:
    """A job that this worker runs."""
    for number in range(1000):
        id = processes.put(f"on-{number}", work)
        (line, *_) = processes.started(id)
        if line.pid == worker.pid:
            return id
    raise AssertionError("it takes no job")


def recovered(processes: WorkerProcesses, id: str) -> None:
    """Waits for its second attempt: long before its TTR has passed."""
    again = processes.started(id, attempts=2)[1]
    assert again.attempt == 2


@pytest.mark.parametrize("mover", [False, True], ids=["a-worker", "the-mover"])
@pytest.mark.parametrize("runs_s", [0.0, 1.7], ids=["at-once", "after-a-heartbeat"])
def test_killed_while_another_lives(processes: WorkerProcesses, mover: bool, runs_s: float) -> None:
    first, second = pair(processes, mover)
    id = put_on(processes, first, Work(ms=LONG_MS))
    until(passed(runs_s), "it runs")
    first.kill()
    recovered(processes, id)
    assert processes.journal.of(id)[-1].pid == second.pid
    assert "worker silent" in second.output
    assert processes.counts().reclaimed >= 1


def test_the_only_one_killed_and_started_again(processes: WorkerProcesses) -> None:
    first = processes.serving(start(processes))
    id = processes.put("job", Work(ms=LONG_MS))
    processes.started(id)
    first.kill()
    start(processes)
    recovered(processes, id)


def test_stopped_its_claims_go_and_its_ends_are_refused(processes: WorkerProcesses) -> None:
    first, second = pair(processes, mover=False)
    id = put_on(processes, first, Work(ms=1000))
    first.signal(signal.SIGSTOP)
    recovered(processes, id)
    until(lambda: not processes.live(), "the other has ended it")
    first.signal(signal.SIGCONT)
    until(lambda: first.output.count("outcome=stale") == 1, "what the first has to say is refused")
    assert second.output.count("outcome=stale") == 0
    assert (processes.emptied().balances[0].done, processes.counts().reclaimed) == (
        len(processes.journal.ids("end")),
        1,
    )
    assert left_in(processes.server, "work") == {}


def test_stopped_and_first_in_line_it_does_not_keep_what_it_is_given(processes: WorkerProcesses) -> None:
    """Its blocked read waits in Redis for longer than the other's, so Redis gives it the job that was taken from it."""
    first = processes.serving(start(processes))
    id = processes.put("job", Work(ms=1000))
    processes.started(id)
    with processes.server.client() as client:
        until(lambda: client.info("clients")["blocked_clients"] > 1, "it reads on, and its mover waits")
    first.signal(signal.SIGSTOP)
    second = start(processes)
    recovered(processes, id)
    assert processes.journal.of(id)[-1].pid == second.pid
    assert processes.emptied().balances[0].done == 1
    first.signal(signal.SIGCONT)
    until(lambda: first.output.count("outcome=stale") == 1, "what the first has to say is refused")


@pytest.mark.parametrize(
    ("options", "work"),
    [
        (Options(ttr="1h", threads=True), Work(ms=8_000)),
        (Options(ttr="1h"), Work(ms=8_000)),
        (Options(ttr="1h"), Work(block=8_000)),
    ],
    ids=["thread", "coroutine", "blocked"],
)
def test_who_is_busy_keeps_its_job(processes: WorkerProcesses, options: Options, work: Work) -> None:
    for _ in range(2):
        processes.serving(start(processes, options, 6))
    ids = [processes.put(f"job-{number}", work) for number in range(3)]
    processes.emptied()
    assert processes.journal.count("start") == dict.fromkeys(ids, 1)
    assert processes.counts().reclaimed == 0


def stall_redis(processes: WorkerProcesses, _: WorkerProcess) -> None:
    os.kill(processes.server.pid, signal.SIGSTOP)
    until(passed(5), "Redis stands still")
    os.kill(processes.server.pid, signal.SIGCONT)


def sleep_in_redis(processes: WorkerProcesses, _: WorkerProcess) -> None:
    with processes.server.client() as client:
        client.execute_command("DEBUG", "SLEEP", 5)


def pause_writes(processes: WorkerProcesses, _: WorkerProcess) -> None:
    with processes.server.client() as client:
        client.execute_command("CLIENT", "PAUSE", 5_000, "WRITE")
    until(passed(5), "writes wait")


def refuse_writes(processes: WorkerProcesses, _: WorkerProcess) -> None:
    with processes.server.client() as client:
        client.config_set("min-replicas-to-write", 1)
        try:
            until(passed(5), "writes are refused")
        finally:
            client.config_set("min-replicas-to-write", 0)


def stop_mover(_: WorkerProcesses, mover: WorkerProcess) -> None:
    mover.signal(signal.SIGSTOP)
    until(passed(1.5), "the mover stands still")
    mover.signal(signal.SIGCONT)


def lose_heartbeats(processes: WorkerProcesses, _: WorkerProcess) -> None:
    with processes.server.client() as client:
        client.delete(NamespaceKeys("streamdq").heartbeats)


def fill_redis(processes: WorkerProcesses, _: WorkerProcess) -> None:
    with processes.server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            until(passed(5), "Redis is full")
        finally:
            client.config_set("maxmemory", 0)


@pytest.mark.parametrize(
    "trouble", [stall_redis, sleep_in_redis, pause_writes, refuse_writes, stop_mover, lose_heartbeats, fill_redis]
)
def test_trouble_elsewhere_costs_nobody_its_claims(
    processes: WorkerProcesses, trouble: Callable[[WorkerProcesses, WorkerProcess], None]
) -> None:
    mover, other = pair(processes, mover=True)
    ids = [processes.put(f"job-{number}", Work(ms=11_000)) for number in range(6)]
    for id in ids:
        processes.started(id)
    until(passed(1), "heartbeats are sent")
    trouble(processes, mover)
    processes.emptied()
    assert processes.journal.count("start") == dict.fromkeys(ids, 1)
    assert processes.counts().reclaimed == 0
    for worker in (mover, other):
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    with processes.server.client() as client:
        assert client.zcard(NamespaceKeys("streamdq").heartbeats) == 0, "who leaves takes its heartbeat along"
