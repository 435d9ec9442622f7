"""When a job is due, where that depends on Redis: quiet hours after a delay, and the best moment in a window."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from ...errors import InvalidInput
from ...job.job import NewJob
from ...link.session import Op
from ...schedules.civil import after_quiet, civil_moment_ms, quiet_hours, zone
from ...store.jobs import ordered
from ...store.namespace import now_ms
from ...store.redis_store import RedisStore
from ...times.durations import to_ms

_SLOT_MS, _MOST_SLOTS = 60_000, 60


def with_due(store: RedisStore, topic: str, new: NewJob) -> Op[NewJob]:
    """The same job, with ``at`` instead of ``delay``, ``tz``, ``quiet`` and ``window``.

    Raises:
        InvalidInput: one of them can't be read.
    """
    window_ms = 0 if new.window is None else to_ms(new.window, "window")
    if new.at is None:
        if new.tz is not None and new.quiet is None:
            raise InvalidInput("tz: pass at or quiet as well")
        due_ms = (yield from now_ms(store.session)) + (0 if new.delay is None else to_ms(new.delay))
        due_ms = civil_moment_ms(due_ms, new.tz, new.quiet)
    elif new.delay is not None:
        raise InvalidInput("pass delay or at, not both")
    else:
        due_ms = civil_moment_ms(new.at, new.tz, new.quiet)
    if window_ms:
        due_ms = yield from _quietest(store, topic, due_ms, window_ms, new)
    return replace(new, delay=None, at=due_ms, tz=None, quiet=None, window=None)


def _quietest(store: RedisStore, topic: str, due_ms: int, window_ms: int, new: NewJob) -> Op[int]:
    """Any moment of the minute in which the fewest jobs are due; the window in 60 parts, if it is longer than an hour.
    Several such minutes are equally likely, so that callers at the same time spread.
    """
    slots = min(_MOST_SLOTS, max(1, window_ms // _SLOT_MS))
    edges = [due_ms + window_ms * i // slots for i in range(slots + 1)]
    loads = yield from _loads(store, topic, edges)
    chosen = sorted(range(slots), key=lambda i: (loads[i], random.random()))  # noqa: S311 - no secret
    for i in chosen:
        moment = random.randint(edges[i], edges[i + 1])  # noqa: S311
        if new.quiet is None or new.tz is None or after_quiet(moment, quiet_hours(new.quiet), zone(new.tz)) == moment:
            return moment
    return due_ms


def _loads(store: RedisStore, topic: str, edges: Sequence[int]) -> Op[list[int]]:
    """How many jobs of the topic are due between each two of these times."""
    shards = store.topics.shards(topic)
    counts = yield from ordered.due_between(store.session, shards, edges)
    return [sum(of_shard[i] for of_shard in counts) for i in range(1, len(edges))]
