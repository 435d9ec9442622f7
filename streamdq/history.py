"""The history stream's rows: what happened to a job, one row per ended attempt and per rare event.

A row is one text value, its fields separated by the unit separator; the scripts put ``finished_ms`` at its end.
"""

from __future__ import annotations

from enum import StrEnum

SEPARATOR = "\x1f"
FIELDS = (
    "event", "id", "group", "attempt", "consumer", "created_ms", "due_ms", "moved_ms", "started_ms",
    "error", "body_bytes", "finished_ms",
)  # fmt: skip


class Event(StrEnum):
    """What a row tells. The last five come from scripts that act without a worker."""

    DONE = "done"
    RETRY = "retry"
    DEAD = "dead"
    RELEASED = "released"
    RECLAIMED = "reclaimed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    KICKED = "kicked"


def moved_ms(main: bytes, entry: bytes) -> bytes:
    """When the job was moved to the stream it was claimed from: the time in the entry's id."""
    return (entry or main).partition(b"-")[0]
