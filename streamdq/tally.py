"""Turns what happened to jobs into metrics: a batch at a time, so that it costs a worker little for each job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from . import metrics

if TYPE_CHECKING:
    import prometheus_client

    from .claims import End
    from .keys import ShardKeys


@dataclass(frozen=True, slots=True)
class _Figures:
    """One group's metrics, their labels looked up once: that costs more than counting. All are there at 0 before the
    first is counted: Prometheus sees no growth in a series that begins with it.
    """

    lateness: metrics.BatchHistogram
    wait: metrics.BatchHistogram
    duration: metrics.BatchHistogram
    time_to_finish: metrics.BatchHistogram
    body_bytes: metrics.BatchHistogram
    attempts: dict[str, prometheus_client.Counter]
    dead: dict[str, prometheus_client.Counter]


@cache
def _figures(namespace: str, topic: str, group: str) -> _Figures:
    of_group = (namespace, topic, group)
    return _Figures(
        metrics.LATENESS.labels(*of_group),
        metrics.WAIT.labels(*of_group),
        metrics.DURATION.labels(*of_group),
        metrics.TIME_TO_FINISH.labels(*of_group),
        metrics.BODY_BYTES.labels(namespace, topic),
        {outcome: metrics.ATTEMPTS.labels(*of_group, outcome) for outcome in metrics.OUTCOMES},
        {reason: metrics.DEAD.labels(*of_group, reason) for reason in metrics.REASONS},
    )


def expect(namespace: str, steps: Mapping[str, int], group: str) -> None:
    """A worker serves these topics, whose retry schedules have so many steps: their metrics are there from the
    beginning. A rate needs a 0 to start from, or what is late when a worker comes back would not be seen.
    """
    if not metrics.counting():
        return
    for name, most in steps.items():
        topic = metrics.topic_labels().of(namespace, name)
        _figures(namespace, topic, group)
        for step in range(min(most, metrics.MOST_STEPS)):
            metrics.RETRIES.labels(namespace, topic, group, metrics.step_label(step, 1))
        metrics.RECLAIMED.labels(namespace, topic, group)
        metrics.MOVED.labels(namespace, topic)


def attempts_ended(ends: Sequence[End], stale: Collection[int], now_ms: int) -> None:
    """Attempts of one topic, group and outcome ended, as Redis has confirmed at ``now_ms``, but for those at the
    indexes in ``stale``.
    """
    if not metrics.counting():
        return
    first = ends[0]
    shard, group, outcome = first.held.shard, first.held.group, first.outcome.value
    topic = metrics.topic_labels().of(shard.namespace, shard.topic)
    figures = _figures(shard.namespace, topic, group)
    if stale:
        figures.attempts["stale"].inc(len(stale))
    figures.attempts[outcome].inc(len(ends) - len(stale))
    if outcome in ("released", "snoozed"):
        return
    held = [end.held for end in ends]
    figures.lateness.observe_all([(one.started_ms - one.due_ms) / 1000 for one in held])
    # The time in a stream entry's id has 13 digits until the year 2286.
    figures.wait.observe_all([(one.started_ms - int((one.entry or one.main)[:13])) / 1000 for one in held])
    figures.duration.observe_all([one.took_s for one in held])
    figures.body_bytes.observe_all([len(one.job.raw_body) for one in held])
    kept = [end for i, end in enumerate(ends) if i not in stale] if stale else ends
    if outcome == "done":
        figures.time_to_finish.observe_all([(now_ms - end.held.job.due_ms) / 1000 for end in kept])
    elif outcome == "dead":
        for reason, count in Counter(end.reason for end in kept).items():
            figures.dead[reason].inc(count)
    elif outcome == "retry":
        steps = Counter(metrics.step_label(end.held.job.step, end.steps) for end in kept)
        for step, count in steps.items():
            metrics.RETRIES.labels(shard.namespace, topic, group, step).inc(count)


@cache
def _of_topic(metric: prometheus_client.Counter, namespace: str, topic: str) -> prometheus_client.Counter:
    return metric.labels(namespace, topic)


@cache
def _move_batch(namespace: str) -> metrics.BatchHistogram:
    return metrics.MOVE_BATCH.labels(namespace)


def _count(metric: prometheus_client.Counter, namespace: str, topic: str, count: int) -> None:
    if metrics.counting():
        counter = _of_topic(metric, namespace, metrics.topic_labels().of(namespace, topic))
        if count:
            counter.inc(count)


def not_put_in(namespace: str, topic: str, count: int) -> None:
    """So many of a call's jobs were not enqueued, because their ids were taken; perhaps none."""
    _count(metrics.DUPLICATE, namespace, topic, count)


def moved(shard: ShardKeys, count: int, took_s: float) -> None:
    """One call moved so many jobs, and took so long."""
    _count(metrics.MOVED, shard.namespace, shard.topic, count)
    if metrics.counting():
        _move_batch(shard.namespace).observe(took_s)


def reclaimed(shard: ShardKeys, group: str, count: int) -> None:
    """``count`` may be 0: this process has begun to look after the group."""
    if metrics.counting():
        topic = metrics.topic_labels().of(shard.namespace, shard.topic)
        metrics.RECLAIMED.labels(shard.namespace, topic, group).inc(count)
