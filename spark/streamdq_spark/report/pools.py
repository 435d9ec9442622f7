"""The table `capacity` put together by pool: queues that share their workers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from ..measures import BUSY
from .parts import TableRow, grouped

_NAMED = 3


@dataclass(frozen=True, slots=True)
class PoolHour:
    """What a pool needs in one coming hour. What is not known is None."""

    hour: datetime
    load: float | None
    slots: float | None
    workers_low: int | None
    workers: int | None
    workers_high: int | None


@dataclass(frozen=True, slots=True)
class Pool:
    """Queues that share workers. `number`: None for queues without any yet. `concurrency`: of one worker.
    `seen`: how many worked in an hour of the last day, the median.
    """

    number: int | None
    topics: tuple[str, ...]
    concurrency: float | None
    seen: float | None
    hours: tuple[PoolHour, ...]

    @property
    def name(self) -> str:
        more = len(self.topics) - _NAMED
        return ", ".join(self.topics[:_NAMED]) + (f" and {more} more" if more > 0 else "")

    @property
    def busiest(self) -> PoolHour | None:
        """The first hour that needs the most workers; None: it is not known of any."""
        known = [hour for hour in self.hours if hour.workers is not None]
        return max(known, key=lambda hour: (hour.workers or 0, hour.slots or 0.0), default=None)

    @property
    def short(self) -> list[PoolHour]:
        """The hours that need more workers than there were."""
        return [hour for hour in self.hours if self.seen is not None and (hour.workers or 0) > ceil(self.seen)]


def pools(rows: Iterable[TableRow], concurrency: int | None = None) -> list[Pool]:
    """Those with the most to do first. `concurrency`: of one worker, instead of what was seen."""
    found = [_pool(number, own, concurrency) for number, own in grouped(rows, "pool").items()]
    return sorted(found, key=lambda pool: (pool.number is None, -sum(hour.slots or 0.0 for hour in pool.hours)))


def _pool(number: int | None, rows: list[TableRow], concurrency: int | None) -> Pool:
    at_once = concurrency or rows[0]["concurrency"]
    hours = [_hour(at, own, at_once) for at, own in sorted(grouped(rows, "hour").items())]
    topics = tuple(sorted({str(row["topic"]) for row in rows}))
    return Pool(number, topics, at_once, rows[0]["workers_seen"], tuple(hours))


def _hour(at: datetime, rows: list[TableRow], concurrency: float | None) -> PoolHour:
    def total(name: str) -> float | None:
        known = [row[name] for row in rows if row[name] is not None]
        return sum(known) if known else None

    def workers(slots: float | None) -> int | None:
        return None if slots is None or not concurrency else ceil(round(slots / (BUSY * concurrency), 6))

    low, slots, high = (rows[0][name] for name in ("pool_low", "pool_slots", "pool_high"))
    return PoolHour(at, total("load"), slots, workers(low), workers(slots), workers(high))
