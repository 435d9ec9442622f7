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
def _figures(topic: str, group: str) -> _Figures:
    return _Figures(
        metrics.LATENESS.labels(topic, group),
        metrics.WAIT.labels(topic, group),
        metrics.DURATION.labels(topic, group),
        metrics.TIME_TO_FINISH.labels(topic, group),
        metrics.BODY_BYTES.labels(topic),
        {outcome: metrics.ATTEMPTS.labels(topic, group, outcome) for outcome in metrics.OUTCOMES},
        {reason: metrics.DEAD.labels(topic, group, reason) for reason in metrics.REASONS},
    )


def expect(steps: Mapping[str, int], group: str) -> None:
    """A worker serves these topics, whose retry schedules have so many steps: their metrics are there from the
    beginning. A rate needs a 0 to start from, or what is late when a worker comes back would not be seen.
    """
    if not metrics.counting():
        return
    for name, most in steps.items():
        topic = metrics.topic_labels().of(name)
        _figures(topic, group)
        for step in range(min(most, metrics.MOST_STEPS)):
            metrics.RETRIES.labels(topic, group, metrics.step_label(step, 1))
        metrics.RECLAIMED.labels(topic, group)
        metrics.MOVED.labels(topic)
        metrics.EXPIRED.labels(topic)


def attempts_ended(ends: Sequence[End], stale: Collection[int], now_ms: int) -> None:
    """Attempts of one topic, group and outcome ended, as Redis has confirmed at ``now_ms``, but for those at the
    indexes in ``stale``.
    """
    if not metrics.counting():
        return
    first = ends[0]
    topic, group, outcome = metrics.topic_labels().of(first.held.job.topic), first.held.group, first.outcome.value
    figures = _figures(topic, group)
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
            metrics.RETRIES.labels(topic, group, step).inc(count)


@cache
def _of_topic(metric: prometheus_client.Counter, topic: str) -> prometheus_client.Counter:
    return metric.labels(topic)


def _count(metric: prometheus_client.Counter, topic: str, count: int) -> None:
    if metrics.counting():
        _of_topic(metric, metrics.topic_labels().of(topic)).inc(count)


def put_in(topic: str, created: int, existing: int) -> None:
    """Jobs were enqueued, or not because their ids were taken."""
    _count(metrics.ENQUEUED, topic, created)
    _count(metrics.DUPLICATE, topic, existing)


def cancelled(topic: str) -> None:
    _count(metrics.CANCELLED, topic, 1)


def expired(topic: str, count: int) -> None:
    _count(metrics.EXPIRED, topic, count)


def moved(topic: str, count: int, took_s: float) -> None:
    """One call moved so many jobs, and took so long."""
    _count(metrics.MOVED, topic, count)
    if metrics.counting():
        metrics.MOVE_BATCH.observe(took_s)


def reclaimed(topic: str, group: str, count: int) -> None:
    """``count`` may be 0: this process has begun to look after the group."""
    if metrics.counting():
        metrics.RECLAIMED.labels(metrics.topic_labels().of(topic), group).inc(count)
