"""What flows cost: one of very many jobs and a join, and many small ones."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import redis

from streamdq import NewJob, Queue
from streamdq.job.flow import FLOWS
from streamdq.keys import NamespaceKeys

from .figures import Figure
from .harness import DONE, NAMESPACE, SHARD, TOPIC, Bench, body, median, must
from .server import Cluster, RedisServer
from .workers import LOADED, processes

_ROUNDS = 3
_SHARDS, _MASTERS = 8, 3
_SMALL = 20
_EVERY_S, _IDLE_S = 1.0, 10.0
_JOIN = "report.join"
_KEYS = NamespaceKeys(NAMESPACE)
_PARTS = ("enqueued", "done", "forgotten")


@dataclass(frozen=True, slots=True)
class _Used:
    """The server's CPU time for a job, µs: until all are enqueued, until all are done, and until nothing is left."""

    parts: tuple[float, float, float]

    @property
    def whole(self) -> float:
        return sum(self.parts)

    def raw(self, of: str) -> dict[str, float]:
        return {f"{of}_until_{part}": us for part, us in zip(_PARTS, self.parts, strict=True)}


def flows(bench: Bench) -> list[Figure]:
    """Flows beside as many jobs that belong to none."""
    count, small = bench.jobs(10_000), bench.jobs(1_000, least=100)
    rounds = range(bench.rounds(_ROUNDS))
    with bench.server() as server:
        both = [(_cpu(server, count, _singles), _cpu(server, count, _joined)) for _ in rounds]
        bytes_of = [_memory(server, count, put) for put in (_singles, _joined)]
        alone_s, flows_s = zip(
            *((_drained(server, small, _some_singles), _drained(server, small, _some_flows)) for _ in rounds),
            strict=True,
        )
        calls = _calls(server, count)
    single, flow = (min(runs, key=lambda used: used.whole) for runs in zip(*both, strict=True))
    jobs = small * _SMALL
    last_ms = _last_to_join_ms(bench, count)
    return [
        Figure("flows", f"Redis's CPU for each of {count:,} jobs of a flow, and a join", flow.whole, "µs", single.whole,
               "one that belongs to none", ratio_at_most=1.2, raw=flow.raw("flow") | single.raw("single")),
        Figure("flows", "calls to the join's shard", float(sum(calls.values())), "calls", at_most=60, raw=dict(calls)),
        Figure("flows", "memory of the flow beyond that of its jobs", bytes_of[1] - bytes_of[0], "bytes",
               at_most=4096),
        Figure("flows", "from the end of the last job to the start of the join, Cluster", last_ms, "ms", at_most=50),
        Figure("flows", f"{small:,} flows of {_SMALL} jobs are done", jobs / median(flows_s), "/s",
               jobs / median(alone_s), "jobs that belong to none", ratio_at_least=0.5),
    ]  # fmt: skip


def _singles(queue: Queue, count: int) -> int:
    queue.enqueue_many(TOPIC, [NewJob(body(number), id=f"part-{number}") for number in range(count)])
    return count


def _joined(queue: Queue, count: int) -> int:
    with queue.flow("all", keep="1s") as flow:
        parts = [NewJob(body(number), id=f"part-{number}") for number in range(count)]
        flow.enqueue(TOPIC, body(0), after=flow.enqueue_many(TOPIC, parts))
    return count + 1


def _some_singles(queue: Queue, count: int) -> int:
    return _singles(queue, count * _SMALL)


def _some_flows(queue: Queue, count: int) -> int:
    for number in range(count):
        with queue.flow(f"f{number}", keep="1s") as flow:
            parts = flow.enqueue_many(TOPIC, [NewJob(body(each)) for each in range(_SMALL - 1)])
            flow.enqueue(TOPIC, body(0), after=parts)
    return count * _SMALL


def _cpu(server: RedisServer, count: int, put: Callable[[Queue, int], int]) -> _Used:
    """The server's, less what it uses when idle. The worker starts when all are enqueued."""
    server.empty()
    with Queue(server.url, NAMESPACE) as queue, processes(server.url, "noop", 1) as (worker,):
        queue.configure(TOPIC, create=True)
        began_s = server.cpu_s()
        jobs = put(queue, count)
        enqueued_s = server.cpu_s()
        worker.serve()
        must(lambda: server.count(SHARD.counts, DONE) >= jobs, f"{jobs} jobs are done", 120, 0.1)
        done_s, at_s = server.cpu_s(), time.monotonic()
        left = [key for topic in (TOPIC, FLOWS) for key in _links(topic)]
        must(lambda: not server.client.exists(*left), "they are forgotten", 240, _EVERY_S)
        forgotten_s, waited_s = server.cpu_s(), time.monotonic() - at_s
        time.sleep(_IDLE_S)
        idle_s = (server.cpu_s() - forgotten_s) / _IDLE_S * waited_s
        worker.stop()
    each = (enqueued_s - began_s, done_s - enqueued_s, max(0.0, forgotten_s - done_s - idle_s))
    return _Used((each[0] / count * 1e6, each[1] / count * 1e6, each[2] / count * 1e6))


def _links(topic: str) -> tuple[str, ...]:
    shard = _KEYS.shard(topic, 0)
    return shard.followers, shard.dependents


def _memory(server: RedisServer, count: int, put: Callable[[Queue, int], int]) -> int:
    """When all are enqueued."""
    server.empty()
    with Queue(server.url, NAMESPACE) as queue:
        queue.configure(TOPIC, create=True)
        _some_flows(queue, 1)  # so that the topics and scripts of both are there
        before = server.memory_bytes()
        put(queue, count)
        return server.memory_bytes() - before


def _drained(server: RedisServer, count: int, put: Callable[[Queue, int], int]) -> float:
    """From when a worker starts to work until all are done, in s."""
    server.empty()
    with Queue(server.url, NAMESPACE) as queue, processes(server.url, "noop", 1) as (worker,):
        queue.configure(TOPIC, create=True)
        jobs = put(queue, count)
        worker.serve()
        must(lambda: server.count(SHARD.counts, DONE) > 0, "the first one is done", 60)
        began_s = time.monotonic()
        must(lambda: server.count(SHARD.counts, DONE) >= jobs, f"{jobs} jobs are done", 240)
        took_s = time.monotonic() - began_s
        worker.stop()
    return took_s


def _calls(server: RedisServer, count: int) -> Counter[str]:
    """Calls to the shard of a join that is in a topic of its own, by script."""
    server.empty()
    shard = _KEYS.shard(_JOIN, 0)
    with (
        Queue(server.url, NAMESPACE) as queue,
        processes(server.url, LOADED, 1, "100", f"{TOPIC},{_JOIN}") as (worker,),
    ):
        for topic in (TOPIC, _JOIN):
            queue.configure(topic, create=True)
        with _scripts_on(server, shard.prefix) as seen:
            with queue.flow("all", keep="1s") as flow:
                parts = [NewJob([(0, "ok")]) for _ in range(count)]
                flow.enqueue(_JOIN, [(0, "ok")], after=flow.enqueue_many(TOPIC, parts))
            worker.serve()
            must(lambda: server.count(shard.counts, DONE) >= 1, "the join is done", 120, 0.1)
        worker.stop()
    return seen


@contextmanager
def _scripts_on(server: RedisServer, prefix: str) -> Iterator[Counter[str]]:
    """Counts the scripts that are called with keys of this prefix."""
    seen: Counter[str] = Counter()
    ended = threading.Event()

    def count() -> None:
        with redis.Redis.from_url(server.url) as client, client.monitor() as monitor:
            ready.set()
            for command in monitor.listen():
                words = str(command["command"]).split(" ", 4)
                if words[0].upper() in ("FCALL", "EVALSHA", "EVAL") and words[3].startswith(prefix):
                    seen[words[1].split("_", 2)[2] if words[0].upper() == "FCALL" else "EVALSHA"] += 1
                if ended.is_set():
                    return

    ready = threading.Event()
    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    ready.wait()
    yield seen
    ended.set()
    server.client.ping()
    thread.join()


def _last_to_join_ms(bench: Bench, count: int) -> float:
    """On a Cluster."""
    with Cluster(bench.binary, _MASTERS) as cluster, Queue(cluster.url, NAMESPACE) as queue:
        queue.configure(TOPIC, shards=_SHARDS, create=True)
        with processes(cluster.url, "witness", 1, "100", "30", "0") as (worker,):
            with queue.flow("all", keep="1s") as flow:
                parts = [NewJob(body(number), id=f"part-{number}") for number in range(count)]
                flow.enqueue(TOPIC, body(0), id="join", after=flow.enqueue_many(TOPIC, parts))
            worker.serve()
            must(lambda: any(what == "end" and id == "join" for what, id, _ in worker.lines()), "the join", 240, 1.0)
            worker.stop()
            at = {(what, id): ns for what, id, ns in worker.lines()}
    last = max(ns for (what, id), ns in at.items() if what == "end" and id != "join")
    return float(at["start", "join"] - last) / 1e6
