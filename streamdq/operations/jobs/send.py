"""Sends encoded jobs to their shards: one call per shard, or more if the jobs are large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...config import MAX_BATCH, TopicSettings
from ...job.uniqueness import NO_RULE, OnConflict
from ...keys import ShardKeys, shard_of
from ...link.session import Op
from ...store.batches import MAX_BYTES, REPLACED_BYTES, most_jobs, parts
from ...store.jobs.records import Encoded
from ...store.redis_store import RedisStore
from ...store.replies import Enqueued
from ...store.scripts import Scripts
from ...store.topics.changes import expect_keys
from ...store.topics.topics import changing
from .get import REPAIRS
from .previous_shards import PreviousShardReply, put_there


class Sent(NamedTuple):
    """The replies to jobs that were sent together. The jobs are identified by their index."""

    now_ms: int
    taken: dict[int, bytes]  # a job whose id was taken -> the record with that id: its own if the call was a repetition
    skips_bucket: dict[int, int]  # those that are ready if due at the time of the call, by Redis's clock


def send_to_shards(
    store: RedisStore,
    topic: str,
    jobs: Sequence[Encoded],
    on_conflict: OnConflict,
    durable: str | None,
    again: bool = False,
) -> Op[Sent]:
    """Enqueues encoded jobs. ``again``: they were sent before."""
    settings = store.topics.cached(topic)
    if settings is None:
        settings = yield from store.topics.shared(topic, store.topics.ensure)
    left, now_ms = list(range(len(jobs))), 0
    taken: dict[int, bytes] = {}
    skips_bucket: dict[int, int] = {}
    for _ in range(REPAIRS):
        outdated: list[int] = []
        if settings.shards + len(settings.former) > 1:
            settings = yield from _with_keys(store, topic, settings, jobs)
        scripts = store.at(durable, settings)
        if settings.former:
            kept = yield from _in_previous_shards(scripts, store, topic, settings, jobs, left, on_conflict, again)
            left, outdated, now_ms, taken = kept.left, kept.outdated, kept.now_ms, taken | kept.taken
        calls = _by_shard(store, topic, settings, jobs, left, on_conflict)
        replies = yield from _sent_together(scripts, settings, jobs, calls, on_conflict)
        for (shard, part), first in zip(calls, replies, strict=True):
            for some, reply in (yield from _whole(scripts, shard, settings, jobs, part, on_conflict, first)):
                now_ms = reply.now_ms
                taken |= _by_job(reply.taken, some)
                skips_bucket |= dict.fromkeys(_skips_bucket(reply, jobs, some), now_ms)
                if not reply.current:
                    outdated += some[reply.looked :]
        if not outdated:
            return Sent(now_ms, taken, skips_bucket)
        left, settings, again = outdated, (yield from store.topics.shared(topic, store.topics.repair)), True
    raise changing(topic)


def _skips_bucket(reply: Enqueued, jobs: Sequence[Encoded], part: Sequence[int]) -> Sequence[int]:
    """Those of a call's jobs that are ready if they are due."""
    if reply.skips_bucket <= 0:
        return ()
    done = part[: reply.looked]
    return done if reply.skips_bucket == 1 else [i for i in done if jobs[i].key is None]


def _in_previous_shards(
    scripts: Scripts,
    store: RedisStore,
    topic: str,
    settings: TopicSettings,
    jobs: Sequence[Encoded],
    indexes: Sequence[int],
    on_conflict: OnConflict,
    again: bool,
) -> Op[PreviousShardReply]:
    """``again``: these jobs were sent before, and the reply may have been lost. If not, nobody can have used their new
    ids.
    """
    asked = [i for i in indexes if again or not jobs[i].has_new_id]
    kept = yield from put_there(
        scripts, partial(store.session.keys.shard, topic), settings, jobs, asked, _how(on_conflict)
    )
    left = {*kept.left, *set(indexes).difference(asked)}
    kept.left = [i for i in indexes if i in left]  # in their order
    return kept


def _call(
    scripts: Scripts, shard: ShardKeys, settings: TopicSettings, jobs: Sequence[Encoded], on_conflict: OnConflict
) -> Op[Enqueued]:
    """All of the jobs are unique, or none is."""
    spread, plain, has_keys = _arguments(settings, jobs)
    if _is_unique(jobs[0], on_conflict):
        args = [value for job in jobs for value in (*job[:3], job.rule or NO_RULE)]
        return scripts.enqueue_unique(shard, spread, _how(on_conflict), args)
    if on_conflict == "replace":
        return scripts.replace(shard, spread, plain)
    return scripts.enqueue(shard, spread, plain, has_keys)


def _sent_together(
    scripts: Scripts,
    settings: TopicSettings,
    jobs: Sequence[Encoded],
    calls: Sequence[tuple[ShardKeys, list[int]]],
    on_conflict: OnConflict,
) -> Op[list[Enqueued | None]]:
    """The replies to those of the calls that can travel together; None: the call is still to be made. A batch for many
    shards takes one round trip to each node then, and the servers less time to read, write and wake up.
    """
    if not _can_travel_together(scripts, jobs, calls, on_conflict):
        return [None] * len(calls)
    replies: list[Enqueued | None] = [None] * len(calls)
    # Only the first of each shard: it may leave jobs for another call, and those come before the shard's others.
    firsts: dict[int, int] = {}
    for index, (shard, _) in enumerate(calls):
        firsts.setdefault(shard.shard, index)
    for some in parts([*firsts.values()], lambda i: _bytes_of(jobs, calls[i][1]), MAX_BATCH, MAX_BYTES):
        arguments = [(calls[i][0], *_arguments(settings, [jobs[j] for j in calls[i][1]])) for i in some]
        if len(some) == 1:
            replies[some[0]] = yield from scripts.enqueue(*arguments[0])
        else:
            for i, reply in zip(some, (yield from scripts.enqueue_each(arguments)), strict=True):
                replies[i] = reply
    return replies


def _can_travel_together(
    scripts: Scripts, jobs: Sequence[Encoded], calls: Sequence[tuple[ShardKeys, list[int]]], on_conflict: OnConflict
) -> bool:
    if len(calls) == 1 or scripts.is_durable or on_conflict not in ("reject", "keep"):
        return False
    # Of jobs with the same id the first is to get it, so those with rules can't be left for later.
    return not any(_is_unique(jobs[part[0]], on_conflict) for _, part in calls)


def _bytes_of(jobs: Sequence[Encoded], indexes: Sequence[int]) -> int:
    return sum([len(jobs[i].rest) for i in indexes])


def _whole(
    scripts: Scripts,
    shard: ShardKeys,
    settings: TopicSettings,
    jobs: Sequence[Encoded],
    part: list[int],
    on_conflict: OnConflict,
    first: Enqueued | None,
) -> Op[list[tuple[list[int], Enqueued]]]:
    """Enqueues a part of the jobs: the jobs and the reply of each call. There is one as a rule, and more if large jobs
    have the ids, as a call reads a bounded number of bytes. ``first``: the reply of the first one, if it was made
    before. A reply that is not current is the last.
    """
    found: list[tuple[list[int], Enqueued]] = []
    reply = first
    while part:
        if reply is None:
            reply = yield from _call(scripts, shard, settings, [jobs[i] for i in part], on_conflict)
        found.append((part, reply))
        if not reply.current:
            break
        part, reply = part[reply.looked :], None
    return found


def _arguments(settings: TopicSettings, jobs: Sequence[Encoded]) -> tuple[str, list[Any], bool]:
    """How jobs are spread, what the script needs of each, and whether one has a key."""
    has_keys = any([job.key is not None for job in jobs])  # noqa: C419 - a generator takes twice as long
    return settings.named(by_key=has_keys), [value for job in jobs for value in job[:3]], has_keys


def _how(on_conflict: OnConflict) -> str:
    return "keep" if on_conflict == "reject" else on_conflict


def _is_unique(job: Encoded, on_conflict: OnConflict) -> bool:
    return on_conflict == "postpone" or job.rule != ""


def _with_keys(store: RedisStore, topic: str, settings: TopicSettings, jobs: Sequence[Encoded]) -> Op[TopicSettings]:
    """The settings, marked before the first job of the topic is in a shard that its id alone does not lead to."""
    if settings.leads_to_keys or all(job.key is None for job in jobs):
        return settings
    return (yield from expect_keys(store.topics, topic))


def _by_shard(
    store: RedisStore,
    topic: str,
    settings: TopicSettings,
    jobs: Sequence[Encoded],
    indexes: list[int],
    on_conflict: OnConflict,
) -> list[tuple[ShardKeys, list[int]]]:
    """The jobs of each shard, in parts that fit into one call."""
    if len(indexes) == 1:
        only = jobs[indexes[0]]
        return [(store.session.keys.shard(topic, shard_of(only.id, settings.shards, only.key)), indexes)]
    spread: dict[tuple[int, bool], list[int]] = {}
    for i in indexes:
        place = shard_of(jobs[i].id, settings.shards, jobs[i].key), _is_unique(jobs[i], on_conflict)
        spread.setdefault(place, []).append(i)
    small = most_jobs(MAX_BATCH, len(settings.groups)), REPLACED_BYTES  # other jobs' records are read as well
    return [
        (store.session.keys.shard(topic, number), part)
        for (number, is_unique), numbers in spread.items()
        for part in parts(
            numbers,
            lambda i: len(jobs[i].rest),
            *(small if is_unique or on_conflict == "replace" else (MAX_BATCH, MAX_BYTES)),
        )
    ]


def _by_job(taken: Mapping[int, bytes], part: Sequence[int]) -> dict[int, bytes]:
    """A call's ``taken``, with indexes in the whole batch instead of its ``part``."""
    return {part[i]: record for i, record in taken.items()}
