"""The codec of the hash ``counts``: a shard's counters. The scripts keep them; this names their fields.

A counter of the whole shard is a field ``NAME``, a group's is ``NAME:GROUP``. One that never counted has no field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

_SEPARATOR = ":"


class ShardCounter(StrEnum):
    """Counters of a shard that Python reads."""

    ENQUEUED = "enqueued"
    HISTORY = "history"  # rows ever written
    WAITING_FOR_JOBS = "waiting_for_jobs"  # jobs that wait for others now
    FIRED = "fired"  # occurrences of schedules that became jobs
    SKIPPED = "skipped"
    MISSED = "missed"
    PAUSED = "paused"  # schedules that are paused now
    UNSCHEDULED = "unscheduled"  # schedules that were removed


class GroupCounter(StrEnum):
    """A group's counters that Python reads. Some say how many jobs there are now, others how many there have been."""

    BASE = "base"  # jobs of the shard that the group does not get: they ended or were detached before it was added
    WAITING = "waiting"  # for their next attempt, in the bucket
    WAITING_FOR_KEY = "waiting_for_key"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"  # given up and not kicked, purged ones included
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    RETRIED = "retried"
    SNOOZED = "snoozed"
    RECLAIMED = "reclaimed"
    LOST = "lost"


@lru_cache(maxsize=4096)
def group_field(counter: GroupCounter, group: str) -> str:
    """The field of a group's counter."""
    return f"{counter}{_SEPARATOR}{group}"


@dataclass(frozen=True, slots=True)
class Counters:
    """All counters of a shard, read at one moment."""

    values: dict[str, int]

    def of_shard(self, counter: ShardCounter) -> int:
        return self.values.get(counter, 0)

    def of_group(self, counter: GroupCounter, group: str) -> int:
        return self.values.get(group_field(counter, group), 0)

    def of_groups(self, counter: GroupCounter) -> int:
        """The sum over all groups."""
        start = group_field(counter, "")
        return sum(value for field, value in self.values.items() if field.startswith(start))


def counters_in(flat: Sequence[bytes]) -> Counters:
    """The counters in the hash's fields and values, in turn."""
    return Counters({field.decode(): int(value) for field, value in zip(flat[::2], flat[1::2], strict=True)})
