"""The figures of topics and their groups, which topic somebody should look at, and the coming load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from ...job.job import FLOWS
from ...keys import ShardKeys
from ...link.session import Op, returned, together
from ...store import namespace
from ...store.counters import GroupCounter, ShardCounter
from ...store.jobs import ordered
from ...store.redis_store import RedisStore
from ...store.replies import ShardStats
from ...store.topics import group_consumers
from ...times.durations import to_ms
from ..known import topic_names

OVERDUE_MS = 5_000  # longer than the mover ever needs
LATELY_MS = 3_600_000
_COUNTERS = (
    GroupCounter.READY, GroupCounter.RUNNING, GroupCounter.DONE, GroupCounter.RETRIED, GroupCounter.SNOOZED,
    GroupCounter.RECLAIMED, GroupCounter.CANCELLED, GroupCounter.EXPIRED,
)  # fmt: skip
"""What GroupStats has by the same name."""


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
    waiting_for_key: int = 0  # of the delayed ones: those that wait for a place of their key, due or not
    retrying: int = 0  # of the delayed ones: those that wait for their next attempt


@dataclass(slots=True)
class TopicStats:
    """One topic's figures."""

    enqueued: int = 0
    jobs: int = 0  # in the pool now, dead ones included
    waiting: int = 0  # of these: those that wait for other jobs; they count as delayed in each group
    blocked: int = 0  # of the waiting ones: those that can't start, as another job has failed
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
        nodes.setdefault(store.session.last_node_of(shard.ready), []).extend((shard, group) for group in groups)
    found = yield from together(
        [
            group_consumers.live_consumers(store.session, [(shard.ready, group) for shard, group in asked])
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
    counts = yield from ordered.since(store.session, [shard.dead_of(group) for _, group, shard in asked], since_ms)
    found: dict[tuple[str, str], int] = {}
    for (name, group, _), count in zip(asked, counts, strict=True):
        if count:
            found[name, group] = found.get((name, group), 0) + count
    return found


def upcoming(
    store: RedisStore, topic: str | None = None, windows: Sequence[str] = ("1m", "10m", "1h", "1d")
) -> Op[dict[str, int]]:
    """How many jobs come due within each window from now, including overdue ones: the coming load. A job is counted
    once, whatever the number of groups. A flow's own job is not: it is due when the flow is forgotten.
    """
    ends = [to_ms(window, "window") for window in windows]
    names = [name for name in (yield from topic_names(store, topic)) if name != FLOWS]
    shards = [shard for name in names for shard in store.topics.shards(name)]
    now_ms = yield from namespace.now_ms(store.session)
    counts = yield from ordered.due_within(store.session, shards, [now_ms + ms for ms in ends])
    return dict(zip(windows, counts, strict=True))


def add_stats(topic: TopicStats, shard: ShardStats) -> None:
    """Adds one shard's figures to its topic's."""
    topic.enqueued += shard.counts.of_shard(ShardCounter.ENQUEUED)
    topic.jobs += shard.jobs
    topic.waiting += shard.counts.of_shard(ShardCounter.WAITING_FOR_JOBS)
    topic.blocked += shard.links.blocked
    topic.paused = topic.paused or shard.paused
    if shard.first_due_ms >= 0:
        topic.next_due_ms = min(topic.next_due_ms or shard.first_due_ms, shard.first_due_ms)
        topic.overdue_ms = max(topic.overdue_ms, shard.now_ms - shard.first_due_ms)
    counts, delayed = shard.counts, shard.delayed
    for name, group in topic.groups.items():
        waiting_for_key = counts.of_group(GroupCounter.WAITING_FOR_KEY, name)
        group.delayed += delayed + counts.of_group(GroupCounter.WAITING, name) + waiting_for_key
        group.waiting_for_key += waiting_for_key
        group.retrying += counts.of_group(GroupCounter.WAITING, name)
        group.dead += shard.dead_now[name]
        for counter in _COUNTERS:
            if count := counts.of_group(counter, name):
                setattr(group, counter, getattr(group, counter) + count)
