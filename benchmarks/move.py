"""Only the move from the bucket to the ready stream, batch after batch."""

from __future__ import annotations

import time

import redis

from streamdq import Queue
from streamdq.link.connection import Link
from streamdq.link.opening import open_session
from streamdq.link.session import run
from streamdq.store.scripts import Scripts

from .figures import Figure
from .harness import BATCH, GROUP, NAMESPACE, SHARD, TOPIC, Bench, in_turn, median, must, new_jobs, spread
from .server import RedisServer, SlowCalls

_ROUNDS = 3
_PAGE = 5_000
_BARE = """
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
if #due > 0 then redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #due - 1) end
for _, member in ipairs(due) do redis.call('XADD', KEYS[2], '*', 'j', member) end
return #due
"""


class _Rounds:
    """Rounds of moves, and the longest calls seen in any of them."""

    def __init__(self, server: RedisServer, count: int) -> None:
        self._server = server
        self._count = count
        self.longest_seen_ms = 0.0
        self.slow = SlowCalls(0, 0, "")
        self.calls_us: list[float] = []
        self.preempted = 0

    def subject(self) -> float:
        """Jobs per second that Scripts.move takes from a bucket full of due jobs."""
        self._server.empty()
        with Queue(self._server.url, NAMESPACE) as queue:
            # Due in a moment, not now: those would go straight to the ready stream.
            queue.enqueue_many(TOPIC, new_jobs(self._count, lambda i: 0.001 + i % 10 / 1000))
        must(lambda: self._last_due_ms() < time.time() * 1000, "all jobs are due")
        link, session = open_session(self._server.url, NAMESPACE, None, None, Link)
        scripts, took_s = Scripts(session), 0.0
        self._server.reset_statistics()
        preempted = self._server.preempted() or 0
        for _ in range(0, self._count, BATCH):
            started = time.perf_counter()
            moved = run(link, scripts.move(SHARD, (GROUP,), BATCH)).moved
            call_s = time.perf_counter() - started
            took_s += call_s
            self.longest_seen_ms = max(self.longest_seen_ms, call_s * 1000)
            if moved <= 0:
                raise RuntimeError(f"a move moved {moved} of the jobs that are due")
        self.preempted += (self._server.preempted() or 0) - preempted
        self._note()
        link.close()
        return self._count / took_s

    def _last_due_ms(self) -> float:
        return float(self._server.client.zrange(SHARD.bucket, -1, -1, withscores=True)[0][1])

    def _note(self) -> None:
        slow = self._server.slow_calls()
        self.slow = max(self.slow, slow, key=lambda one: one.longest_ms)
        calls, us = self._server.script_calls()
        self.calls_us.append(us / calls)

    def floor(self) -> float:
        """Jobs per second of a script that only moves members from a ZSET to a stream."""
        self._server.empty()
        with redis.Redis.from_url(self._server.url) as bare:
            for start in range(0, self._count, _PAGE):
                bare.zadd("bare:bucket", {f"{i:012x}job-{i}": i for i in range(start, start + _PAGE)})
            sha, took_s = bare.script_load(_BARE), 0.0
            for _ in range(0, self._count, BATCH):
                started = time.perf_counter()
                bare.evalsha(sha, 2, "bare:bucket", "bare:ready", self._count, BATCH)
                took_s += time.perf_counter() - started
        return self._count / took_s


def move(bench: Bench) -> list[Figure]:
    """Scripts.move in batches of 500 over a bucket of due jobs, with the server's own times of its calls."""
    count = bench.jobs(200_000)
    with bench.server() as server:
        rounds = _Rounds(server, count)
        rounds.subject()  # loads the script
        rounds.longest_seen_ms, rounds.slow, rounds.preempted = 0.0, SlowCalls(0, 0, ""), 0
        rounds.calls_us.clear()
        subject, floor = in_turn(bench.rounds(_ROUNDS), rounds.subject, rounds.floor)
    raw = {
        "jobs": count, "measured": spread(subject), "floor": spread(floor), "usec_per_call": rounds.calls_us,
        "redis_preempted": rounds.preempted, "longest_command": rounds.slow.command,
    }  # fmt: skip
    return [
        Figure("move", f"batches of {BATCH}", median(subject), "/s", median(floor), "bare ZSET to stream",
               at_least=200_000, raw=raw),
        Figure("move", "longest call, Redis's SLOWLOG", rounds.slow.longest_ms, "ms", at_most=5),
        Figure("move", "longest call, as the caller saw it", rounds.longest_seen_ms, "ms"),
    ]  # fmt: skip
