"""Idle workers on a Redis Cluster with many shards: connections, commands, and what a job costs that comes now and
then.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from streamdq import Queue
from streamdq.keys import NamespaceKeys

from .figures import Figure
from .harness import DONE, NAMESPACE, TOPIC, Bench, body, must, percentile
from .server import Cluster
from .workers import WorkerProcess, processes

_SHARDS = 64
_MASTERS = 3
_WORKERS = (1, 8)
_QUIET_S = 30.0  # until each process has found the mover
_PER_SECOND = 40
_OWN = ("info", "client|list", "client", "config|resetstat", "hget")
_COUNTS = [NamespaceKeys(NAMESPACE).shard(TOPIC, number).counts for number in range(_SHARDS)]


@dataclass(slots=True)
class _Found:
    connections: float = 0.0  # of each process
    idle: float = 0.0  # commands per second
    commands: float = 0.0  # per job
    late_ms: Sequence[float] = ()


class _Deployment:
    def __init__(self, stack: ExitStack, bench: Bench, workers: int) -> None:
        self.cluster = stack.enter_context(Cluster(bench.binary, _MASTERS))
        self.found = _Found()
        with Queue(self.cluster.url, NAMESPACE) as queue:
            queue.configure(TOPIC, shards=_SHARDS)
            queue.enqueue(TOPIC, body(0), delay="1h")
        self.workers: list[WorkerProcess] = stack.enter_context(processes(self.cluster.url, "stamp", workers))
        for worker in self.workers:
            worker.serve()

    def sent(self) -> Counter[str]:
        """Calls so far by command, those from scripts among them, without this benchmark's own."""
        calls: Counter[str] = Counter()
        for node in self.cluster.nodes:
            stats = node.info("commandstats")
            calls.update({name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()})
        return Counter({name: count for name, count in calls.items() if name not in _OWN})

    def connections(self) -> float:
        clients = [client for node in self.cluster.nodes for client in node.client.client_list()]
        return (len(clients) - len(self.cluster.nodes)) / len(self.workers)

    def done(self) -> int:
        found = 0
        for node in self.cluster.nodes:
            here = [key for key in node.client.scan_iter("*:counts", 1000) if key.decode() in _COUNTS]
            found += sum(int(node.client.hget(key, DONE) or 0) for key in here)
        return found

    def trickle(self, count: int) -> None:
        """Jobs at an even pace with random delays."""
        before, began = self.sent(), time.monotonic()
        chance = random.Random(1)
        with Queue(self.cluster.url, NAMESPACE) as queue:
            for i in range(count):
                time.sleep(max(0.0, began + i / _PER_SECOND - time.monotonic()))
                queue.enqueue(TOPIC, body(i), delay=chance.uniform(0.3, 1))
            time.sleep(2)
        sent, took_s = self.sent(), time.monotonic() - began
        self.raw = {name: (calls - before[name]) / count for name, calls in sent.items() if calls > before[name]}
        self.raw.pop("scan", None)
        self.found.commands = sum(self.raw.values()) - self.found.idle * took_s / count
        must(lambda: self.done() >= count, f"{count} jobs are done", 15)
        for worker in self.workers:
            worker.stop()
        stamps = [stamp for worker in self.workers for stamp in worker.lines()]
        self.found.late_ms = [(started_ns - due_ms * 1_000_000) / 1e6 for due_ms, started_ns in stamps]


def cluster_idle(bench: Bench) -> list[Figure]:
    """One worker process and eight, idle at the same time, each with a Cluster of three masters and 64 shards; then a
    trickle of jobs for the one, and for the other.
    """
    seconds, count = bench.seconds(60), int(_PER_SECOND * bench.seconds(10))
    with ExitStack() as stack:
        deployments = {workers: _Deployment(stack, bench, workers) for workers in _WORKERS}
        time.sleep(_QUIET_S)
        before = {workers: one.sent() for workers, one in deployments.items()}
        time.sleep(seconds)
        idle = {workers: one.sent() - before[workers] for workers, one in deployments.items()}
        for workers, one in deployments.items():
            one.found.connections, one.found.idle = one.connections(), idle[workers].total() / seconds
        for one in deployments.values():
            one.trickle(count)
    return [figure for workers, one in deployments.items() for figure in _figures(workers, one, idle[workers])]


def _figures(workers: int, one: _Deployment, idle: Counter[str]) -> list[Figure]:
    name, found = "cluster-idle", one.found
    who = f"{workers} worker process{'es' * (workers > 1)}"
    return [
        Figure(name, f"{who}: connections of each", found.connections, ""),
        Figure(name, f"{who}: idle commands", found.idle, "/s", at_most=3 + 0.1 * _SHARDS, raw={"commands": idle}),
        Figure(name, f"{who}: commands per job", found.commands, "", raw={"commands": one.raw}),
        Figure(name, f"{who}: lateness, p50", percentile(found.late_ms, 50), "ms"),
        Figure(name, f"{who}: lateness, p99", percentile(found.late_ms, 99), "ms"),
        Figure(name, f"{who}: early starts", sum(1 for late_ms in found.late_ms if late_ms < 0), "jobs", at_most=0),
    ]
