"""What a job costs the servers of a Redis Cluster, compared with one server that has as many shards."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise

from streamdq import NewJob, Queue
from streamdq.keys import NamespaceKeys

from .bare import Bare, Traffic
from .figures import Figure
from .harness import DONE, NAMESPACE, TOPIC, Bench, body, in_turn, median, must
from .server import Cluster, RedisServer
from .workers import processes

_SHARDS = 48
_MASTERS = (3, 6)
_ROUNDS = 9
_MANY = 8  # worker processes
_NOT_COUNTED = ("info", "keys", "config|resetstat", "slowlog|reset", "flushall")
_IDLE_S = 5.0
_DUE_IN_S, _ENQUEUED_PER_S = 1.0, 20_000  # all have been enqueued before
_TAGS = [f"{TOPIC}:{number}" for number in range(_SHARDS)]  # in the slots of the shards
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


@dataclass(frozen=True, slots=True)
class Floor:
    """CPU time of all servers, of one round, for as many jobs, but of bare scripts (bare.py)."""

    enqueue_us: float
    drain_us: float

    @property
    def server_us(self) -> float:
        return self.enqueue_us + self.drain_us


class Deployment:
    """One server, or the masters of a Cluster, and what its rounds have cost."""

    def __init__(self, nodes: Sequence[RedisServer], url: str) -> None:
        self.url = url
        self._nodes = nodes
        self.costs: list[Cost] = []
        self.floors: list[Floor] = []
        self.traffic: tuple[Traffic, Traffic] | None = None  # of the last round: to enqueue, and to move and drain
        self.bare_traffic: Traffic | None = None
        self._names: list[list[bytes]] = []
        self.idle = 0.0  # CPU seconds of one idle server in a second
        self._own = 0  # calls of this module's own that commandstats count

    def round(self, count: int, workers: int = 1) -> float:
        """Jobs are enqueued, are all due in the same millisecond, and are then moved and drained by so many processes,
        one as a rule.
        """
        for node in self._nodes:
            node.empty()
        self._own = 0
        with Queue(self.url, NAMESPACE) as queue:
            queue.configure(TOPIC, shards=_SHARDS)
            due_ms = int((time.time() + _DUE_IN_S + count / _ENQUEUED_PER_S) * 1000)
            before = self._used()
            queue.enqueue_many(TOPIC, (NewJob(body(i), at=due_ms) for i in range(count)))
            enqueued, put = self._used(), self._traffic()
        self._find_shards()
        must(lambda: time.time() * 1000 > due_ms, "the jobs are due")
        with processes(self.url, "noop", workers) as every:
            began, worker_s = self._used(), sum(worker.cpu_s() for worker in every)
            for worker in every:
                worker.serve()
            must(lambda: self._done() >= count, f"{count} jobs are done")
            ended, worker_s = self._used(), sum(worker.cpu_s() for worker in every) - worker_s
            self.traffic = put, self._traffic() - put
            for worker in every:
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

    def bare_round(self, count: int, traffic: tuple[Traffic, Traffic]) -> float:
        """As many jobs, by bare scripts."""
        for node in self._nodes:
            node.empty()
        self._own = 0
        bare = Bare(self.url, _TAGS, count, *traffic)
        used = [sum(self._used())]
        for part in (bare.put, bare.drain):
            part()
            used.append(sum(self._used()))
        self.bare_traffic = self._traffic()
        enqueue_us, drain_us = ((after - before) * 1e6 / count for before, after in pairwise(used))
        self.floors.append(Floor(enqueue_us, drain_us))
        return self.floors[-1].server_us

    def contended(self, count: int) -> float:
        """Commands for a job with many worker processes; the round counts as none of the others."""
        self.round(count, _MANY)
        return self.costs.pop().commands

    def forget(self) -> None:
        """The rounds so far were to warm up."""
        self.costs.clear()

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

    def _calls(self) -> Counter[str]:
        calls: Counter[str] = Counter()
        for node in self._nodes:
            stats = node.info("commandstats")
            calls.update({name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()})
        return calls

    def _commands(self) -> int:
        calls = self._calls()
        return calls.total() - self._own - sum(calls[name] for name in _NOT_COUNTED)

    def _traffic(self) -> Traffic:
        """Since the round began. Commands outside of scripts are a few."""
        calls, commands = self._calls(), self._commands()
        stats = [node.info("stats") for node in self._nodes]
        received, sent = (sum(row[f"total_net_{name}_bytes"] for row in stats) for name in ("input", "output"))
        scripts = calls["fcall"] + calls["evalsha"] + calls["eval"]
        return Traffic(scripts, commands - scripts, received, sent)


def cluster(bench: Bench) -> list[Figure]:
    """The same jobs in one server, and in Clusters of one, three and six masters on the same machine. In a Cluster,
    Redis checks the slot of each command, of those in scripts, too: so what must not grow is the cost of one master.
    """
    count = bench.jobs(38_400)
    with ExitStack() as stack:
        server = stack.enter_context(bench.server())
        alone = Deployment([server], server.url)
        clusters = {}
        for masters in (1, *_MASTERS):
            nodes = stack.enter_context(Cluster(bench.binary, masters))
            clusters[masters] = Deployment(nodes.nodes, nodes.url)
        every = (alone, *clusters.values())
        _note_idle(every)
        one = clusters[1]
        one.round(count)
        assert one.traffic is not None
        one.forget()
        runs = [partial(deployment.round, count) for deployment in every]
        floors = [partial(deployment.bare_round, count, one.traffic) for deployment in clusters.values()]
        in_turn(bench.rounds(_ROUNDS), *runs, *floors)
        contended = clusters[_MASTERS[0]].contended(count)
    clusters.pop(1)
    figures = [figure for masters, costs in clusters.items() for figure in _figures(masters, costs, one)]
    few = clusters[_MASTERS[0]].least("commands")
    return [
        *figures,
        Figure(
            "cluster",
            f"{_MASTERS[0]} masters, {_MANY} worker processes: commands for a job",
            contended,
            "",
            few,
            "one process",
        ),
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
        *(_beside_the_floor(name, what, cost, costs, one) for what, cost in _PARTS.items()),
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


_PARTS = {"enqueued, moved and drained": "server_us", "moved and drained": "drain_us"}


def _beside_the_floor(name: str, what: str, cost: str, costs: Deployment, one: Deployment) -> Figure:
    """What is left of one master's jobs in a CPU second, and what is left of bare scripts."""
    left, of_bare = _left(min, cost, costs.costs, one.costs), _left(min, cost, costs.floors, one.floors)
    medians = {
        "median": _left(median, cost, costs.costs, one.costs),
        "median of bare scripts": _left(median, cost, costs.floors, one.floors),
        "bare scripts": [asdict(each) for each in costs.floors], "on one master": [asdict(each) for each in one.floors],
        "traffic": [asdict(part) for part in costs.traffic or ()],
        "traffic on one master": [asdict(part) for part in one.traffic or ()],
        "traffic of bare scripts": asdict(costs.bare_traffic) if costs.bare_traffic else None,
    }  # fmt: skip
    return Figure("cluster", f"{name}: {what}, part of one master's in a CPU second", left, "x", of_bare,
                  "bare scripts", ratio_at_least=0.95, raw=medians)  # fmt: skip


def _left(
    how: Callable[[Iterable[float]], float], cost: str, several: Sequence[Cost | Floor], one: Sequence[Cost | Floor]
) -> float:
    least, base = (how(float(getattr(each, cost)) for each in costs) for costs in (several, one))
    return base / least


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
