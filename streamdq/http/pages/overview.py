"""Data for the pages about topics: figures, recent lateness, and the coming load. The number of commands grows with the
shards shown, not with jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add

from ...config import TopicSettings
from ...errors import ServerUnavailable
from ...job.job import FLOWS
from ...keys import ShardKeys
from ...link.session import Op
from ...operations.topics.stats import GroupStats, Stats, TopicStats, add_stats, died_lately
from ...store import namespace, stream_entries
from ...store.counters import GroupCounter
from ...store.entries import ms_of
from ...store.history import history_reads
from ...store.history.rows import known_row_in
from ...store.jobs import ordered
from ...store.redis_store import RedisStore
from ...store.replies import ShardStats
from ...store.topics import group_consumers

MAX_SHARDS = 100
_ROWS = 200
_FEWEST_ROWS = 10
LATE_MS, VERY_LATE_MS = 100, 5_000


@dataclass(frozen=True, slots=True)
class RecentLateness:
    """Lateness of the last attempts (start minus due), in milliseconds."""

    count: int
    p50_ms: int
    p99_ms: int
    most_ms: int

    @property
    def grade(self) -> str:
        return grade_of(self.p99_ms)


def grade_of(late_ms: int) -> str:
    """How bad it is to be so late: good, fair or bad."""
    return "bad" if late_ms >= VERY_LATE_MS else "fair" if late_ms >= LATE_MS else "good"


@dataclass(slots=True)
class GroupLateness:
    """How late a group is: its last attempts, and the job that has been ready for longest and still waits for one.
    ``unserved``: nobody is there to run it. ``grade`` is '' if nothing is known.
    """

    group: str
    recent: RecentLateness | None = None
    waits_ms: int = 0
    unserved: bool = False

    @property
    def grade(self) -> str:
        if self.unserved:
            return "bad"
        known = [grade_of(self.waits_ms)] if self.waits_ms else []
        known += [self.recent.grade] if self.recent else []
        return max(known, key=_GRADES.index, default="")

    @property
    def worst(self) -> tuple[int, int]:
        return _GRADES.index(self.grade), max(self.waits_ms, self.recent.p99_ms if self.recent else 0)


_GRADES = ("", "good", "fair", "bad")


@dataclass(slots=True)
class TopicSummary:
    """One topic's figures. ``late``: of each group."""

    name: str
    settings: TopicSettings
    stats: TopicStats
    now_ms: int = 0
    late: dict[str, GroupLateness] = field(default_factory=dict)
    lost: frozenset[ShardKeys] = frozenset()  # shards that can't be reached
    died: dict[str, int] = field(default_factory=dict)  # within the last hour, by group

    @property
    def latest(self) -> GroupLateness | None:
        """Of the group that is latest."""
        return max(self.late.values(), key=lambda one: one.worst, default=None)

    def total(self, figure: str) -> int:
        """The sum over all groups."""
        return sum(getattr(group, figure) for group in self.stats.groups.values())


@dataclass(slots=True)
class Load:
    """How many jobs come due, in equal steps from now. ``overdue``: already due, not moved yet. ``planned``: how
    many jobs schedules will add; ``planned_whole``: these are all.
    """

    now_ms: int
    step_ms: int
    counts: list[int]
    planned: list[int]
    overdue: int = 0
    later: int = 0
    planned_whole: bool = True

    @property
    def most(self) -> int:
        return max(map(add, self.counts, self.planned), default=0)


HORIZONS: dict[str, tuple[int, int]] = {  # name: how many steps, of how many ms
    "10m": (20, 30_000),
    "1h": (30, 120_000),
    "1d": (24, 3_600_000),
    "1w": (28, 21_600_000),
}


Position = tuple[int, str]
"""Where a topic is in the list of all: its concern and its name."""


def page_of(
    order: Sequence[Position], known: Mapping[str, TopicSettings], asked: str, after: str
) -> tuple[list[str], str]:
    """Names of topics that contain ``asked``, from the place ``after`` on, in the order given; and the place to go on
    from, "" at the end. At least one topic, otherwise no more shards than a page may read.
    """
    names: list[str] = []
    shards, last, begin = 0, "", _position_in(after)
    for place in order:
        concern, name = place
        if place <= begin or asked.lower() not in name.lower():
            continue
        shards += known[name].shards
        if names and shards > MAX_SHARDS:
            return names, last
        names.append(name)
        last = f"{int(concern)}/{name}"
    return names, ""


def _position_in(text: str) -> Position:
    concern, _, name = text.partition("/")
    return (int(concern), name) if concern.isdecimal() and concern.isascii() else (-1, "")


def _shards(store: RedisStore, topics: Sequence[str]) -> list[tuple[ShardKeys, TopicSettings]]:
    return [(shard, store.topics.settings_of(name)) for name in topics for shard in store.topics.all_shards(name)]


def summary(store: RedisStore, topics: Sequence[str]) -> Op[list[TopicSummary]]:
    """Each topic's figures and lateness. The topics must be known. Consumers are counted for groups with ready jobs
    alone.
    """
    found = {name: _new(name, store.topics.settings_of(name)) for name in topics}
    shards = _shards(store, topics)
    with_ready: list[tuple[ShardKeys, str]] = []

    def take(shard: ShardKeys, stats: ShardStats) -> None:
        topic = found[shard.topic]
        add_stats(topic.stats, stats)
        topic.now_ms = stats.now_ms
        with_ready.extend(
            (shard, group) for group in topic.late if stats.counts.of_group(GroupCounter.READY, group) > 0
        )

    lost = yield from store.scripts.stats_reached([(k, settings.group_names) for k, settings in shards], take)
    for shard in lost:
        topic = found[shard.topic]
        topic.lost |= {shard}
        topic.stats.unreachable += 1
    yield from _look_at_history(store, found, [(shard, settings) for shard, settings in shards if shard not in lost])
    yield from _look_at_ready(store, found, with_ready)
    return list(found.values())


def _new(name: str, settings: TopicSettings) -> TopicSummary:
    groups = settings.group_names
    stats = TopicStats(shards=settings.shards, groups={group: GroupStats() for group in groups})
    return TopicSummary(name, settings, stats, late={group: GroupLateness(group) for group in groups})


def _look_at_history(
    store: RedisStore, found: Mapping[str, TopicSummary], shards: Sequence[tuple[ShardKeys, TopicSettings]]
) -> Op[None]:
    """How late the last attempts were, and how many jobs died lately."""
    for (name, group), late in (yield from _samples(store, shards)).items():
        if group in found[name].late:
            found[name].late[group].recent = lateness_of(late)
    died = yield from died_lately(store, {name: one.stats for name, one in found.items()})
    for (name, group), count in died.items():
        found[name].died[group] = count


def _count_consumers(
    store: RedisStore, found: Mapping[str, TopicSummary], places: Sequence[tuple[ShardKeys, str]]
) -> Op[None]:
    """Of the groups that have these places, by the shard with the most."""
    asked = list(places)
    counts = yield from group_consumers.live_consumers(store.session, [(shard.ready, group) for shard, group in asked])
    for (shard, group), count in zip(asked, counts, strict=True):
        figures = found[shard.topic].stats.groups[group]
        figures.consumers = max(figures.consumers, count)


def _look_at_ready(
    store: RedisStore, found: Mapping[str, TopicSummary], places: Sequence[tuple[ShardKeys, str]]
) -> Op[None]:
    """How long the first ready jobs have waited, and for whom."""
    if not places:
        return
    yield from _count_consumers(store, found, places)
    streams = [(shard, group, name) for shard, group in places for name in (shard.ready, shard.ready_of(group))]
    first = yield from stream_entries.first_unread(store.session, [(name, group) for _, group, name in streams])
    for (shard, group, _), entry in zip(streams, first, strict=True):
        one = found[shard.topic]
        if entry and not one.stats.paused:
            late = one.late[group]
            late.waits_ms = max(late.waits_ms, one.now_ms - ms_of(entry))
            late.unserved = not one.stats.groups[group].consumers


def consumers(store: RedisStore, one: TopicSummary, group: str) -> Op[int]:
    """How many consumers the group has, by the shard with the most."""
    shards = [shard for shard in store.topics.shards(one.name) if shard not in one.lost]
    return max(
        (yield from group_consumers.live_consumers(store.session, [(shard.ready, group) for shard in shards])),
        default=0,
    )


def stands_still(store: RedisStore, coming: Load) -> Op[bool]:
    """Whether jobs are due and no mover is active."""
    if not coming.overdue:
        return False
    try:
        return (yield from namespace.mover_at_work(store.session)) is None
    except ServerUnavailable:
        if not store.session.is_cluster:
            raise
        return False  # the node that has the lease is lost


def _samples(
    store: RedisStore, shards: Sequence[tuple[ShardKeys, TopicSettings]]
) -> Op[dict[tuple[str, str], list[int]]]:
    """The lateness of the last attempts of each topic and group."""
    asked = [(shard, max(_FEWEST_ROWS, _ROWS // settings.shards)) for shard, settings in shards]
    late: dict[tuple[str, str], list[int]] = {}
    for (shard, _), entries in zip(asked, (yield from history_reads.newest_rows(store.session, asked)), strict=True):
        for entry in entries:
            row = known_row_in(shard.topic, shard.shard, entry.id, entry.value)
            if row and row.started_ms is not None and row.due_ms is not None:
                late.setdefault((shard.topic, row.group), []).append(max(0, row.started_ms - row.due_ms))
    return late


def lateness_of(late: Sequence[int]) -> RecentLateness | None:
    """The lateness of these attempts; None if there were none."""
    if not late:
        return None
    ranked = sorted(late)
    return RecentLateness(len(ranked), _at(ranked, 50), _at(ranked, 99), ranked[-1])


def _at(ranked: Sequence[int], percent: int) -> int:
    """The smallest value that ``percent`` of all do not exceed."""
    return ranked[-(-len(ranked) * percent // 100) - 1]


def coming_load(store: RedisStore, topics: Sequence[TopicSummary], horizon: str, now_ms: int) -> Op[Load]:
    """The coming load of all topics together, without what is planned. It counts for each step and reads no job. A
    flow's own job is due when the flow is forgotten: that is no load.
    """
    steps, step_ms = HORIZONS[horizon]
    ends = [now_ms + step_ms * i for i in range(steps + 1)]
    served = [one for one in topics if one.name != FLOWS]
    shards = [shard for one in served for shard in store.topics.all_shards(one.name) if shard not in one.lost]
    found = Load(now_ms, step_ms, [0] * steps, [0] * steps)
    for overdue, *counts, later in (yield from ordered.due_between(store.session, shards, ends)):
        found.overdue += overdue
        found.later += later
        found.counts = [a + b for a, b in zip(found.counts, counts, strict=True)]
    return found


def totals(found: Iterable[TopicStats]) -> Stats:
    """Totals over these topics."""
    groups = [group for one in found for group in one.groups.values()]
    delayed, ready, running, dead = (
        sum(getattr(group, figure) for group in groups) for figure in ("delayed", "ready", "running", "dead")
    )
    return Stats(delayed, ready, running, dead)
