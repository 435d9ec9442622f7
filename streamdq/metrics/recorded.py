"""Counts moves, take-overs and duplicates in the metrics."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

from . import declared

if TYPE_CHECKING:
    import prometheus_client


@cache
def _of_topic(metric: prometheus_client.Counter, namespace: str, topic: str) -> prometheus_client.Counter:
    return metric.labels(namespace, topic)


@lru_cache(maxsize=4096)
def _expect(metric: prometheus_client.Counter, namespace: str, topic: str) -> None:
    """Creates the counter at 0."""
    _of_topic(metric, namespace, declared.topic_labels().of(namespace, topic))


@cache
def _move_batch(namespace: str) -> declared.BatchHistogram:
    return declared.MOVE_BATCH.labels(namespace)


def _count(metric: prometheus_client.Counter, namespace: str, topic: str, count: int) -> None:
    if declared.counting():
        if count:
            _of_topic(metric, namespace, declared.topic_labels().of(namespace, topic)).inc(count)
        else:
            _expect(metric, namespace, topic)


def not_put_in(namespace: str, topic: str, count: int) -> None:
    """Counts jobs of a call that were not enqueued because their ids were taken; ``count`` may be 0."""
    _count(declared.DUPLICATE, namespace, topic, count)


def moved(namespace: str, topic: str, count: int, took_s: float) -> None:
    """Counts the jobs that one call moved, and how long it took."""
    _count(declared.MOVED, namespace, topic, count)
    if declared.counting():
        _move_batch(namespace).observe(took_s)


def reclaimed(namespace: str, topic: str, group: str, *, late: int = 0, silent: int = 0) -> None:
    """Counts claims taken over. Both counts may be 0; that creates the group's counters."""
    if declared.counting():
        topic = declared.topic_labels().of(namespace, topic)
        for reason, count in zip(declared.TAKE_OVERS, (late, silent), strict=True):
            declared.RECLAIMED.labels(namespace, topic, group, reason).inc(count)


def outbox(namespace: str, topic: str, outcome: str, count: int) -> None:
    """Counts rows of a database's outbox; ``count`` may be 0."""
    if declared.counting() and count:
        declared.OUTBOX_ROWS.labels(namespace, declared.topic_labels().of(namespace, topic), outcome).inc(count)


def outbox_waits(namespace: str, waits_s: list[float]) -> None:
    if declared.counting():
        declared.OUTBOX_WAIT.labels(namespace).observe_all(waits_s)
