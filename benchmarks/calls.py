"""The longest script call for everything that may be large: bodies, batches, groups, dead letters, claims to take over.

It measures Redis's own time for each call, by INFO commandstats before and after it. Each round makes the same calls.
Of each call the shortest time counts, as other processes on the machine can only make it longer; the figure is the
longest of these times. The floors are measured in the same way, with bare scripts that move as many bytes: they show
what the machine adds in this run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from streamdq import NewJob
from streamdq.config import MAX_CLAIM
from streamdq.link.command import Command
from streamdq.link.connection import Link
from streamdq.link.opening import open_session
from streamdq.link.session import Op, run
from streamdq.operations.attempts.claimed import ClaimedJob, held_in
from streamdq.operations.attempts.ends import AttemptResult, DeadReason, End, ends_together, send_ends
from streamdq.operations.checks import audit
from streamdq.operations.dead_letters import of_group
from streamdq.operations.jobs import enqueue_many
from streamdq.operations.topics import configure
from streamdq.store.batches import MAX_BYTES
from streamdq.store.redis_store import RedisStore

from .figures import Figure
from .harness import BATCH, NAMESPACE, Bench
from .server import RedisServer

T = TypeVar("T")
_BOUND_MS = 5.0
_ROUNDS = 5
_LARGE = "x" * 250_000
_TOPIC = "calls"
_TTR_S = 0.2

# As many bytes as one call may carry, put into a hash and read back; as many jobs, put into a hash and a stream.
_BYTES = "for i = 1, 2 do redis.call('HSET', KEYS[1], i, ARGV[i]) end return #redis.call('HMGET', KEYS[1], 1, 2)"
_JOBS = """for i = 1, 500 do
  redis.call('HSET', KEYS[1], i, ARGV[1])
  redis.call('XADD', KEYS[2], '*', 'j', i)
end"""


@dataclass(slots=True)
class _Case:
    """One round starts with a new topic, and counts from the end of ``prepare``."""

    what: str
    groups: int
    prepare: Callable[[_Redis], None]
    measured: Callable[[_Redis], None]


class _Timed(Link):
    """Records how long Redis took for each script call, in ms, after it has got the server."""

    server: RedisServer | None = None

    def watch(self, server: RedisServer | None) -> None:
        self.server, self.took_ms = server, list[float]()

    def send(self, commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        if self.server is None:
            return super().send(commands, timeout_s, blocking)
        calls, us = self.server.script_calls()
        replies = super().send(commands, timeout_s, blocking)
        calls_after, us_after = self.server.script_calls()
        if calls_after > calls:
            self.took_ms.append((us_after - us) / 1000)
        return replies


class _Redis:
    """A topic with its queue and consumers."""

    def __init__(self, server: RedisServer, groups: int) -> None:
        self.server = server
        server.empty()
        self.link, session = open_session(server.url, NAMESPACE, None, None, _Timed)
        self.store = RedisStore(session)
        self.groups = [f"group-{i:02}" for i in range(groups)]
        self.run(configure.configure(self.store, _TOPIC, groups=self.groups))
        self.shard = session.keys.shard(_TOPIC, 0)
        self.consumer = session.consumer
        self.claimed: dict[str, list[ClaimedJob]] = {}

    def close(self) -> None:
        self.link.close()

    def run(self, op: Op[T]) -> T:
        return run(self.link, op)

    def bare(self, script: str, *values: str) -> None:
        self.link.send([Command("bare", ("EVAL", script, 2, "bare", "bare:stream", *values))], 10.0)

    def fill(self, count: int, body: str = "small", prefix: str = "job") -> None:
        jobs = [NewJob(body, id=f"{prefix}-{i}") for i in range(count)]
        self.run(enqueue_many.enqueue_many(self.store, _TOPIC, jobs))

    def claim(self, group: str, count: int = MAX_CLAIM) -> list[ClaimedJob]:
        scripts, asked = self.store.scripts, time.monotonic()
        claimed = self.run(scripts.claim(self.shard, group, self.consumer, count, 60_000))
        return held_in(self.shard, group, claimed, asked)

    def claim_all(self, group: str) -> None:
        held = self.claimed[group] = []
        while found := self.claim(group):
            held += found

    def end_all(self, group: str, outcome: AttemptResult) -> None:
        """Ends all claims, as a worker does."""
        reason = DeadReason.EXHAUSTED if outcome is AttemptResult.DEAD else ""
        ends = [End(held, outcome, reason and "Oops: no", reason=reason) for held in self.claimed.pop(group, [])]
        groups = len(self.groups)
        while ends:
            batch = ends_together(ends, groups)
            run(self.link, send_ends(self.store.scripts, self.shard, group, self.consumer, batch))
            del ends[: len(batch)]

    def bury(self, count: int, body: str = "small") -> None:
        """Buries jobs in the last group; the other groups have ended them."""
        for start in range(0, count, BATCH):
            self.fill(min(BATCH, count - start), body, f"dead-{start}")
            for group in self.groups:
                self.claim_all(group)
                last = group == self.groups[-1]
                self.end_all(group, AttemptResult.DEAD if last else AttemptResult.DONE)


def _through_but_last(redis: _Redis) -> None:
    redis.fill(MAX_CLAIM)
    for group in redis.groups[:-1]:
        redis.claim_all(group)
        redis.end_all(group, AttemptResult.DONE)
    redis.claim_all(redis.groups[-1])


def _finish_last(redis: _Redis) -> None:
    redis.end_all(redis.groups[-1], AttemptResult.DONE)


def _drain(redis: _Redis) -> None:
    while redis.claim(redis.groups[0]):
        pass


def _leave(redis: _Redis) -> None:
    redis.run(configure.configure(redis.store, _TOPIC, groups=redis.groups[:-1]))


def _nothing(redis: _Redis) -> None:
    pass


def _fill_large(redis: _Redis) -> None:
    redis.fill(BATCH, _LARGE)


def _bury_large(redis: _Redis) -> None:
    redis.bury(BATCH, _LARGE)


def _claim_large(redis: _Redis) -> None:
    _fill_large(redis)
    redis.claim_all(redis.groups[0])


def _let_ttr_pass(redis: _Redis) -> None:
    redis.run(configure.configure(redis.store, _TOPIC, ttr=_TTR_S))
    _claim_large(redis)
    time.sleep(2 * _TTR_S)


def _claim_and_raise_ttr(redis: _Redis) -> None:
    redis.fill(BATCH)
    redis.claim_all(redis.groups[0])
    redis.run(configure.configure(redis.store, _TOPIC, ttr="1h"))


def _look_for_late(redis: _Redis) -> int:
    """Takes over claims, like the mover; returns how many."""
    topic, scripts = redis.store.topics.settings_of(_TOPIC), redis.store.scripts
    cursors, taken, more = (b"0-0", b"0-0"), 0, 1
    while more:
        reply = redis.run(scripts.reclaim(redis.shard, redis.groups[0], topic, 100, cursors, 0))
        cursors, taken, more = (reply.cursor, reply.own_cursor), taken + reply.reclaimed, reply.more
    return taken


def _look_through(redis: _Redis) -> None:
    if _look_for_late(redis):
        raise RuntimeError("something was late")


def _count(done: int) -> None:
    if not done:
        raise RuntimeError("nothing was done")


def _kick(redis: _Redis) -> None:
    _count(redis.run(of_group.kick(redis.store, _TOPIC, group=redis.groups[-1])))


def _purge(redis: _Redis) -> None:
    _count(redis.run(of_group.purge(redis.store, _TOPIC, group=redis.groups[-1], all=True)))


def _audit(redis: _Redis) -> None:
    if not redis.run(audit.audit(redis.store, _TOPIC)).balanced:
        raise RuntimeError("unbalanced")


def _replace(redis: _Redis) -> None:
    large = [NewJob(_LARGE, id=f"job-{i}") for i in range(BATCH)]
    _count(redis.run(enqueue_many.enqueue_many(redis.store, _TOPIC, large, on_conflict="replace")).created)


def _bare_bytes(redis: _Redis) -> None:
    for _ in range(BATCH // 2):
        redis.bare(_BYTES, *["x" * (MAX_BYTES // 2)] * 2)


def _bare_jobs(redis: _Redis) -> None:
    for _ in range(20):
        redis.bare(_JOBS, "x" * 200)


def _large_cases() -> list[_Case]:
    label = f"of {len(_LARGE) // 1000} KB each"
    return [
        _Case(f"enqueue_many of {BATCH}, {label}", 1, _nothing, _fill_large),
        _Case(f"enqueue_many of {BATCH} whose ids are taken, {label}", 1, _fill_large, lambda r: r.fill(BATCH)),
        _Case(f"replace of {BATCH}, {label}", 1, _fill_large, _replace),
        _Case(f"claim of {BATCH}, {label}", 1, _fill_large, _drain),
        _Case(f"finish of {BATCH}, {label}", 1, _claim_large, _finish_last),
        _Case(f"take-over of {BATCH}, {label}", 1, _let_ttr_pass, lambda r: _count(_look_for_late(r))),
        _Case(f"kick of {BATCH}, {label}", 1, _bury_large, _kick),
        _Case(f"purge of {BATCH}, {label}", 1, _bury_large, _purge),
        _Case(f"audit with {BATCH} dead, {label}", 1, _bury_large, _audit),
    ]


def _dead_cases(dead: int, groups: int) -> list[_Case]:
    label = f"{dead} dead, {groups} groups"

    def bury(redis: _Redis) -> None:
        redis.bury(dead)

    calls = ((f"kick of {label}", _kick), (f"purge of {label}", _purge), (f"audit with {label}", _audit))
    return [_Case(what, groups, bury, measured) for what, measured in calls]


def _many_cases(bench: Bench) -> list[_Case]:
    return [
        *[_Case(f"finish of {MAX_CLAIM} by the last of {n} groups", n, _through_but_last, _finish_last)
          for n in (1, 5, 10, 50)],
        *[case for n in (1, 10, 50) for case in _dead_cases(bench.jobs(5_000) if n == 1 else BATCH, n)],
        *[_Case(f"a group leaves, {BATCH} jobs wait for it, {n} groups", n, lambda r: r.bury(BATCH), _leave)
          for n in (2, 50)],
        _Case(f"a look through {BATCH} claims when the TTR was raised", 1, _claim_and_raise_ttr, _look_through),
    ]  # fmt: skip


def longest_ms(rounds: list[list[float]]) -> float:
    """The longest of the calls, where each counts with its shortest time over all rounds. If rounds differ, all
    count.
    """
    if len({len(calls) for calls in rounds}) > 1:
        return min(max(calls) for calls in rounds)
    return max(min(calls[i] for calls in rounds) for i in range(len(rounds[0])))


def _measured(server: RedisServer, case: _Case, rounds: int) -> tuple[float, dict[str, Any]]:
    """The longest call. The first round does not count: it sends scripts that Redis has not loaded yet."""
    took_ms, took_s = [], []
    for number in range(rounds + 1):
        redis = _Redis(server, case.groups)
        case.prepare(redis)
        redis.link.watch(server)
        began = time.perf_counter()
        case.measured(redis)
        if number > 0:
            took_s.append(time.perf_counter() - began)
            took_ms.append(redis.link.took_ms)
        redis.close()
    return longest_ms(took_ms), {"calls": [len(calls) for calls in took_ms], "longest_ms": list(map(max, took_ms)),
                                  "took_s": took_s}  # fmt: skip


def calls(bench: Bench) -> list[Figure]:
    """The longest script call for large bodies, many groups, many dead letters and claims to take over."""
    figures = []
    rounds = bench.rounds(_ROUNDS)
    with bench.server() as server:
        for bare, floor_is, cases in (
            (_bare_bytes, f"HSET and HMGET of {MAX_BYTES // 1024} KiB", _large_cases()),
            (_bare_jobs, f"{BATCH} HSET and XADD", _many_cases(bench)),
        ):
            floor_ms, _ = _measured(server, _Case(floor_is, 1, _nothing, bare), rounds)
            for case in cases:
                longest_ms, raw = _measured(server, case, rounds)
                figures.append(
                    Figure("calls", case.what, longest_ms, "ms", floor_ms, floor_is, at_most=_BOUND_MS, raw=raw)
                )
    return figures
