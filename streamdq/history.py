"""The history stream's rows: what happened to a job, one row per ended attempt and per rare event.

A row is one text value, its fields separated by the unit separator; the scripts put ``finished_ms`` at its end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One row, read. What an event does not have is None, '' or 0."""

    topic: str
    event: Event
    id: str
    group: str
    attempt: int
    consumer: str
    created_ms: int | None
    due_ms: int | None
    moved_ms: int | None
    started_ms: int | None
    error: str
    body_bytes: int
    finished_ms: int


@dataclass(slots=True)
class HistoryPage:
    """Rows, the oldest of each shard first, and where to go on: ``after`` is handed back to read the next page."""

    rows: list[HistoryRow] = field(default_factory=list)
    after: dict[int, str] = field(default_factory=dict)


def row_in(topic: str, text: str) -> HistoryRow:
    """The row in a stream entry's text."""
    event, id, group, attempt, consumer, created, due, moved, started, error, size, finished = text.split(SEPARATOR)
    return HistoryRow(
        topic, Event(event), id, group, int(attempt), consumer,
        _ms(created), _ms(due), _ms(moved), _ms(started), error, int(size or 0), int(finished),
    )  # fmt: skip


def _ms(text: str) -> int | None:
    return int(text) if text else None
