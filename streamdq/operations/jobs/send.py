"""Sends encoded jobs to their shards: one call per shard, or more if the jobs are large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from ...store.topics.changes import expect_keys, expect_priorities_of
from ...store.topics.topics import changing
from .get import REPAIRS
from .previous_shards import PreviousShardReply, put_there

_Call = tuple[ShardKeys, list[int]]  # the jobs of one call, by their indexes


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
        settings = (yield from expect_priorities_of(store.topics, topic, jobs)) or settings
        scripts, shard = store.at(durable, settings), partial(store.session.keys.shard, topic)
        batch = _Batch(shard, scripts, settings, jobs, on_conflict)
        if settings.former:
            kept = yield from batch.in_previous_shards(left, again)
            left, outdated, now_ms, taken = kept.left, kept.outdated, kept.now_ms, taken | kept.taken
        for some, reply in (yield from batch.send(left)):
            now_ms = reply.now_ms
            taken |= {some[i]: record for i, record in reply.taken.items()}
            skips_bucket |= dict.fromkeys(batch.skipping(reply, some), now_ms)
            if not reply.current:
                outdated += some[reply.looked :]
        if not outdated:
            return Sent(now_ms, taken, skips_bucket)
        left, settings, again = outdated, (yield from store.topics.shared(topic, store.topics.repair)), True
    raise changing(topic)


def _with_keys(store: RedisStore, topic: str, settings: TopicSettings, jobs: Sequence[Encoded]) -> Op[TopicSettings]:
    """The settings, marked before the first job of the topic is in a shard that its id alone does not lead to."""
    if settings.leads_to_keys or all(job.key is None for job in jobs):
        return settings
    return (yield from expect_keys(store.topics, topic))


@dataclass(frozen=True, slots=True)
class _Batch:
    """Jobs that are sent with the same settings of their topic. ``shard``: the keys of the shard of a number."""

    shard: Callable[[int], ShardKeys]
    scripts: Scripts
    settings: TopicSettings
    jobs: Sequence[Encoded]
    on_conflict: OnConflict

    def in_previous_shards(self, indexes: Sequence[int], again: bool) -> Op[PreviousShardReply]:
        """``again``: these jobs were sent before, and the reply may have been lost. If not, nobody can have used their
        new ids.
        """
        asked = [i for i in indexes if again or not self.jobs[i].has_new_id]
        kept = yield from put_there(self.scripts, self.shard, self.settings, self.jobs, asked, self._how)
        left = {*kept.left, *set(indexes).difference(asked)}
        kept.left = [i for i in indexes if i in left]  # in their order
        return kept

    def send(self, indexes: list[int]) -> Op[list[tuple[list[int], Enqueued]]]:
        """Enqueues these jobs: the jobs and the reply of each call. In each shard, a reply that is not current is the
        last.
        """
        calls = self._by_shard(indexes)
        firsts = yield from self._sent_together(calls)
        found: list[tuple[list[int], Enqueued]] = []
        for (shard, part), first in zip(calls, firsts, strict=True):
            reply = first
            while part:  # once as a rule, and more often if large jobs have the ids: a call reads a number of bytes
                if reply is None:
                    reply = yield from self._call(shard, part)
                found.append((part, reply))
                if not reply.current:
                    break
                part, reply = part[reply.looked :], None
        return found

    def skipping(self, reply: Enqueued, part: Sequence[int]) -> Sequence[int]:
        """Those of a call's jobs that are ready if they are due."""
        if reply.skips_bucket <= 0:
            return ()
        done = part[: reply.looked]
        return done if reply.skips_bucket == 1 else [i for i in done if self.jobs[i].key is None]

    def _by_shard(self, indexes: list[int]) -> list[_Call]:
        """The jobs of each shard, in parts that fit into one call."""
        jobs, shards = self.jobs, self.settings.shards
        if len(indexes) == 1:
            only = jobs[indexes[0]]
            return [(self.shard(shard_of(only.id, shards, only.key)), indexes)]
        spread: dict[tuple[int, bool], list[int]] = {}
        for i in indexes:
            place = shard_of(jobs[i].id, shards, jobs[i].key), self._is_unique(jobs[i])
            spread.setdefault(place, []).append(i)
        small = most_jobs(MAX_BATCH, len(self.settings.groups)), REPLACED_BYTES  # other jobs' records are read as well
        return [
            (self.shard(number), part)
            for (number, is_unique), numbers in spread.items()
            for part in parts(
                numbers,
                lambda i: len(jobs[i].rest),
                *(small if is_unique or self.on_conflict == "replace" else (MAX_BATCH, MAX_BYTES)),
            )
        ]

    def _sent_together(self, calls: Sequence[_Call]) -> Op[list[Enqueued | None]]:
        """The replies to those of the calls that can travel together; None: the call is still to be made. A batch for
        many shards takes one round trip to each node then, and the servers less time to read, write and wake up.
        """
        replies: list[Enqueued | None] = [None] * len(calls)
        if not self._can_travel_together(calls):
            return replies
        # Only the first of each shard: it may leave jobs for another call, and those come before the shard's others.
        firsts: dict[int, int] = {}
        for index, (shard, _) in enumerate(calls):
            firsts.setdefault(shard.shard, index)
        for some in parts([*firsts.values()], lambda i: self._bytes_of(calls[i][1]), MAX_BATCH, MAX_BYTES):
            arguments = [(calls[i][0], *self._arguments(calls[i][1])) for i in some]
            if len(some) == 1:
                replies[some[0]] = yield from self.scripts.enqueue(*arguments[0])
            else:
                for i, reply in zip(some, (yield from self.scripts.enqueue_each(arguments)), strict=True):
                    replies[i] = reply
        return replies

    def _can_travel_together(self, calls: Sequence[_Call]) -> bool:
        if len(calls) == 1 or self.scripts.is_durable or self.on_conflict not in ("reject", "keep"):
            return False
        # Of jobs with the same id the first is to get it, so those with rules can't be left for later.
        return not any(self._is_unique(self.jobs[part[0]]) for _, part in calls)

    def _call(self, shard: ShardKeys, part: Sequence[int]) -> Op[Enqueued]:
        """All of the jobs are unique, or none is."""
        spread, plain, has_keys = self._arguments(part)
        if self._is_unique(self.jobs[part[0]]):
            args = [value for i in part for value in (*self.jobs[i][:3], self.jobs[i].rule or NO_RULE)]
            return self.scripts.enqueue_unique(shard, spread, self._how, args)
        if self.on_conflict == "replace":
            return self.scripts.replace(shard, spread, plain)
        return self.scripts.enqueue(shard, spread, plain, has_keys)

    def _arguments(self, part: Sequence[int]) -> tuple[str, list[Any], bool]:
        """How jobs are spread, what the script needs of each, and whether one has a key."""
        jobs = [self.jobs[i] for i in part]
        has_keys = any([job.key is not None for job in jobs])  # noqa: C419 - a generator takes twice as long
        return self.settings.named(by_key=has_keys), [value for job in jobs for value in job[:3]], has_keys

    def _bytes_of(self, part: Sequence[int]) -> int:
        return sum([len(self.jobs[i].rest) for i in part])

    @property
    def _how(self) -> str:
        return "keep" if self.on_conflict == "reject" else self.on_conflict

    def _is_unique(self, job: Encoded) -> bool:
        return self.on_conflict == "postpone" or job.rule != ""
