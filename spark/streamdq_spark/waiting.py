"""What Redis knows now: the jobs that wait, for the load forecast, and the topics' settings, for the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from streamdq import Queue
from streamdq.config import TopicSettings
from streamdq.times.clock import wall_now

HOURS = 24
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rows of (topic, due hour, jobs), read at `asked_at`. Overdue jobs count in the present hour.

    `settings`: those of each topic.
    """

    rows: list[tuple[str, datetime, int]]
    asked_at: datetime
    settings: Mapping[str, TopicSettings] = field(default_factory=dict)


def waiting_in(queue: Queue, *, hours: int = HOURS, now: datetime | None = None) -> Waiting:
    """How many attempts of each topic come due in each of the coming hours. It costs one count per topic, shard and
    hour, however many jobs wait.
    """
    now = now or wall_now()
    first = now.replace(minute=0, second=0, microsecond=0)
    ends = {f"{(first + n * _HOUR - now) / timedelta(milliseconds=1):.0f}ms": n for n in range(1, hours + 1)}
    rows, settings = [], {}
    for topic in queue.stats().topics:
        settings[topic] = queue.configure(topic)
        counted = 0
        for window, within in queue.upcoming(topic, list(ends)).items():
            rows.append((topic, first + (ends[window] - 1) * _HOUR, within - counted))
            counted = within
    return Waiting(rows, now, settings)
