"""Movers come and go under load, and each shard is moved by somebody."""

import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.crash.worker_processes import IN_TURNS, WorkerProcess, WorkerProcesses
from tests.crash.workers import Options, Work
from tests.servers import Cluster
from tests.waiting import until

pytestmark = IN_TURNS

SHARDS = 12
HELD = (1, 2, 3)


@pytest.fixture
def on_cluster(redis_cluster: Cluster, tmp_path: Path) -> Iterator[WorkerProcesses]:
    with WorkerProcesses(redis_cluster, tmp_path) as processes:
        yield processes


def fill(processes: WorkerProcesses, name: str, seconds: float) -> dict[str, float]:
    """A steady load; returns when each job was due."""
    due: dict[str, float] = {}
    until_s, pause = time.monotonic() + seconds, threading.Event()
    while time.monotonic() < until_s:
        id = f"{name}-{len(due)}"
        due[id] = processes.queue.enqueue("work", asdict(Work()), id=id, delay="20ms").due_ms / 1000
        pause.wait(0.004)
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


def test_while_movers_come_and_go(on_cluster: WorkerProcesses) -> None:
    movers = list(start(on_cluster).values())
    due: dict[str, float] = {}
    for number in range(4):
        due |= fill(on_cluster, f"{number}-a", 1)
        movers.pop(0).kill() if number % 2 else movers.pop(0).signal(signal.SIGTERM)
        due |= fill(on_cluster, f"{number}-b", 1.5)
        movers.append(on_cluster.start(Options(topics=("other",)), movers=len(HELD)))
    on_cluster.emptied()
    started = {line.id: line.at for line in on_cluster.journal.lines("start")}
    assert all(started[id] - due[id] >= -0.001 for id in due), "one was early"
