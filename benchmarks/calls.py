"""The longest call of Redis for whatever may be large: bodies, batches, groups, dead letters.

What is measured is Redis's own time for a call, by its SLOWLOG. On a machine with other work the least of several
rounds is the honest figure: nothing makes a call shorter than it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from streamdq import NewJob, Queue
from streamdq.claims import DeadReason, End, Held, Outcome, ends_together, held_of, settle
from streamdq.config import MAX_CLAIM
from streamdq.connection import Link
from streamdq.operations import Operations
from streamdq.session import Op, open_session, run

from .figures import Figure
from .harness import BATCH, NAMESPACE, Bench
from .server import RedisServer

_BOUND_MS = 5.0
_ROUNDS = 5
_LARGE = "x" * 250_000
_TOPIC = "calls"


@dataclass(slots=True)
class _Case:
    """One round begins with a topic of its own and is counted from after ``prepare``."""

    what: str
    groups: int
    prepare: Callable[[_Redis], None]
    measured: Callable[[_Redis], None]


class _Redis:
    """A topic and who works with it."""

    def __init__(self, server: RedisServer, groups: int) -> None:
        self.server = server
        server.empty()
        self.queue = Queue(server.url, NAMESPACE)
        self.groups = [f"group-{i:02}" for i in range(groups)]
        self.queue.configure(_TOPIC, groups=self.groups)
        self._link, session = open_session(server.url, NAMESPACE, None, None, Link)
        self.operations = Operations(session)
        run(self._link, self.operations.topics.refresh())
        self.shard = session.keys.shard(_TOPIC, 0)
        self.consumer = session.consumer
        self.claimed: dict[str, list[Held]] = {}

    def close(self) -> None:
        self._link.close()
        self.queue.close()

    def run(self, op: Op[object]) -> None:
        run(self._link, op)

    def fill(self, count: int, body: str = "small", prefix: str = "job") -> None:
        self.queue.enqueue_many(_TOPIC, [NewJob(body, id=f"{prefix}-{i}") for i in range(count)])

    def claim(self, group: str, count: int = MAX_CLAIM) -> list[Held]:
        scripts, asked = self.operations.scripts, time.monotonic()
        claimed = run(self._link, scripts.claim(self.shard, group, self.consumer, count, 60_000))
        return [held_of(self.shard, group, row, claimed, asked) for row in claimed.rows]

    def claim_all(self, group: str) -> None:
        held = self.claimed[group] = []
        while found := self.claim(group):
            held += found

    def end_all(self, group: str, outcome: Outcome) -> None:
        """As a worker's outbox does."""
        reason = DeadReason.EXHAUSTED if outcome is Outcome.DEAD else ""
        ends = [End(held, outcome, reason and "Oops: no", reason=reason) for held in self.claimed.pop(group, [])]
        groups = len(self.groups)
        while ends:
            batch = ends_together(ends, groups)
            run(self._link, settle(self.operations.scripts, self.shard, group, self.consumer, batch))
            del ends[: len(batch)]

    def bury(self, count: int, body: str = "small") -> None:
        """Dead in the last group; the others are through."""
        for start in range(0, count, BATCH):
            self.fill(min(BATCH, count - start), body, f"dead-{start}")
            for group in self.groups:
                self.claim_all(group)
                last = group == self.groups[-1]
                self.end_all(group, Outcome.DEAD if last else Outcome.DONE)


def _through_but_last(redis: _Redis) -> None:
    redis.fill(MAX_CLAIM)
    for group in redis.groups[:-1]:
        redis.claim_all(group)
        redis.end_all(group, Outcome.DONE)
    redis.claim_all(redis.groups[-1])


def _finish_last(redis: _Redis) -> None:
    redis.end_all(redis.groups[-1], Outcome.DONE)


def _drain(redis: _Redis) -> None:
    while redis.claim(redis.groups[0]):
        pass


def _leave(redis: _Redis) -> None:
    redis.queue.configure(_TOPIC, groups=redis.groups[:-1])


def _nothing(redis: _Redis) -> None:
    pass


def _cases(bench: Bench) -> list[_Case]:
    large = f"of {len(_LARGE) // 1000} KB each"
    return [
        *[_Case(f"finish of {MAX_CLAIM} by the last of {n} groups", n, _through_but_last, _finish_last)
          for n in (1, 5, 10, 50)],
        _Case(f"enqueue_many of {BATCH}, {large}", 1, _nothing, _fill_large),
        _Case(f"enqueue_many of {BATCH} whose ids are taken, {large}", 1, _fill_large, lambda r: r.fill(BATCH)),
        _Case(f"replace of {BATCH}, {large}", 1, _fill_large, _replace),
        _Case(f"claim of {BATCH}, {large}", 1, _fill_large, _drain),
        _Case(f"kick of {BATCH}, {large}", 1, _bury_large, _kick),
        _Case(f"audit with {BATCH} dead, {large}", 1, _bury_large, _audit),
        *[case for groups in (1, 10, 50) for case in _dead_cases(bench.jobs(5_000) if groups == 1 else BATCH, groups)],
        *[_Case(f"a group leaves, {BATCH} jobs wait for it, {n} groups", n, lambda r: r.bury(BATCH), _leave)
          for n in (2, 50)],
    ]  # fmt: skip


def _dead_cases(dead: int, groups: int) -> list[_Case]:
    label = f"{dead} dead, {groups} groups"

    def bury(redis: _Redis) -> None:
        redis.bury(dead)

    calls = ((f"kick of {label}", _kick), (f"purge of {label}", _purge), (f"audit with {label}", _audit))
    return [_Case(what, groups, bury, measured) for what, measured in calls]


def _fill_large(redis: _Redis) -> None:
    redis.fill(BATCH, _LARGE)


def _bury_large(redis: _Redis) -> None:
    redis.bury(BATCH, _LARGE)


def _count(done: int) -> None:
    if not done:
        raise RuntimeError("nothing was done")


def _kick(redis: _Redis) -> None:
    _count(redis.queue.kick(_TOPIC, group=redis.groups[-1]))


def _purge(redis: _Redis) -> None:
    _count(redis.queue.purge(_TOPIC, redis.groups[-1]))


def _audit(redis: _Redis) -> None:
    if not redis.queue.audit(_TOPIC).balanced:
        raise RuntimeError("unbalanced")


def _replace(redis: _Redis) -> None:
    jobs = [NewJob(_LARGE, id=f"job-{i}") for i in range(BATCH)]
    _count(redis.queue.enqueue_many(_TOPIC, jobs, on_conflict="replace").created)


def calls(bench: Bench) -> list[Figure]:
    """The longest call of Redis for large bodies, many groups and many dead letters; the least of some rounds."""
    figures = []
    with bench.server() as server:
        for case in _cases(bench):
            samples, took_s, worst = [], [], ""
            for _ in range(bench.rounds(_ROUNDS)):
                redis = _Redis(server, case.groups)
                case.prepare(redis)
                server.reset_statistics()
                began = time.perf_counter()
                case.measured(redis)
                took_s.append(time.perf_counter() - began)
                found = server.slow_calls()
                samples.append(found.longest_ms)
                worst = found.command
                redis.close()
            raw = {"samples_ms": samples, "took_s": took_s, "command": worst}
            figures.append(Figure("calls", case.what, min(samples), "ms", at_most=_BOUND_MS, raw=raw))
    return figures
