"""Counts moves, take-overs, duplicates and failed calls in the metrics.

What a producer counts waits in this module while its process has not imported prometheus_client: nothing could show it,
and the import takes longer than enqueuing does.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from ..forks import renew_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

    import prometheus_client

    from . import declared

    Counting = Callable[[str, str, int], None]
    """Adds to a counter: namespace, its other label, count; 0 creates it."""


class Early:
    """Counts until the process has the library; then the metrics get them, and what follows."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Counting, str, str], int] = {}
        self._over = False
        self._in_files = "PROMETHEUS_MULTIPROC_DIR" in os.environ  # another process shows what this process counts
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    def count(self, counting: Counting, namespace: str, label: str, count: int) -> None:
        if self._over:
            counting(namespace, label, count)
        elif self._in_files or "prometheus_client" in sys.modules:
            self._end()
            counting(namespace, label, count)
        elif count or (counting, namespace, label) not in self._counts:
            self._keep(counting, namespace, label, count)

    def _keep(self, counting: Counting, namespace: str, label: str, count: int) -> None:
        with self._lock:
            if not self._over:
                place = (counting, namespace, label)
                self._counts[place] = self._counts.get(place, 0) + count
                return
        counting(namespace, label, count)

    def _end(self) -> None:
        with self._lock:
            self._over = True
            counts, self._counts = self._counts, {}
        for (counting, namespace, label), count in counts.items():
            counting(namespace, label, count)


_early = Early()
_MOST_KNOWN = 4096
_put_in: set[tuple[str, str]] = set()  # namespaces and topics whose counter of such jobs is there: every enqueue asks


def not_put_in(namespace: str, topic: str, count: int) -> None:
    """Counts jobs of a call that were not enqueued because their ids were taken; ``count`` may be 0."""
    if count or (namespace, topic) not in _put_in:
        _early.count(_not_put_in, namespace, topic, count)
        if len(_put_in) < _MOST_KNOWN:
            _put_in.add((namespace, topic))


def redis_errors(namespace: str, kind: str, count: int) -> None:
    """Counts calls that Redis did not answer, or refused; ``count`` may be 0."""
    _early.count(_redis_errors, namespace, kind, count)


def _not_put_in(namespace: str, topic: str, count: int) -> None:
    from . import declared

    _count(declared.DUPLICATE, namespace, topic, count)


def _redis_errors(namespace: str, kind: str, count: int) -> None:
    from . import declared

    declared.REDIS_ERRORS.labels(namespace, kind).inc(count)


@cache
def _of_topic(metric: prometheus_client.Counter, namespace: str, topic: str) -> prometheus_client.Counter:
    return metric.labels(namespace, topic)


@lru_cache(maxsize=4096)
def _expect(metric: prometheus_client.Counter, namespace: str, topic: str) -> None:
    """Creates the counter at 0."""
    from . import declared

    _of_topic(metric, namespace, declared.topic_labels().of(namespace, topic))


@cache
def _move_batch(namespace: str) -> declared.BatchHistogram:
    from . import declared

    return declared.MOVE_BATCH.labels(namespace)


def _count(metric: prometheus_client.Counter, namespace: str, topic: str, count: int) -> None:
    from . import declared

    if declared.counting():
        if count:
            _of_topic(metric, namespace, declared.topic_labels().of(namespace, topic)).inc(count)
        else:
            _expect(metric, namespace, topic)


def moved(namespace: str, topic: str, count: int, took_s: float) -> None:
    """Counts the jobs that one call moved, and how long it took."""
    from . import declared

    _count(declared.MOVED, namespace, topic, count)
    if declared.counting():
        _move_batch(namespace).observe(took_s)


def reclaimed(namespace: str, topic: str, group: str, *, ttr: int = 0, silent: int = 0) -> None:
    """Counts claims taken over. Both counts may be 0; that creates the group's counters."""
    from . import declared

    if declared.counting():
        topic = declared.topic_labels().of(namespace, topic)
        for reason, count in zip(declared.TAKE_OVERS, (ttr, silent), strict=True):
            declared.RECLAIMED.labels(namespace, topic, group, reason).inc(count)


def loop_blocked(namespace: str, seconds: float) -> None:
    """Counts for how long an event loop was blocked; 0 creates the counter."""
    from . import declared

    if declared.counting():
        declared.LOOP_BLOCKED.labels(namespace).inc(seconds)


def erased(namespace: str, place: str, count: int) -> None:
    """Counts what an erasure has removed."""
    from . import declared

    if declared.counting() and count:
        declared.ERASED.labels(namespace, place).inc(count)


def outbox(namespace: str, topic: str, outcome: str, count: int) -> None:
    """Counts rows of a database's outbox; ``count`` may be 0."""
    from . import declared

    if declared.counting() and count:
        declared.OUTBOX_ROWS.labels(namespace, declared.topic_labels().of(namespace, topic), outcome).inc(count)


def outbox_waits(namespace: str, waits_s: list[float]) -> None:
    from . import declared

    if declared.counting():
        declared.OUTBOX_WAIT.labels(namespace).observe_all(waits_s)
