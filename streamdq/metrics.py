"""Every Prometheus metric of streamdq. No id, URL or error text is ever a label."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from prometheus_client import Counter, Histogram

_TOPIC, _GROUP = ("topic",), ("topic", "group")
_LATENESS_BUCKETS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800
)  # fmt: skip

_OUTCOMES = ("done", "retry", "dead", "released", "stale")

ATTEMPTS = Counter(
    "streamdq_job_attempts",
    "Attempts that ended, by how: done, retry, dead, released, stale.",
    (*_GROUP, "outcome"),
)
MOVED = Counter("streamdq_jobs_moved", "Due jobs moved from the bucket to a ready stream.", _TOPIC)
RECLAIMED = Counter("streamdq_jobs_reclaimed", "Claims taken over because their TTR had passed.", _GROUP)
LOOP_RESTARTS = Counter("streamdq_loop_restarts", "Loops that failed and were started again.", ("loop",))
LATENESS = Histogram(
    "streamdq_job_lateness_seconds",
    "Attempt start minus due time, by Redis's clock.",
    _GROUP,
    buckets=_LATENESS_BUCKETS_S,
)
DURATION = Histogram("streamdq_job_duration_seconds", "How long handlers took.", _GROUP, buckets=_LATENESS_BUCKETS_S)


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """What is counted for every attempt, with its labels looked up once: that costs more than the counting."""

    lateness: Histogram
    duration: Histogram
    attempts: dict[str, Counter]


@cache
def of(topic: str, group: str) -> GroupFigures:
    return GroupFigures(
        LATENESS.labels(topic, group),
        DURATION.labels(topic, group),
        {outcome: ATTEMPTS.labels(topic, group, outcome) for outcome in _OUTCOMES},
    )
