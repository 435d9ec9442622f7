"""Reads the gauges from Redis: how many jobs of each topic wait, lag, run or are missing. The number of commands grows
with shards and groups, not with jobs; they are sent together.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence

from ..config import TopicSettings
from ..errors import ServerUnavailable
from ..job.flow import FLOWS
from ..keys import ShardKeys
from ..link.session import Op
from ..metrics import declared
from ..metrics.declared import ReadMetric, TopicLabels
from ..operations.checks.audit import Balance
from ..store import namespace
from ..store.counters import GroupCounter, ShardCounter
from ..store.history.rows import dumps_in
from ..store.redis_store import RedisStore
from ..store.replies import ShardStats
from ..store.topics import shard_gauges
from ..version import __version__

_WINDOWS = {"1m": 60_000, "10m": 600_000, "1h": 3_600_000, "1d": 86_400_000}
_CHUNK = 50  # shards per call: some hundred commands, a few milliseconds of Redis's time
_COUNTERS = {
    declared.LOST: GroupCounter.LOST, declared.DONE: GroupCounter.DONE, declared.CANCELLED: GroupCounter.CANCELLED,
    declared.EXPIRED: GroupCounter.EXPIRED,
}  # fmt: skip
_BECAME = dict(zip(declared.BECAME, (ShardCounter.FIRED, ShardCounter.SKIPPED, ShardCounter.MISSED), strict=True))
_OPEN = (GroupCounter.READY, GroupCounter.RUNNING)
_LONGEST_S = 4.0
"""The time limit when Redis is slow, plus up to two calls: Prometheus waits ten seconds for a scrape."""
_PENDING = 10  # the oldest entries are not always the oldest claims: one may have been touched

Labels = tuple[str, ...]
"""The values of a metric's labels, the namespace first."""


class Reader:
    """What one process remembers between readings: the topics' labels and the counters' values. For one reading at a
    time: with two, an older reply that arrives later would look as if a counter fell.
    """

    def __init__(self, namespace: str, labels: TopicLabels) -> None:
        self.namespace = namespace
        self.labels = labels
        self._seen: dict[str, dict[tuple[ReadMetric, int, str], int]] = {}  # by topic
        self._totals: dict[ReadMetric, dict[Labels, float]] = {}

    def readings(self) -> Readings:
        """New readings, still empty."""
        return Readings(self)

    def total(self, metric: ReadMetric, labels: Labels, shard: ShardKeys, group: str, count: int) -> float:
        """The counter's total after adding the growth of one shard's part. It never falls, because Prometheus would
        take a fall for a restart from 0 and add everything again. If a shard has less than before (Redis was flushed or
        failed over, or the topic is new), its part counts on from there.
        """
        totals = self._totals.setdefault(metric, {})
        total = totals.setdefault(labels, 0.0)
        seen, part = self._seen.setdefault(shard.topic, {}), (metric, shard.shard, group)
        before = seen.get(part, 0)
        if count != before:
            seen[part] = count
            total = totals[labels] = total + max(0, count - before)
        return total

    def forget_but(self, topics: Collection[str]) -> None:
        """Forgets all other topics, which are gone. One that comes back starts at 0."""
        for topic in [topic for topic in self._seen if topic not in topics]:
            del self._seen[topic]
        for totals in self._totals.values():
            for labels in [one for one in totals if one[1] not in topics and one[1] != declared.OTHER]:
                del totals[labels]


class Readings:
    """The values read, of each metric by its labels. Values with the same labels are merged."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._of_topics: dict[str, Labels] = {}
        self.values: dict[ReadMetric, dict[Labels, float]] = {}
        self.put(declared.BUILD_INFO, 1, __version__)

    def put(self, metric: ReadMetric, value: float, *labels: str) -> None:
        """``labels``: without the namespace; the topic, if there is one, comes first."""
        values, key = self.values.setdefault(metric, {}), self._key(metric, labels)
        before = values.get(key)
        values[key] = float(value if before is None else metric.merge(before, float(value)))

    def count(self, metric: ReadMetric, shard: ShardKeys, value: int, group: str = "") -> None:
        """Adds a shard's part of a counter, with ``group`` that of a group, or of what else its last label names."""
        labels = self._key(metric, (shard.topic, group)[: len(metric.labels) - 1])
        self.values.setdefault(metric, {})[labels] = self._reader.total(metric, labels, shard, group, value)

    def of(self, metric: ReadMetric) -> Iterator[tuple[Labels, float]]:
        return iter(self.values.get(metric, {}).items())

    def _key(self, metric: ReadMetric, labels: Labels) -> Labels:
        if metric.labels[1:2] != ("topic",):
            return (self._reader.namespace, *labels)
        topic = self._of_topics.get(labels[0])
        if topic is None:
            named = self._reader.labels.of(self._reader.namespace, labels[0])
            topic = self._of_topics[labels[0]] = (self._reader.namespace, named)
        return (*topic, *labels[1:])


def read_gauges(store: RedisStore, reader: Reader) -> Op[Readings]:
    """Reads all gauges at about one moment; each shard's counters at exactly one.

    Raises:
        ServerUnavailable: no answer, or reading everything would take too long.
    """
    readings, until = reader.readings(), time.monotonic() + _LONGEST_S
    topics = yield from store.topics.refresh()
    reader.forget_but(topics)
    yield from _read_namespace(store, readings)
    for topic in sorted(topics):
        for group in topics[topic].group_names:
            readings.put(declared.TTR, topics[topic].ttr_of(group) / 1000, topic, group)
            readings.put(declared.CONSUMERS, 0, topic, group)
        readings.put(declared.PAUSED, topics[topic].paused, topic)
    shards = [
        (store.session.keys.shard(topic, number), topics[topic])
        for topic in sorted(topics)
        for number in range(topics[topic].reach)
    ]
    missing: dict[tuple[str, str], int] = {}
    alive = yield from namespace.alive(store.session)
    for start in range(0, len(shards), _CHUNK):
        if time.monotonic() > until:
            raise ServerUnavailable(
                f"Redis at {store.session.address} answers slowly: {start} of {len(shards)} shards were read"
            )
        yield from _read_shards(store, shards[start : start + _CHUNK], readings, missing, alive)
    for (topic, _), jobs in missing.items():
        readings.put(declared.IMBALANCE, jobs, topic)
    readings.put(declared.UP, 1)
    return readings


def _read_namespace(store: RedisStore, readings: Readings) -> Op[None]:
    # The connection is open by now, so the call takes just one round trip.
    skew_s, holder = yield from namespace.skew_and_mover(store.session)
    readings.put(declared.CLOCK_SKEW, skew_s)
    readings.put(declared.LEASE_HELD, holder is not None)
    readings.put(declared.LAST_MOVE, 0)


def _read_shards(
    store: RedisStore,
    shards: Sequence[tuple[ShardKeys, TopicSettings]],
    readings: Readings,
    missing: dict[tuple[str, str], int],
    alive: Collection[str],
) -> Op[None]:
    """``missing``: the shards' imbalances are added to those of their topics and groups."""
    found = yield from store.scripts.stats_of([(shard, topic.group_names) for shard, topic in shards])
    asked = []
    for (shard, topic), stats in zip(shards, found, strict=True):
        _put_stats(readings, shard, topic.group_names, stats)
        for group in topic.group_names:
            balance = Balance(shard.topic, group)
            balance.add(stats)
            missing[shard.topic, group] = missing.get((shard.topic, group), 0) + balance.imbalance
        asked.append(_asked(shard, topic, stats))
        if asked[-1].scheduled:
            for outcome, counter in _BECAME.items():
                readings.count(declared.OCCURRENCES, shard, stats.counts.of_shard(counter), outcome)
    gauges = yield from shard_gauges.gauges(store.session, asked, _PENDING, alive)
    for (shard, _), stats, one in zip(shards, found, gauges, strict=True):
        _put_gauges(readings, shard, stats, one)


def _asked(shard: ShardKeys, topic: TopicSettings, stats: ShardStats) -> shard_gauges.GaugesOf:
    """What the shard's stats leave open: a window that ends before the first job is due has none, and a group without
    open jobs has no pending entries.
    """
    scheduled, flows = topic.scheduled and shard.shard == 0, shard.topic == FLOWS
    first_ms = -1 if flows else stats.first_due_ms  # a flow's own job is due when the flow is forgotten: no attempt
    ends_ms = [end_ms for ms in _WINDOWS.values() if 0 <= first_ms <= (end_ms := stats.now_ms + ms)]
    busy = [group for group in topic.group_names if any(stats.counts.of_group(one, group) > 0 for one in _OPEN)]
    return shard_gauges.GaugesOf(shard, topic.group_names, busy, ends_ms, scheduled, flows)


def _put_gauges(readings: Readings, shard: ShardKeys, stats: ShardStats, gauges: shard_gauges.ShardGauges) -> None:
    empty = [0] * (len(_WINDOWS) - len(gauges.due_within))
    for window, due in zip(_WINDOWS, [*empty, *gauges.due_within], strict=True):
        readings.put(declared.DUE_WITHIN, due, shard.topic, window)
    if gauges.schedules is not None:
        _put_schedules(readings, shard.topic, stats, gauges.schedules)
    if shard.topic == FLOWS:
        _put_flows(readings, stats, gauges.flow_look_ms)
    for group, one in gauges.groups.items():
        readings.put(declared.CONSUMERS, one.consumers, shard.topic, group)
        readings.put(declared.OLDEST_PENDING, one.oldest_ms / 1000, shard.topic, group)


def _put_flows(readings: Readings, stats: ShardStats, look_ms: int | None) -> None:
    """A flow's own job waits for all of its jobs, and is then due when the flow is forgotten."""
    is_open = stats.counts.of_shard(ShardCounter.WAITING_FOR_JOBS)
    for state, count in (("open", is_open), ("ended", max(0, stats.waiting - is_open))):
        readings.put(declared.FLOWS, count, state)
    overdue_ms = 0 if look_ms is None else max(0, stats.now_ms - look_ms)
    readings.put(declared.FLOWS_OVERDUE, overdue_ms / 1000)


def _put_schedules(readings: Readings, topic: str, stats: ShardStats, counts: shard_gauges.ScheduleCounts) -> None:
    paused = stats.counts.of_shard(ShardCounter.PAUSED)
    ended = max(0, counts.total - counts.active - paused)  # two calls: a schedule may have changed between them
    for state, count in (("active", counts.active), ("paused", paused), ("ended", ended)):
        readings.put(declared.SCHEDULES, count, topic, state)
    overdue_ms = 0 if counts.look_ms is None else max(0, stats.now_ms - counts.look_ms)
    readings.put(declared.SCHEDULES_OVERDUE, overdue_ms / 1000, topic)


def _put_stats(readings: Readings, shard: ShardKeys, groups: Sequence[str], stats: ShardStats) -> None:
    topic, counts = shard.topic, stats.counts
    overdue_ms = 0 if stats.first_due_ms < 0 else max(0, stats.now_ms - stats.first_due_ms)
    readings.put(declared.OLDEST_OVERDUE, overdue_ms / 1000, topic)
    readings.put(declared.LAST_MOVE, stats.moved_at_ms / 1000)
    written = counts.of_shard(ShardCounter.HISTORY)
    undumped = written - min((dump.written for dump in dumps_in(stats.dumps)), default=written)
    readings.put(declared.UNDUMPED, max(0, undumped), topic)
    readings.put(declared.JOBS, stats.waiting, topic, "delayed")
    readings.put(declared.WAITING_FOR_JOBS, counts.of_shard(ShardCounter.WAITING_FOR_JOBS), topic)
    readings.put(declared.BLOCKED, stats.links.blocked, topic)
    readings.put(declared.ENDINGS_UNDELIVERED, stats.links.undelivered, topic)
    late_ms = stats.now_ms - stats.links.undelivered_since_ms if stats.links.undelivered else 0
    readings.put(declared.ENDINGS_OLDEST, late_ms / 1000, topic)
    readings.count(declared.ENQUEUED, shard, counts.of_shard(ShardCounter.ENQUEUED))
    for group in groups:
        ready, running = (counts.of_group(counter, group) for counter in (GroupCounter.READY, GroupCounter.RUNNING))
        readings.put(declared.JOBS, ready, topic, "ready")
        readings.put(declared.JOBS, running, topic, "running")
        readings.put(declared.JOBS, stats.dead_now[group], topic, "dead")
        readings.put(declared.LAG, ready, topic, group)
        waiting_for_key = counts.of_group(GroupCounter.WAITING_FOR_KEY, group)
        readings.put(declared.JOBS, waiting_for_key, topic, "delayed")
        readings.put(declared.WAITING_FOR_KEY, waiting_for_key, topic, group)
        for metric, counter in _COUNTERS.items():
            readings.count(metric, shard, counts.of_group(counter, group), group)
