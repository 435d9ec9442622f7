"""What a call costs Redis if two million jobs wait, compared with ten thousand.

Jobs have the same delay, as in most topics (an order closes 30 minutes after it was placed), or due times at random
places among the waiting jobs, where nothing that a call touches is in the processor's caches: the worst case.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from streamdq import Queue
from streamdq.keys import NamespaceKeys
from streamdq.link.connection import Link
from streamdq.link.opening import open_session
from streamdq.link.session import run
from streamdq.store.scripts import Scripts

from .figures import Figure
from .harness import BATCH, GROUP, NAMESPACE, Bench, body, hours, median, must, new_jobs, spread
from .server import RedisServer

FEW = 10_000
_MANY = 2_000_000
_ROUNDS = 40
_ONES = 5  # single calls in a round
_BARE_FIRST = 1 << 40  # numbers that no job here has
_RECORD = "0" * 60 + json.dumps(body(0))
ALWAYS, ANYWHERE = "one delay", "random dues"
_DELAYS: dict[str, Callable[[int], float]] = {ALWAYS: lambda _: 7200.0, ANYWHERE: hours}


def _from(delay: Callable[[int], float], first: int) -> Callable[[int], float]:
    return lambda number: delay(first + number)


@dataclass(slots=True)
class Topic:
    """One of the two, and Redis's µs for each of its calls."""

    name: str
    waiting: int
    one_us: dict[str, list[float]] = field(default_factory=lambda: {delays: [] for delays in _DELAYS})
    many_us: dict[str, list[float]] = field(default_factory=lambda: {delays: [] for delays in _DELAYS})
    move_us: list[float] = field(default_factory=list)
    bare_us: list[float] = field(default_factory=list)


def growth(bench: Bench) -> list[Figure]:
    """Two topics in one Redis, a few jobs in one and many in the other; their calls take turns."""
    few, many = Topic("few", FEW), Topic("many", bench.jobs(_MANY, least=2 * FEW))
    with bench.server() as server, Queue(server.url, NAMESPACE) as queue:
        for topic in (few, many):
            fill(queue, topic.name, 0, topic.waiting)
        calls = Calls(server, queue)
        for topic in (few, many):
            calls.warm_up(topic)
        rounds = bench.rounds(_ROUNDS)
        in_turns(rounds, calls.both, few, many)
        in_turns(rounds, calls.bare, few, many)  # separately, or they would evict the others' data from the caches
        calls.close()
    return _figures(few, many)


def fill(queue: Queue, topic: str, first: int, until: int) -> None:
    """Enqueues the jobs of these numbers, with random dues."""
    pages = (new_jobs(min(BATCH, until - i), hours, i) for i in range(first, until, BATCH))
    queue.enqueue_many(topic, (job for page in pages for job in page))


def in_turns(rounds: int, call: Callable[[Topic], None], few: Topic, many: Topic) -> None:
    for i in range(rounds):
        for topic in (few, many) if i % 2 else (many, few):
            call(topic)


def _figures(few: Topic, many: Topic) -> list[Figure]:
    label = f"{many.waiting:,} jobs wait"
    return [
        *[_figure(f"enqueue, {delays}, {label}", few.one_us[delays], many.one_us[delays], few.waiting, 1.3)
          for delays in _DELAYS],
        _figure(f"move, batch of {BATCH}, {label}", few.move_us, many.move_us, few.waiting, 1.3),
        *[_figure(f"enqueue_many, {delays}, batch of {BATCH}",
                  few.many_us[delays], many.many_us[delays], few.waiting, 1.3)
          for delays in _DELAYS],
        # For orientation: how much Redis's own insertion at random places grows.
        _figure(f"bare HSET and ZADD, batch of {BATCH}", few.bare_us, many.bare_us, few.waiting),
    ]  # fmt: skip


def _figure(
    what: str, few_us: list[float], many_us: list[float], waiting: int, ratio_at_most: float | None = None
) -> Figure:
    return Figure(
        "growth", what, median(many_us), "µs", median(few_us), f"{waiting:,} wait",
        ratio_at_most=ratio_at_most, raw={"many_us": spread(many_us), "few_us": spread(few_us)},
    )  # fmt: skip


class Calls:
    """One batch of each kind, and how long Redis says it took."""

    ADDED = 3 * BATCH + len(_DELAYS) * _ONES
    """Jobs that a topic has more after ``both``."""

    def __init__(self, server: RedisServer, queue: Queue) -> None:
        self._server = server
        self._queue = queue
        self._link, session = open_session(server.url, NAMESPACE, None, None, Link)
        self._scripts = Scripts(session)

    def warm_up(self, topic: Topic) -> None:
        """The script of a move is loaded; that of enqueue is since the topics were filled."""
        self._move(topic)

    def _move(self, topic: Topic) -> int:
        shard = NamespaceKeys(NAMESPACE).shard(topic.name, 0)
        return run(self._link, self._scripts.move(shard, (GROUP,), BATCH)).moved

    def both(self, topic: Topic) -> None:
        for delays, delay in _DELAYS.items():
            ones, many = topic.one_us[delays], topic.many_us[delays]
            for i in range(_ONES):
                job = new_jobs(1, delay, i + 15_485_863 * len(ones))[0]
                ones.append(self._redis_us(partial(self._queue.enqueue, topic.name, job.body, delay=job.delay)))
            jobs = new_jobs(BATCH, _from(delay, 104_729 * len(many)))
            many.append(self._redis_us(partial(self._queue.enqueue_many, topic.name, jobs)))
        # A batch that is due in a moment: jobs that waited before still wait after its move.
        self._queue.enqueue_many(topic.name, new_jobs(BATCH, lambda _: 0.001))
        due = time.time() + 0.002
        must(lambda: time.time() > due, "the batch is due")
        moved: list[int] = []
        topic.move_us.append(self._redis_us(lambda: moved.append(self._move(topic))))
        if moved != [BATCH]:
            raise RuntimeError(f"a move of {BATCH} due jobs moved {moved[0]}")

    def bare(self, topic: Topic) -> None:
        """The same jobs, by one HSET and one ZADD of a topic of that size without streamdq; then out of it again."""
        shard = NamespaceKeys(NAMESPACE).shard(topic.name, 0)
        first = _BARE_FIRST + BATCH * len(topic.bare_us)
        due_ms = {
            f"{i:012x}bare-{i}": hours(i * 104_729) * 1000 + time.time() * 1000 for i in range(first, first + BATCH)
        }
        commands = ("hset", "zadd")
        before = self._server.command_us(commands)
        self._server.client.hset(shard.jobs, mapping=dict.fromkeys(due_ms, _RECORD))
        self._server.client.zadd(shard.bucket, due_ms)
        topic.bare_us.append(self._server.command_us(commands) - before)
        self._server.client.hdel(shard.jobs, *due_ms)
        self._server.client.zrem(shard.bucket, *due_ms)

    def _redis_us(self, call: Callable[[], object]) -> float:
        calls, us = self._server.script_calls()
        call()
        calls_after, us_after = self._server.script_calls()
        if calls_after - calls != 1:
            raise RuntimeError(f"one script call was expected, Redis counted {calls_after - calls}")
        return float(us_after - us)

    def close(self) -> None:
        self._link.close()
