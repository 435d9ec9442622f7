"""Looks up one job by its id, in whichever shard it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...config import TopicSettings
from ...errors import UnknownTopic
from ...job.after import NEVER_MS, PER_FIELD, Dependencies
from ...job.job import Decoder, GroupProgress, Job, JobState, check_id, check_key, check_topic
from ...keys import ShardKeys, candidate_shards
from ...link.session import Op
from ...store.jobs import linked, lookup
from ...store.jobs.progress import Phase
from ...store.jobs.records import job_in
from ...store.redis_store import RedisStore
from ...store.replies import OUTDATED, FoundJob, FoundProgress
from ...store.topics.topics import changing
from .large_bodies import fetched

T = TypeVar("T")
REPAIRS = 5
_ACTIVE_FIRST = (
    JobState.RUNNING, JobState.READY, JobState.DELAYED, JobState.WAITING, JobState.DEAD, JobState.ENDED, JobState.DONE,
)  # fmt: skip


def get(store: RedisStore, topic: str, id: str, *, key: str | None = None) -> Op[Job | None]:
    """The job with its progress in each group, or None if it has ended in all of them or never existed. ``key``: the
    job's, if it has one; then only the key's shard is read. If it waits for others, ``waits_for`` has
    the first 500 of them.
    """
    try:
        shard, found = yield from _found_at(store, topic, id, key)
    except UnknownTopic:
        return None
    job = job_of(topic, id, found, store.session.bodies)
    if job is not None:
        yield from fetched([job])
        if job.state is JobState.WAITING:
            job.waits_for = yield from linked.dependencies(store.session, shard, id, found.record, PER_FIELD)
    return job


def dependencies(store: RedisStore, topic: str, id: str, *, key: str | None = None) -> Op[Dependencies | None]:
    """All jobs that the job waits for, or waited for before it started, and how each has ended. None: it waited for
    none, or has ended itself. ``key``: as for ``get``.
    """
    try:
        shard, found = yield from _found_at(store, topic, id, key)
    except UnknownTopic:
        return None
    return (yield from linked.dependencies(store.session, shard, id, found.record, None)) if found.record else None


def _found_at(store: RedisStore, topic: str, id: str, key: str | None) -> Op[tuple[ShardKeys, FoundJob]]:
    """The shard that was asked last, and what it has.

    Raises: UnknownTopic
    """
    asked: list[ShardKeys] = []

    def script(k: ShardKeys, settings: TopicSettings, _: str) -> Op[FoundJob | None]:
        asked.append(k)
        return store.scripts.get(k, id, settings)

    found = yield from ask(store, topic, id, script, key)
    return asked[-1], found


def ask(
    store: RedisStore,
    topic: str,
    id: str,
    script: Callable[[ShardKeys, TopicSettings, str], Op[T | None]],
    key: str | None = None,
) -> Op[T]:
    """Calls a script for one job, on the shard that holds it. If our settings of the topic turn out to be out of date,
    reads them and calls the script again. ``key``: of the job; None: it is found in any case.

    Raises:
        UnknownTopic
    """
    settings = yield from store.topics.get(check_topic(topic))
    for _ in range(REPAIRS):
        reply = yield from _ask(store, topic, id, script, settings, None if key is None else check_key(key))
        if reply is not None and reply != OUTDATED:
            return reply
        renewed = yield from store.topics.renew(topic)
        if renewed is None:
            raise store.topics.unknown(topic)
        settings = renewed
    raise changing(topic)


def _ask(
    store: RedisStore,
    topic: str,
    id: str,
    script: Callable[[ShardKeys, TopicSettings, str], Op[T | None]],
    settings: TopicSettings,
    key: str | None,
) -> Op[T | None]:
    """Asks the previous shards first (previous_shards.py): the first reply that has the job; else that of its current
    shard.
    """
    *former, current = candidate_shards(check_id(id), settings.shards, settings.former, key)
    for number in former:
        reply = yield from script(store.session.keys.shard(topic, number), settings, id)
        if not _is_miss(reply):
            return reply
    usual = store.session.keys.shard(topic, current)
    reply = yield from script(usual, settings, id)
    if key is None and _is_miss(reply) and (other := (yield from _elsewhere(store, usual, id))) is not None:
        reply = yield from script(other, settings, id)
    return reply


def _is_miss(reply: object) -> bool:
    """Whether a script says that it has not found the job, or had nothing to do for it."""
    return not reply.record if isinstance(reply, FoundJob) else reply == 0


def shard_with(store: RedisStore, topic: str, settings: TopicSettings, id: str) -> Op[ShardKeys]:
    """The shard that has the job: that of its id, a previous shard or, if it has a key, another one. If none has it,
    that of its id.
    """
    candidates = candidate_shards(check_id(id), settings.shards, settings.former)
    *former, usual = (store.session.keys.shard(topic, number) for number in candidates)
    there = (
        (yield from lookup.with_job(store.session, [*former, usual], id))
        if former or settings.sharded_by_key
        else [usual]
    )
    if there or not settings.sharded_by_key:
        return there[0] if there else usual
    return (yield from _elsewhere(store, usual, id)) or usual


def _elsewhere(store: RedisStore, usual: ShardKeys, id: str) -> Op[ShardKeys | None]:
    """Another shard that has a job with this id, because it has a key."""
    others = [shard for shard in store.topics.shards(usual.topic) if shard != usual]
    if not others:
        return None
    settings = yield from store.topics.latest(usual.topic)  # a process learns late that there are keys
    there = (yield from lookup.with_job(store.session, others, id)) if settings.sharded_by_key else []
    return there[0] if there else None


def job_of(topic: str, id: str, found: FoundJob | None, decoder: Decoder | None = None) -> Job | None:
    """The job that get has found; None: there is none. ``decoder``: reads its body, if that is not plain JSON."""
    if found is None or not found.record:
        return None
    job = job_in(topic, id, found.record, decoder)
    return led(job, {one.group: _progress(one, job, found.delayed) for one in found.groups})


def led(job: Job, groups: dict[str, GroupProgress]) -> Job:
    """The job with the progress of these groups; its state is that of the most active group."""
    job.groups = groups
    leading = min(groups.values(), key=lambda progress: _ACTIVE_FIRST.index(progress.state), default=None)
    if leading is not None:
        job.state, job.attempt, job.step = leading.state, leading.attempt, leading.step
        job.snoozed = leading.snoozed
        job.due_ms = leading.due_ms or job.due_ms
    return job


def _where(delayed: bool, due_ms: int) -> JobState:
    if due_ms == NEVER_MS:
        return JobState.WAITING
    return JobState.DELAYED if delayed else JobState.READY


def _progress(found: FoundProgress, job: Job, delayed: bool) -> GroupProgress:
    group, p, waits = found
    if p is None:
        where = _where(delayed, job.due_ms)
        return GroupProgress(group, where, due_ms=job.due_ms)
    counts = (p.attempt, p.step, p.crashes, p.snoozed)
    if p.phase is Phase.RUNNING:
        return GroupProgress(
            group, JobState.RUNNING, *counts, started_ms=None if p.ahead else p.started_ms, deadline_ms=p.deadline_ms,
            consumer=p.consumer, own=bool(p.entry), aborted=p.aborted,
            progress=p.report,
        )  # fmt: skip
    if p.phase is Phase.WAITING:
        due_ms = job.due_ms if p.due_ms is None else p.due_ms
        where = _where(waits, due_ms)
        return GroupProgress(group, where, *counts, due_ms=due_ms, error=p.error or None, own=True)
    if p.phase is Phase.DEAD:
        return GroupProgress(group, JobState.DEAD, *counts, reason=p.reason, error=p.error)
    return GroupProgress(group, JobState.ENDED if p.reason else JobState.DONE, *counts, reason=p.reason or None)
