"""Several movers on a Redis Cluster: what they move and use, and how long a killed one's shards are not moved."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from streamdq import NewJob, Queue
from streamdq.keys import NamespaceKeys, shard_of
from streamdq.mover.places import place_of

from .figures import Figure
from .harness import NAMESPACE, TOPIC, Bench, body, in_turn, median, must, set_env, spread
from .server import Cluster, RedisServer
from .workers import WorkerProcess, processes

_MASTERS = 3
_SHARDS = 48
_ROUNDS = 2
_PER_S = 3_000
_EVERY_S = 0.004
_GAP_S = 3.0
_SETTLE_S = 3.0  # by then each has its part, and who stands in line its place there
_KEYS = NamespaceKeys(NAMESPACE)


def movers(bench: Bench) -> list[Figure]:
    """One mover at work, with another process in line; and one for each master."""
    rounds = bench.rounds(_ROUNDS)
    with Cluster(bench.binary, _MASTERS) as cluster:
        one, many = (_Rounds(cluster, most, bench.jobs(100_000), bench.jobs(15_000)) for most in (1, _MASTERS))
        in_turn(rounds, one.load, many.load)
        gaps = in_turn(rounds, one.gap, many.gap)
    return [*_figures(one, one, gaps[0]), *_figures(many, one, gaps[1])]


def _figures(of: _Rounds, one: _Rounds, gaps_ms: list[float]) -> list[Figure]:
    def figure(what: str, values: list[float], floor: list[float], unit: str) -> Figure:
        least = None if of is one else median(floor)
        return Figure("movers", f"{of.most} at work: {what}", median(values), unit, least, "1 at work",
                      raw=spread(values))  # fmt: skip

    return [
        figure("moved, if all are due at once", of.per_second, one.per_second, "/s"),
        figure(f"CPU for a job at {_PER_S:,}/s, all movers", of.all_us, one.all_us, "µs"),
        figure("the same, the busiest mover", of.busiest_us, one.busiest_us, "µs"),
        Figure("movers", f"{of.most} at work: longest wait after a kill", max(gaps_ms), "ms", at_most=1_000,
               raw=spread(gaps_ms)),
    ]  # fmt: skip


class _Rounds:
    """``most`` movers at work, in as many processes, or in two where that is one."""

    def __init__(self, cluster: Cluster, most: int, at_once: int, one_by_one: int) -> None:
        self.most = most
        self.per_second: list[float] = []
        self.all_us: list[float] = []
        self.busiest_us: list[float] = []
        self._cluster = cluster
        self._at_once = at_once
        self._one_by_one = one_by_one

    @contextmanager
    def _at_work(self) -> Iterator[tuple[Queue, list[WorkerProcess]]]:
        """A queue, and the processes in the order of their places. No process works on the topic."""
        for node in self._cluster.nodes:
            node.empty()
        with Queue(self._cluster.url, NAMESPACE) as queue, set_env({"STREAMDQ_MOVERS": str(self.most)}):
            queue.configure(TOPIC, shards=_SHARDS)
            with processes(self._cluster.url, "mover", max(2, self.most)) as started:
                for place, process in enumerate(started, 1):
                    process.serve()
                    must(lambda: self._holder(place) or place > self.most, "it is at work")  # noqa: B023
                time.sleep(_SETTLE_S)
                yield queue, started

    def _holder(self, place: int) -> bool:
        return any(node.client.exists(_KEYS.mover_at(place)) for node in self._with_keys())

    def _with_keys(self) -> list[RedisServer]:
        slot = self._cluster.nodes[0].client.execute_command("CLUSTER KEYSLOT", _KEYS.mover)
        return [self._cluster.nodes[slot * _MASTERS // 16_384]]

    def load(self) -> float:
        """Jobs that are all due at once, and then jobs that are due one by one. Returns how many of the first were
        moved per second.
        """
        with self._at_work() as (queue, started):
            due_ms = self._enqueue(queue, self._at_once, 0)
            must(lambda: self._ready() == self._at_once, "all are moved")
            last_ms = max(moved_ms for moved_ms, _ in self._entries())
            used_s = [process.cpu_s() for process in started]
            self._enqueue(queue, self._one_by_one, 1000 / _PER_S)
            must(lambda: self._ready() == self._at_once + self._one_by_one, "all are moved")
            used_s = [process.cpu_s() - before for process, before in zip(started, used_s, strict=True)]
        self.per_second.append(self._at_once / max(1, last_ms - due_ms) * 1000)
        self.all_us.append(sum(used_s) / self._one_by_one * 1e6)
        self.busiest_us.append(max(used_s) / self._one_by_one * 1e6)
        return self.per_second[-1]

    def _enqueue(self, queue: Queue, count: int, apart_ms: float) -> int:
        """Returns when the first one is due."""
        due_ms = int((time.time() + 1 + count / 15_000) * 1000)
        queue.enqueue_many(TOPIC, (NewJob(body(i), at=due_ms + int(i * apart_ms)) for i in range(count)))
        if time.time() * 1000 >= due_ms:
            raise RuntimeError("this machine took too long to enqueue the jobs before they were due")
        return due_ms

    def gap(self) -> float:
        """How many ms a job was moved late at most, of the shards of a mover that was killed."""
        with self._at_work() as (queue, started):
            due: dict[str, int] = {}
            killed_at, killed = time.monotonic() + 1, 0
            while time.monotonic() < killed_at + _GAP_S:
                if not killed and time.monotonic() >= killed_at:
                    killed = self.most  # the last place
                    started[killed - 1].kill()
                id = f"j{len(due)}"
                due[id] = queue.enqueue(TOPIC, body(0), id=id, delay="20ms").due_ms
                time.sleep(_EVERY_S)
            must(lambda: self._ready() == len(due), "all are moved")
            places = range(1, self.most + 1)
            its = {id for id in due if place_of(f"{TOPIC}:{shard_of(id, _SHARDS)}", places) == killed}
            return float(max(moved_ms - due[id] for moved_ms, id in self._entries() if id in its))

    def _ready(self) -> int:
        return sum(node.client.xlen(ready) for node, ready in self._streams())

    def _entries(self) -> Iterator[tuple[int, str]]:
        """When each job was moved, by Redis's clock, and its id."""
        for node, ready in self._streams():
            for entry, fields in node.client.xrange(ready):
                yield int(entry.partition(b"-")[0]), fields[b"j"][12:].decode()

    def _streams(self) -> list[tuple[RedisServer, str]]:
        return [(node, key.decode()) for node in self._cluster.nodes for key in node.client.scan_iter("*:ready")]
