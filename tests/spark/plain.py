"""Made-up events, and what plain Python says of one: no Spark, no pandas, no code of the questions."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

HOUR = 3_600_000
DAY = 24 * HOUR
WEEK = 7 * DAY
ENDED = {"done", "retry", "dead"}

Table = list[dict[str, Any]]
Spans = tuple[tuple[int, int], tuple[int, int]]
"""Two, from and before, that are compared."""


class Happened(NamedTuple):
    """One row of the history; times in ms."""

    topic: str
    shard: int
    entry: str
    event: str
    id: str
    group: str | None
    attempt: int
    step: int | None
    consumer: str | None
    created: int | None
    due: int | None
    moved: int | None
    started: int | None
    finished: int
    error: str | None
    reason: str | None
    body_bytes: int | None
    key: str | None = None


def by(log: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for one in log:
        found[key(one)].append(one)
    return found


def quantile(values: Sequence[float], at: float) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    return statistics.quantiles(values, n=1000, method="inclusive")[round(at * 1000) - 1]


def ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def lateness(e: Happened) -> int | None:
    return e.started - e.due if e.event in ENDED and e.started is not None and e.due is not None else None


def life(e: Happened) -> tuple[Any, ...]:
    return (e.topic, e.id, e.created)


def order(e: Happened) -> tuple[int, ...]:
    """An entry's place in its stream."""
    return tuple(map(int, e.entry.split("-")))
