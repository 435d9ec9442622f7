"""What a job costs the servers of a Redis Cluster, compared with one server that has as many shards."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial

from streamdq import NewJob, Queue
from streamdq.keys import NamespaceKeys

from .figures import Figure
from .harness import DONE, NAMESPACE, TOPIC, Bench, body, in_turn, must
from .server import Cluster, RedisServer
from .workers import processes

_SHARDS = 48
_MASTERS = (3, 6)
_ROUNDS = 3
_NOT_COUNTED = ("info", "keys", "config|resetstat", "slowlog|reset", "flushall")
_IDLE_S = 5.0
_DUE_IN_S = 2.0  # by then all have been enqueued
_COUNTS = [NamespaceKeys(NAMESPACE).shard(TOPIC, number).counts for number in range(_SHARDS)]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one round, for each job: CPU time of all servers beyond what they use when idle, of the worker process, and
    commands, those inside scripts among them. ``hottest``: the busiest server's part of the CPU time, times the number
    of servers.
    """

    enqueue_us: float
    drain_us: float
    worker_us: float
    commands: float
    hottest: float

    @property
    def server_us(self) -> float:
        return self.enqueue_us + self.drain_us


class Deployment:
    """One server, or the masters of a Cluster, and what its rounds have cost."""

    def __init__(self, nodes: Sequence[RedisServer], url: str) -> None:
        self.url = url
        self._nodes = nodes
        self.costs: list[Cost] = []
        self._names: list[list[bytes]] = []
        self.idle = 0.0  # CPU seconds of one idle server in a second
        self._own = 0  # calls of this module's own that commandstats count

    def round(self, count: int) -> float:
        """Jobs are enqueued, are all due in the same millisecond, and are then moved and drained by one process."""
        for node in self._nodes:
            node.empty()
        self._own = 0
        with Queue(self.url, NAMESPACE) as queue:
            queue.configure(TOPIC, shards=_SHARDS)
            due_ms = int((time.time() + _DUE_IN_S + count / 20_000) * 1000)
            before = self._used()
            queue.enqueue_many(TOPIC, (NewJob(body(i), at=due_ms) for i in range(count)))
            enqueued = self._used()
        self._find_shards()
        must(lambda: time.time() * 1000 > due_ms, "the jobs are due")
        with processes(self.url, "noop", 1) as (worker,):
            began, worker_s = self._used(), worker.cpu_s()
            worker.serve()
            must(lambda: self._done() >= count, f"{count} jobs are done")
            ended, worker_s = self._used(), worker.cpu_s() - worker_s
            worker.stop()
        each = [last - first for first, last in zip(began, ended, strict=True)]
        per_job = 1e6 / count
        self.costs.append(
            Cost(
                (sum(enqueued) - sum(before)) * per_job,
                sum(each) * per_job,
                worker_s * per_job,
                self._commands() / count,
                max(each) * len(each) / sum(each),
            )
        )
        return self.costs[-1].server_us

    def least(self, what: str) -> float:
        """Of all rounds: other processes can only add to CPU time."""
        return min(float(getattr(cost, what)) for cost in self.costs)

    def note_idle(self, before: Sequence[float], within_s: float) -> None:
        """What its servers have used for themselves, and for each other, in that time."""
        self.idle = (sum(self.cpu_s()) - sum(before)) / within_s / len(self._nodes)

    def cpu_s(self) -> list[float]:
        return [node.cpu_s() for node in self._nodes]

    def _used(self) -> list[float]:
        """CPU seconds of each server, less what it would have used if it had been idle."""
        idle_s = time.monotonic() * self.idle
        return [cpu_s - idle_s for cpu_s in self.cpu_s()]

    def _done(self) -> int:
        time.sleep(0.2)  # looking costs the servers time, too
        return sum(int(count or 0) for count in self._counts(DONE))

    def _counts(self, field: str) -> list[bytes | None]:
        counts: list[bytes | None] = []
        for node, names in zip(self._nodes, self._names, strict=True):
            pipe = node.client.pipeline(transaction=False)
            for name in names:
                pipe.hget(name, field)
            self._own += len(names)
            counts += pipe.execute()
        return counts

    def _find_shards(self) -> None:
        """Which counters each server has."""
        self._names = [[key for key in node.client.keys("*") if key.decode() in _COUNTS] for node in self._nodes]

    def _commands(self) -> int:
        calls: Counter[str] = Counter()
        for node in self._nodes:
            stats = node.info("commandstats")
            calls.update({name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()})
        return calls.total() - self._own - sum(calls[name] for name in _NOT_COUNTED)


def cluster(bench: Bench) -> list[Figure]:
    """The same jobs in one server, and in Clusters of one, three and six masters on the same machine. In a Cluster,
    Redis checks the slot of each command, of those in scripts, too: so what must not grow is the cost of one master.
    """
    count = bench.jobs(96_000)
    with ExitStack() as stack:
        server = stack.enter_context(bench.server())
        alone = Deployment([server], server.url)
        clusters = {}
        for masters in (1, *_MASTERS):
            nodes = stack.enter_context(Cluster(bench.binary, masters))
            clusters[masters] = Deployment(nodes.nodes, nodes.url)
        every = (alone, *clusters.values())
        _note_idle(every)
        runs = [partial(deployment.round, count) for deployment in every]
        in_turn(bench.rounds(_ROUNDS), *runs)
    one = clusters.pop(1)
    figures = [figure for masters, costs in clusters.items() for figure in _figures(masters, costs, one)]
    return [
        *figures,
        _per_cpu_s("one master: moved and drained in such a second", "drain_us", one, alone, "one server"),
    ]


def _note_idle(deployments: Sequence[Deployment]) -> None:
    before = [deployment.cpu_s() for deployment in deployments]
    time.sleep(_IDLE_S)
    for deployment, cpu_s in zip(deployments, before, strict=True):
        deployment.note_idle(cpu_s, _IDLE_S)


def _figures(masters: int, costs: Deployment, one: Deployment) -> list[Figure]:
    name, floor = f"{masters} masters", "one master"
    return [
        _per_cpu_s(f"{name}: enqueued, moved and drained in a CPU second of the servers", "server_us", costs, one,
                   floor, at_least=0.95),
        _per_cpu_s(f"{name}: moved and drained in such a second", "drain_us", costs, one, floor, at_least=0.95),
        Figure("cluster", f"{name}: commands for a job", costs.least("commands"), "", one.least("commands"), floor,
               ratio_at_most=1.05),
        Figure("cluster", f"{name}: CPU of the worker process for a job", costs.least("worker_us"), "µs",
               one.least("worker_us"), floor),
        Figure("cluster", f"{name}: the busiest one's part of the CPU time, of an equal part", costs.least("hottest"),
               ""),
    ]  # fmt: skip


def _per_cpu_s(
    what: str, cost: str, costs: Deployment, others: Deployment, floor: str, at_least: float | None = None
) -> Figure:
    """Jobs in a second of the servers' CPU time."""
    raw = {
        floor: [asdict(each) for each in others.costs], "measured": [asdict(each) for each in costs.costs],
        "cpu_of_an_idle_server": costs.idle,
    }  # fmt: skip
    value, base = (1e6 / each.least(cost) for each in (costs, others))
    return Figure("cluster", what, value, "/s", base, floor, ratio_at_least=at_least, raw=raw)
