"""What history costs a worker, and how fast it is dumped."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import redis

from streamdq import Queue
from streamdq.config import Settings
from streamdq.dump.arrow import pyarrow
from streamdq.dump.dumper import PAGE, Dumper
from streamdq.dump.local import LocalFolder
from streamdq.store.history import SEPARATOR

from .drain import Drained
from .figures import Figure
from .harness import (
    BATCH,
    DONE,
    NAMESPACE,
    SHARD,
    TOPIC,
    Bench,
    in_turn,
    median,
    must,
    new_jobs,
    set_env,
    spread,
    timed,
)
from .server import RedisServer
from .workers import processes

_ROUNDS = 5


def history(bench: Bench) -> list[Figure]:
    """Draining with history and without, by turns."""
    count = bench.jobs(100_000)
    runs: dict[str, list[Drained]] = {"on": [], "off": []}
    with bench.server() as server:

        def run(name: str, **environment: str) -> float:
            with set_env(environment):
                return _drained(server, count, runs[name])

        on, off = in_turn(
            bench.rounds(_ROUNDS), lambda: run("on"), lambda: run("off", STREAMDQ_HISTORY_LENGTH="0")
        )  # fmt: skip
    cpu = {name: [(one.redis_us, one.workers_us) for one in those] for name, those in runs.items()}
    raw = {"jobs": count, "on": spread(on), "off": spread(off), "cpu_us_per_job_of_redis_and_worker": cpu}
    return [
        Figure("history", "drain, with history", median(on), "/s", median(off), "without", ratio_at_least=0.85, raw=raw)
    ]  # fmt: skip


def _drained(server: RedisServer, count: int, runs: list[Drained]) -> float:
    """Jobs per second from the worker's begin until Redis has counted all as done: without history only that tells."""
    server.empty()
    with Queue(server.url, NAMESPACE) as queue:
        queue.enqueue_many(TOPIC, new_jobs(count))
    with processes(server.url, "noop", 1) as (worker,):
        redis_s, worker_s, begun = server.cpu_s(), worker.cpu_s(), time.perf_counter()
        worker.serve()
        must(lambda: server.count(SHARD.counts, DONE) >= count, f"{count} jobs are done")
        took_s = time.perf_counter() - begun
        redis_s, worker_s = server.cpu_s() - redis_s, worker.cpu_s() - worker_s
        worker.stop()
    runs.append(Drained(count / took_s, redis_s / count * 1e6, worker_s / count * 1e6))
    return runs[-1].per_s


def dump(bench: Bench) -> list[Figure]:
    """The history of a shard into Parquet, beside paging through it."""
    count = bench.jobs(1_000_000)
    pyarrow()
    with bench.server() as server, redis.Redis.from_url(server.url, protocol=2) as bare:
        _fill(server, bare, count)
        with tempfile.TemporaryDirectory(prefix="streamdq-bench-") as folder:
            folders = (Path(folder) / str(number) for number in range(_ROUNDS))
            dumped, paged = in_turn(
                bench.rounds(_ROUNDS), lambda: _dump(server, next(folders), count), partial(_page, bare, count)
            )  # fmt: skip
    raw = {"rows": count, "dump": spread(dumped), "paging": spread(paged)}
    return [
        Figure("dump", "history into Parquet", median(dumped), "/s", median(paged), f"bare XRANGE, pages of {PAGE}",
               ratio_at_least=0.5, raw=raw)
    ]  # fmt: skip


def _fill(server: RedisServer, bare: redis.Redis, count: int) -> None:
    """A shard's history: as a worker leaves it, a row a millisecond, with ids of streamdq's making."""
    with Queue(server.url, NAMESPACE) as queue:
        queue.configure(TOPIC)
    begin = int(time.time() * 1000) - count
    for first in range(0, count, BATCH):
        pipe = bare.pipeline(transaction=False)
        for at in range(begin + first, begin + first + BATCH):
            times = (at - 9000, at - 10, at - 9, at - 8)
            id = f"{at * 7919 % 2**80:020x}"
            fields = ("done", id, "default", 1, 0, "host-12345-a1b2c3", *times, "", "", 100, at)
            pipe.xadd(SHARD.history, {"e": SEPARATOR.join(map(str, fields))}, id=f"{at}-0")
        pipe.execute()
    bare.hset(SHARD.counts, "history", count)
    bare.hset(SHARD.settings, "history_since", f"{begin}-0")


def _dump(server: RedisServer, folder: Path, count: int) -> float:
    settings = Settings(history_length=2 * count, history_age_s=0)  # for the next round
    with Dumper(LocalFolder(folder), server.url, NAMESPACE, settings=settings).opened() as dumper:
        done = dumper.dump()
        dumper.forget()
    if done.rows != count or not done.whole:
        raise RuntimeError(f"{count} rows were to be dumped: {done}")
    return count / done.seconds


def _page(bare: Any, count: int) -> float:
    return count / timed(partial(_pages, bare))


def _pages(bare: Any) -> None:
    after = "-"
    while page := bare.xrange(SHARD.history, after, count=PAGE):
        after = f"({page[-1][0].decode()}"
