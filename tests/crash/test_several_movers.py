"""One of several movers is killed or stopped under load: how long its part of the shards stays without one."""

import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from streamdq.keys import shard_of
from streamdq.mover.places import place_of
from tests.crash.worker_processes import TAKEOVER_S, WorkerProcess, WorkerProcesses
from tests.crash.workers import Options, Work
from tests.servers import Cluster
from tests.waiting import until

SHARDS = 12
HELD = (1, 2, 3)


@pytest.fixture
def on_cluster(redis_cluster: Cluster, tmp_path: Path) -> Iterator[WorkerProcesses]:
    with WorkerProcesses(redis_cluster, tmp_path) as processes:
        yield processes


def fill(processes: WorkerProcesses, name: str, seconds: float) -> dict[str, float]:
    """A steady load; returns when each job was due."""
    due: dict[str, float] = {}
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        id = f"{name}-{len(due)}"
        due[id] = processes.queue.enqueue("work", asdict(Work()), id=id, delay="20ms").due_ms / 1000
        time.sleep(0.004)
    return due


def start(processes: WorkerProcesses) -> dict[int, WorkerProcess]:
    """A mover in each place; the worker that has the jobs stands in line."""
    processes.queue.configure("work", shards=SHARDS)
    movers = {}
    for place in HELD:
        movers[place] = processes.serving(processes.start(Options(topics=("other",)), movers=len(HELD)))
        until(lambda: processes.leader(place=place) == movers[place].pid, "it is at work")  # noqa: B023
    processes.serving(processes.start(Options(), movers=len(HELD)))
    return movers


def late_s(processes: WorkerProcesses, due: dict[str, float]) -> dict[str, float]:
    started = {line.id: line.at for line in processes.journal.lines("start")}
    return {id: started[id] - due[id] for id in due}


@pytest.mark.chaos  # it judges times of several processes, which others on the machine change
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("place", HELD)
def test_its_shards_are_moved_again_within_a_second(
    on_cluster: WorkerProcesses, place: int, how: signal.Signals
) -> None:
    movers = start(on_cluster)
    due = fill(on_cluster, "before", 2)
    movers[place].signal(how)
    due |= fill(on_cluster, "after", 4)
    on_cluster.emptied()
    late = late_s(on_cluster, due)
    assert min(late.values()) >= -0.001, "one was early"
    lost = {id for id in due if place_of(f"work:{shard_of(id, SHARDS)}", HELD) == place}
    assert lost
    assert max(late[id] for id in lost) < TAKEOVER_S
    if place > 1:  # otherwise one of the others takes the first place, and leaves its own
        assert max(late[id] for id in due.keys() - lost) < 0.5
    if how is signal.SIGSTOP:
        movers[place].signal(signal.SIGCONT)
        due |= fill(on_cluster, "later", 2)
        on_cluster.emptied()
        assert max(late_s(on_cluster, due).values()) < TAKEOVER_S
    assert on_cluster.journal.count("start").most_common(1)[0][1] == 1


def test_while_movers_come_and_go(on_cluster: WorkerProcesses) -> None:
    movers = list(start(on_cluster).values())
    due: dict[str, float] = {}
    for number in range(4):
        due |= fill(on_cluster, f"{number}-a", 1)
        movers.pop(0).kill() if number % 2 else movers.pop(0).signal(signal.SIGTERM)
        due |= fill(on_cluster, f"{number}-b", 1.5)
        movers.append(on_cluster.start(Options(topics=("other",)), movers=len(HELD)))
    on_cluster.emptied()
    late = late_s(on_cluster, due)
    assert min(late.values()) >= -0.001, "one was early"
    assert max(late.values()) < TAKEOVER_S
