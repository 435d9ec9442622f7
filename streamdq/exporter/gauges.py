"""Reads the gauges from Redis: how many jobs of each topic wait, lag, run or are missing. The number of commands grows
with shards and groups, not with jobs; they are sent together.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence

from ..config import TopicSettings
from ..errors import ServerUnavailable
from ..keys import ShardKeys
from ..link.session import Op
from ..metrics import declared
from ..metrics.declared import ReadMetric, TopicLabels
from ..operations.audit import Balance
from ..operations.inspect import alive
from ..store import namespace, reads
from ..store.counters import GroupCounter, ShardCounter
from ..store.redis_store import RedisStore
from ..store.replies import ShardStats
from ..times.durations import to_ms
from ..version import __version__

_WINDOWS = {window: to_ms(window) for window in ("1m", "10m", "1h", "1d")}
_CHUNK = 50  # shards per call: some hundred commands, a few milliseconds of Redis's time
_COUNTERS = {
    declared.LOST: GroupCounter.LOST, declared.DONE: GroupCounter.DONE, declared.CANCELLED: GroupCounter.CANCELLED,
    declared.EXPIRED: GroupCounter.EXPIRED,
}  # fmt: skip
_BECAME = dict(zip(declared.BECAME, (ShardCounter.FIRED, ShardCounter.SKIPPED, ShardCounter.MISSED), strict=True))
_LONGEST_S = 4.0
"""The time limit when Redis is slow, plus up to two calls: Prometheus waits ten seconds for a scrape."""
_PENDING = 10  # the oldest entries are not always the oldest claims: one may have been touched

Key = tuple[ReadMetric, tuple[str, ...]]


class Reader:
    """What one process remembers between readings: the topics' labels and the counters' values. For one reading at a
    time: with two, an older reply that arrives later would look as if a counter fell.
    """

    def __init__(self, namespace: str, labels: TopicLabels) -> None:
        self.namespace = namespace
        self.labels = labels
        self._seen: dict[tuple[str, ReadMetric, int, str], int] = {}
        self._totals: dict[Key, float] = {}

    def readings(self) -> Readings:
        """New readings, still empty."""
        return Readings(self)

    def total(self, key: Key, shard: ShardKeys, group: str, count: int) -> float:
        """The counter's total after adding the growth of one shard's part. It never falls, because Prometheus would
        take a fall for a restart from 0 and add everything again. If a shard has less than before (Redis was flushed or
        failed over, or the topic is new), its part counts on from there.
        """
        part = (shard.topic, key[0], shard.shard, group)
        growth = max(0, count - self._seen.get(part, 0))
        self._seen[part] = count
        self._totals[key] = self._totals.get(key, 0.0) + growth
        return self._totals[key]

    def forget_but(self, topics: Collection[str]) -> None:
        """Forgets all other topics, which are gone. One that comes back starts at 0."""
        for part in [part for part in self._seen if part[0] not in topics]:
            del self._seen[part]
        for key in [key for key in self._totals if key[1][1] not in topics and key[1][1] != declared.OTHER]:
            del self._totals[key]


class Readings:
    """The values read: {(metric, labels): value}. Values with the same labels are merged."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.values: dict[Key, float] = {}
        self.put(declared.BUILD_INFO, 1, __version__)

    def put(self, metric: ReadMetric, value: float, *labels: str) -> None:
        """``labels``: without the namespace; the topic, if there is one, comes first."""
        key = self._key(metric, labels)
        before = self.values.get(key)
        self.values[key] = float(value if before is None else metric.merge(before, float(value)))

    def count(self, metric: ReadMetric, shard: ShardKeys, value: int, group: str = "") -> None:
        """Adds a shard's part of a counter, with ``group`` that of a group, or of what else its last label names."""
        key = self._key(metric, (shard.topic, group)[: len(metric.labels) - 1])
        self.values[key] = self._reader.total(key, shard, group, value)

    def of(self, metric: ReadMetric) -> Iterator[tuple[tuple[str, ...], float]]:
        return ((labels, value) for (other, labels), value in self.values.items() if other is metric)

    def _key(self, metric: ReadMetric, labels: tuple[str, ...]) -> Key:
        namespace = self._reader.namespace
        if metric.labels[1:2] == ("topic",):
            labels = (self._reader.labels.of(namespace, labels[0]), *labels[1:])
        return metric, (namespace, *labels)


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
    balances: dict[tuple[str, str], Balance] = {}
    for start in range(0, len(shards), _CHUNK):
        if time.monotonic() > until:
            raise ServerUnavailable(
                f"Redis at {store.session.address} answers slowly: {start} of {len(shards)} shards were read"
            )
        yield from _read_shards(store, shards[start : start + _CHUNK], readings, balances)
    for (topic, _), balance in balances.items():
        readings.put(declared.IMBALANCE, balance.imbalance, topic)
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
    balances: dict[tuple[str, str], Balance],
) -> Op[None]:
    found = yield from store.scripts.stats_of([(shard, topic.group_names) for shard, topic in shards])
    asked = []
    for (shard, topic), stats in zip(shards, found, strict=True):
        _put_stats(readings, shard, topic.group_names, stats)
        for group in topic.group_names:
            balances.setdefault((shard.topic, group), Balance(shard.topic, group)).add(stats)
        ends_ms = [stats.now_ms + ms for ms in _WINDOWS.values()]
        scheduled = topic.scheduled and shard.shard == 0
        if scheduled:
            for outcome, counter in _BECAME.items():
                readings.count(declared.OCCURRENCES, shard, stats.counts.of_shard(counter), outcome)
        asked.append(reads.GaugesOf(shard, topic.group_names, ends_ms, scheduled))
    gauges = yield from reads.gauges(store.session, asked, _PENDING)
    for (shard, _), stats, one in zip(shards, found, gauges, strict=True):
        _put_gauges(readings, shard, stats, one)


def _put_gauges(readings: Readings, shard: ShardKeys, stats: ShardStats, gauges: reads.ShardGauges) -> None:
    written = stats.counts.of_shard(ShardCounter.HISTORY)
    undumped = written - min((dump.written for dump in gauges.dumps), default=written)
    readings.put(declared.UNDUMPED, max(0, undumped), shard.topic)
    for window, due in zip(_WINDOWS, gauges.due_within, strict=True):
        readings.put(declared.DUE_WITHIN, due, shard.topic, window)
    if gauges.schedules is not None:
        _put_schedules(readings, shard.topic, stats, gauges.schedules)
    for group, one in gauges.groups.items():
        readings.put(declared.CONSUMERS, alive(one.consumers), shard.topic, group)
        readings.put(declared.OLDEST_PENDING, one.oldest_ms / 1000, shard.topic, group)


def _put_schedules(readings: Readings, topic: str, stats: ShardStats, counts: reads.ScheduleCounts) -> None:
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
    readings.put(declared.JOBS, stats.waiting, topic, "delayed")
    readings.count(declared.ENQUEUED, shard, counts.of_shard(ShardCounter.ENQUEUED))
    for group in groups:
        ready, running = (counts.of_group(counter, group) for counter in (GroupCounter.READY, GroupCounter.RUNNING))
        readings.put(declared.JOBS, ready, topic, "ready")
        readings.put(declared.JOBS, running, topic, "running")
        readings.put(declared.JOBS, stats.dead_now[group], topic, "dead")
        readings.put(declared.LAG, ready, topic, group)
        aside = counts.of_group(GroupCounter.ASIDE, group)
        readings.put(declared.JOBS, aside, topic, "delayed")
        readings.put(declared.WAITING_FOR_KEY, aside, topic, group)
        for metric, counter in _COUNTERS.items():
            readings.count(metric, shard, counts.of_group(counter, group), group)
