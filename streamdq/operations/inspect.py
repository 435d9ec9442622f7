"""Operations that only read: one job, dead letters, topics' figures, the coming load, the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

from ..config import DEFAULT_GROUP, MAX_BATCH, TopicSettings
from ..errors import UnknownGroup, UnknownTopic
from ..job.job import Decoder, GroupProgress, Job, JobState, check_group, check_id, check_key, check_topic
from ..keys import ShardKeys, homes_of
from ..link.session import Op, returned, together
from ..store import history_reads, namespace, reads
from ..store.counters import GroupCounter, ShardCounter
from ..store.history import HistoryPage, row_in
from ..store.members import id_in
from ..store.progress import Phase
from ..store.records import job_in
from ..store.redis_store import RedisStore
from ..store.replies import OUTDATED, FoundJob, FoundProgress, ShardStats
from ..store.topics import changing
from ..times.durations import to_ms
from .large_bodies import fetched

T = TypeVar("T")
REPAIRS = 5
OVERDUE_MS = 5_000  # longer than the mover ever needs
LATELY_MS = 3_600_000
_COUNTERS = (
    GroupCounter.READY, GroupCounter.RUNNING, GroupCounter.DONE, GroupCounter.RETRIED, GroupCounter.SNOOZED,
    GroupCounter.RECLAIMED, GroupCounter.CANCELLED, GroupCounter.EXPIRED,
)  # fmt: skip
"""What GroupStats has by the same name."""

_ACTIVE_FIRST = (JobState.RUNNING, JobState.READY, JobState.DELAYED, JobState.DEAD, JobState.DONE)


@dataclass(slots=True)
class GroupStats:
    """One group's figures in a topic. The first five are the current state; the others count since the topic's
    start.
    """

    delayed: int = 0  # first deliveries that are not due, the group's own retries, and those that wait for their keys
    ready: int = 0  # the lag: due, not claimed
    running: int = 0  # pending: claimed, unfinished
    dead: int = 0
    consumers: int = 0
    done: int = 0
    retried: int = 0
    snoozed: int = 0
    reclaimed: int = 0
    cancelled: int = 0
    expired: int = 0
    aside: int = 0  # of the delayed ones: those that wait for a place of their key, due or not
    retrying: int = 0  # of the delayed ones: those that wait for their next attempt


@dataclass(slots=True)
class TopicStats:
    """One topic's figures."""

    enqueued: int = 0
    jobs: int = 0  # in the pool now, dead ones included
    next_due_ms: int | None = None
    overdue_ms: int = 0  # how long the head of the bucket has been due
    paused: bool = False
    shards: int = 1
    unreachable: int = 0  # shards missing from these figures, because their Cluster node does not answer
    groups: dict[str, GroupStats] = field(default_factory=dict)


@dataclass(slots=True)
class Stats:
    """Totals over the requested topics, and the figures of each. A job counts once for each group that has it."""

    delayed: int = 0
    ready: int = 0
    running: int = 0
    dead: int = 0
    topics: dict[str, TopicStats] = field(default_factory=dict)


class Concern(IntEnum):
    """Why somebody should look at a topic; the first are the most urgent."""

    UNREACHABLE = 0
    OVERDUE = 1
    NO_CONSUMERS = 2
    DEAD = 3
    NONE = 4


def concern(topic: TopicStats) -> Concern:
    """The most urgent one."""
    groups = topic.groups.values()
    if topic.unreachable:
        return Concern.UNREACHABLE
    if topic.overdue_ms > OVERDUE_MS and not topic.paused:
        return Concern.OVERDUE
    if not topic.paused and any(group.ready and not group.consumers for group in groups):
        return Concern.NO_CONSUMERS
    return Concern.DEAD if any(group.dead for group in groups) else Concern.NONE


def by_concern(topics: Mapping[str, TopicStats]) -> list[tuple[Concern, str]]:
    """All of them: those that somebody should look at first, otherwise by name."""
    return sorted((concern(topic), name) for name, topic in topics.items())


def get(store: RedisStore, topic: str, id: str, *, key: str | None = None) -> Op[Job | None]:
    """The job with its progress in each group, or None if it has ended in all of them or never existed. ``key``: of the
    job, if it has one: then only the shard of that key is asked.
    """
    try:
        found = yield from ask(store, topic, id, lambda k, settings, _: store.scripts.get(k, id, settings), key)
    except UnknownTopic:
        return None
    job = job_of(topic, id, found, store.session.bodies)
    if job is not None:
        yield from fetched([job])
    return job


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
    """Former homes first (former_homes.py). The reply of the first that has the job; otherwise that of its home."""
    *former, home = homes_of(check_id(id), settings.shards, settings.former, key)
    for number in former:
        reply = yield from script(store.session.keys.shard(topic, number), settings, id)
        if not _is_miss(reply):
            return reply
    usual = store.session.keys.shard(topic, home)
    reply = yield from script(usual, settings, id)
    if key is None and _is_miss(reply) and (other := (yield from _elsewhere(store, usual, id))) is not None:
        reply = yield from script(other, settings, id)
    return reply


def _is_miss(reply: object) -> bool:
    """Whether a script says that it has not found the job, or had nothing to do for it."""
    return not reply.record if isinstance(reply, FoundJob) else reply == 0


def shard_with(store: RedisStore, topic: str, settings: TopicSettings, id: str) -> Op[ShardKeys]:
    """The shard that has the job: that of its id, a former home or, if it has a key, another one. If none has it, that
    of its id.
    """
    homes = homes_of(check_id(id), settings.shards, settings.former)
    *former, usual = (store.session.keys.shard(topic, number) for number in homes)
    there = (yield from reads.with_job(store.session, [*former, usual], id)) if former or settings.keyed else [usual]
    if there or not settings.keyed:
        return there[0] if there else usual
    return (yield from _elsewhere(store, usual, id)) or usual


def _elsewhere(store: RedisStore, usual: ShardKeys, id: str) -> Op[ShardKeys | None]:
    """Another shard that has a job with this id, because it has a key."""
    others = [shard for shard in store.topics.shards(usual.topic) if shard != usual]
    if not others:
        return None
    settings = yield from store.topics.latest(usual.topic)  # a process learns late that there are keys
    there = (yield from reads.with_job(store.session, others, id)) if settings.keyed else []
    return there[0] if there else None


def dead(store: RedisStore, topic: str, group: str = DEFAULT_GROUP, limit: int = 100) -> Op[list[Job]]:
    """The group's dead letters in the order of their burial, at most ``limit``; reason and error are in
    ``job.groups[group]``.

    Raises:
        UnknownTopic, UnknownGroup
    """
    yield from known_group(store, topic, group, anew=True)
    shards = store.topics.shards(topic)
    found = yield from reads.by_rank(store.session, [(shard.dead_of(group), 0) for shard in shards], limit)
    buried = [(at_ms, id, shard) for shard, letters in zip(shards, found, strict=True) for at_ms, id in letters]
    jobs: list[Job] = []
    for _, raw, shard in sorted(buried, key=lambda one: one[:2])[:limit]:
        id = id_in(raw)
        found_job = yield from store.scripts.get(shard, id)
        if (job := job_of(topic, id, found_job, store.session.bodies)) is not None:
            jobs.append(job)
    yield from fetched(jobs)
    return jobs


def known_group(store: RedisStore, topic: str, group: str, *, anew: bool = False) -> Op[TopicSettings]:
    """The topic's settings, read from the registry if ``anew`` or if the cached ones don't have the group.

    Raises:
        UnknownTopic, UnknownGroup
    """
    read = store.topics.latest if anew else store.topics.get
    settings = yield from read(check_topic(topic))
    if check_group(group) not in settings.groups:
        settings = yield from store.topics.get(topic, anew=True)
    if group not in settings.groups:
        raise UnknownGroup(
            f"topic {topic!r} has no group {group!r}, only {', '.join(settings.group_names)}; a worker of that "
            f"group or configure({topic!r}, groups=[...]) creates it"
        )
    return settings


def topic_names(store: RedisStore, topic: str | None) -> Op[list[str]]:
    """The topic's name, or the names of all topics. Reads their settings anew.

    Raises:
        UnknownTopic
    """
    if topic is None:
        return sorted((yield from store.topics.registry()))
    yield from store.topics.latest(check_topic(topic))
    return [topic]


def stats(store: RedisStore, topic: str | None = None) -> Op[Stats]:
    """Figures of one topic, or of all. Those of a shard are of one moment. Shards are read one after another, but no
    job ever goes to another shard: so none is missed or counted twice. If a Cluster has lost a node, the figures cover
    only the shards that can be reached; ``unreachable`` counts the others.
    """
    stats = Stats()
    shards = []
    for name in (yield from topic_names(store, topic)):
        settings = store.topics.settings_of(name)
        groups = {group: GroupStats() for group in settings.group_names}
        stats.topics[name] = TopicStats(shards=settings.shards, groups=groups)
        shards += [(shard, settings.group_names) for shard in store.topics.all_shards(name)]
    lost = yield from store.scripts.stats_reached(shards, lambda k, figures: add_stats(stats.topics[k.topic], figures))
    for shard in lost:
        stats.topics[shard.topic].unreachable += 1
    yield from _count_consumers(store, [shard for shard, _ in shards if shard not in lost], stats)
    for group in (group for one in stats.topics.values() for group in one.groups.values()):
        stats.delayed += group.delayed
        stats.ready += group.ready
        stats.running += group.running
        stats.dead += group.dead
    return stats


def _count_consumers(store: RedisStore, shards: Sequence[ShardKeys], stats: Stats) -> Op[None]:
    nodes: dict[str, list[tuple[ShardKeys, str]]] = {}
    for shard in shards:
        groups = stats.topics[shard.topic].groups
        nodes.setdefault(store.session.node_of(shard.ready), []).extend((shard, group) for group in groups)
    found = yield from together(
        [
            reads.live_consumers(store.session, [(shard.ready, group) for shard, group in asked])
            for asked in nodes.values()
        ]
    )
    for asked, result in zip(nodes.values(), found, strict=True):
        for (shard, group), count in zip(asked, returned(result), strict=True):
            figures = stats.topics[shard.topic].groups[group]
            figures.consumers = max(figures.consumers, count)


def died_lately(store: RedisStore, topics: Mapping[str, TopicStats]) -> Op[dict[tuple[str, str], int]]:
    """How many dead letters of each topic and group were buried within the last hour, of those with dead letters. The
    topics' settings must be known.
    """
    asked = [
        (name, group, shard)
        for name, topic in topics.items()
        if not topic.unreachable
        for group, figures in topic.groups.items()
        if figures.dead
        for shard in store.topics.all_shards(name)
    ]
    if not asked:
        return {}
    since_ms = (yield from namespace.now_ms(store.session)) - LATELY_MS
    counts = yield from reads.since(store.session, [shard.dead_of(group) for _, group, shard in asked], since_ms)
    found: dict[tuple[str, str], int] = {}
    for (name, group, _), count in zip(asked, counts, strict=True):
        if count:
            found[name, group] = found.get((name, group), 0) + count
    return found


def upcoming(
    store: RedisStore, topic: str | None = None, windows: Sequence[str] = ("1m", "10m", "1h", "1d")
) -> Op[dict[str, int]]:
    """How many jobs come due within each window from now, including overdue ones: the coming load. A job is counted
    once, whatever the number of groups.
    """
    ends = [to_ms(window, "window") for window in windows]
    shards = [shard for name in (yield from topic_names(store, topic)) for shard in store.topics.shards(name)]
    now_ms = yield from namespace.now_ms(store.session)
    counts = yield from reads.due_within(store.session, shards, [now_ms + ms for ms in ends])
    return dict(zip(windows, counts, strict=True))


def history(store: RedisStore, topic: str, after: Mapping[int, str] | None = None) -> Op[HistoryPage]:
    """The topic's history, oldest rows first, at most 500 per shard. To read the next page, pass the ``after`` of this
    one.
    """
    yield from topic_names(store, topic)
    page = HistoryPage(after=dict(after or {}))
    for number, shard in enumerate(store.topics.all_shards(topic)):
        after_entry = page.after.get(number, "")
        entries = yield from history_reads.rows_after(store.session, shard, after_entry, MAX_BATCH)
        page.rows += [row_in(topic, number, entry.decode(), fields[1].decode()) for entry, fields in entries]
        if entries:
            page.after[number] = entries[-1][0].decode()
    return page


def forget_dump(store: RedisStore, dump: str) -> Op[bool]:
    """Unregisters the dump with this id: Redis no longer keeps history for it. False: no such dump."""
    found = yield from namespace.remove_dump(store.session, dump)  # first: what is made from now on is not kept for it
    for topic in (yield from store.topics.refresh()):
        for shard in store.topics.all_shards(topic):
            held = yield from store.scripts.register_dump(shard, dump)
            found = found or held.known
    return found


def add_stats(topic: TopicStats, shard: ShardStats) -> None:
    """Adds one shard's figures to its topic's."""
    topic.enqueued += shard.counts.of_shard(ShardCounter.ENQUEUED)
    topic.jobs += shard.jobs
    topic.paused = topic.paused or shard.paused
    if shard.first_due_ms >= 0:
        topic.next_due_ms = min(topic.next_due_ms or shard.first_due_ms, shard.first_due_ms)
        topic.overdue_ms = max(topic.overdue_ms, shard.now_ms - shard.first_due_ms)
    counts, delayed = shard.counts, shard.delayed
    for name, group in topic.groups.items():
        aside = counts.of_group(GroupCounter.WAITING_FOR_KEY, name)
        group.delayed += delayed + counts.of_group(GroupCounter.WAITING, name) + aside
        group.aside += aside
        group.retrying += counts.of_group(GroupCounter.WAITING, name)
        group.dead += shard.dead_now[name]
        for counter in _COUNTERS:
            if count := counts.of_group(counter, name):
                setattr(group, counter, getattr(group, counter) + count)


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


def _progress(found: FoundProgress, job: Job, delayed: bool) -> GroupProgress:
    group, p, waits = found
    if p is None:
        return GroupProgress(group, JobState.DELAYED if delayed else JobState.READY, due_ms=job.due_ms)
    counts = (p.attempt, p.step, p.crashes, p.snoozed)
    if p.phase is Phase.RUNNING:
        return GroupProgress(
            group, JobState.RUNNING, *counts, started_ms=None if p.ahead else p.started_ms, deadline_ms=p.deadline_ms,
            consumer=p.consumer, own=bool(p.entry),
        )  # fmt: skip
    if p.phase is Phase.WAITING:
        where = JobState.DELAYED if waits else JobState.READY
        due_ms = job.due_ms if p.due_ms is None else p.due_ms
        return GroupProgress(group, where, *counts, due_ms=due_ms, error=p.error or None, own=True)
    if p.phase is Phase.DEAD:
        return GroupProgress(group, JobState.DEAD, *counts, reason=p.reason, error=p.error)
    return GroupProgress(group, JobState.DONE, *counts)
