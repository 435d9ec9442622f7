"""The history has one row for each ended attempt and each rare event. This file declares its schema, for the scripts
that write rows, the files of a dump, and the analytics that read them.

In Redis a row is one text value with fields separated by the unit separator; the scripts append ``finished_ms``. In a
dump it is one row of COLUMNS. A change of a column, type or meaning needs a new SCHEMA_VERSION.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ...errors import HistoryUnreadable
from ..entries import order_of

SCHEMA_VERSION = "1"
VERSION_KEY = "streamdq.schema_version"
"""The key of the version in a Parquet file's metadata."""

SEPARATOR = "\x1f"
FIELDS = (
    "event", "id", "group", "attempt", "step", "consumer", "created_ms", "due_ms", "moved_ms", "started_ms",
    "error", "reason", "body_bytes", "key", "finished_ms",
)  # fmt: skip


class Event(StrEnum):
    """What a row is about. The last seven come from scripts that no worker calls."""

    DONE = "done"
    RETRY = "retry"
    DEAD = "dead"
    RELEASED = "released"
    RECLAIMED = "reclaimed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    KICKED = "kicked"
    BLOCKED = "blocked"  # it waits for other jobs, of which one has failed
    UNBLOCKED = "unblocked"  # those that it waited for have ended
    FLOW = "flow"  # a flow has ended; the mover writes it


class ColumnType(StrEnum):
    """The types of a dump's columns. A timestamp counts microseconds since 1970, UTC."""

    STRING = "string"
    INT32 = "int32"
    INT64 = "int64"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a dump. Text that is empty in Redis is null here, if the column is nullable."""

    name: str
    type: ColumnType
    nullable: bool
    meaning: str


_STRING, _INT32, _INT64, _TIME = ColumnType.STRING, ColumnType.INT32, ColumnType.INT64, ColumnType.TIMESTAMP

COLUMNS = (
    Column("topic", _STRING, False, "the job's topic"),
    Column("shard", _INT32, False, "which of the topic's shards holds the job, from 0"),
    Column("entry", _STRING, False, "the row's id in the shard's history stream: ms-sequence"),
    Column("event", _STRING, False, "how the attempt ended, or what else happened"),
    Column("id", _STRING, False, "the job's id"),
    Column("group", _STRING, False, "the consumer group that it concerns"),
    Column("attempt", _INT32, False, "which attempt of the group, from 1; attempts before it for an event without one"),
    Column("step", _INT32, False, "steps of the retry schedule used before, from 0"),
    Column("consumer", _STRING, True, "who had claimed the job"),
    Column("created", _TIME, True, "when the job was enqueued"),
    Column("due", _TIME, True, "when the attempt was due"),
    Column("moved", _TIME, True, "when it was moved to the ready stream"),
    Column("started", _TIME, True, "when the attempt started"),
    Column("finished", _TIME, False, "when the event took place, by Redis's clock"),
    Column("error", _STRING, True, "the exception's class, for retry, dead and what was snoozed"),
    Column(
        "reason",
        _STRING,
        True,
        "why the job is dead: exhausted, buried, invalid or crashed; aborted, if it was cancelled while it ran; of a "
        "flow, how it ended, and its critical path",
    ),
    Column("body_bytes", _INT64, True, "the size of the body, as it is stored"),
    Column("key", _STRING, True, "the job's key, if it has one"),
)


def moved_ms(main: bytes, entry: bytes) -> bytes:
    """When the job was moved to the stream it was claimed from: the time in the entry's id."""
    return (entry or main).partition(b"-")[0]


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One row. Fields that its event does not have are None, '' or 0."""

    topic: str
    shard: int
    entry: str
    event: Event
    id: str
    group: str
    attempt: int
    step: int
    consumer: str
    created_ms: int | None
    due_ms: int | None
    moved_ms: int | None
    started_ms: int | None
    finished_ms: int
    error: str
    reason: str
    body_bytes: int
    key: str = ""

    @property
    def place(self) -> tuple[int, int]:
        """Its position in the shard's history. This is the true order of events, even if the clock was set back."""
        return order_of(self.entry)


@dataclass(slots=True)
class HistoryPage:
    """Rows, the oldest of each shard first. Pass ``after`` back to read the next page."""

    rows: list[HistoryRow] = field(default_factory=list)
    after: dict[int, str] = field(default_factory=dict)


def row_in(topic: str, shard: int, entry: str, text: str) -> HistoryRow:
    """The row in a stream entry's text.

    Raises:
        HistoryUnreadable: it is not a row of SCHEMA_VERSION.
    """
    try:
        (
            event, id, group, attempt, step, consumer, created, due, moved, started, error, reason, size, key, finished
        ) = text.split(SEPARATOR)  # fmt: skip
        return HistoryRow(
            topic, shard, entry, Event(event), id, group, int(attempt), int(step), consumer, _ms(created), _ms(due),
            _ms(moved), _ms(started), int(finished), error, reason, int(size or 0), key,
        )  # fmt: skip
    except ValueError as problem:
        raise HistoryUnreadable(
            f"entry {entry} in the history of topic {topic!r}, shard {shard}, is not a row of schema version "
            f"{SCHEMA_VERSION}: {problem}"
        ) from problem


def known_row_in(topic: str, shard: int, entry: str, value: bytes) -> HistoryRow | None:
    """The row in an entry's value; None if it is of another version, or was put there by another client."""
    try:
        return row_in(topic, shard, entry, value.decode())
    except (HistoryUnreadable, UnicodeDecodeError):
        return None


def may_concern(value: bytes, id: str) -> bool:
    """Checks without parsing the row; False means that it is not about the job with this id."""
    return f"{SEPARATOR}{id}{SEPARATOR}".encode() in value


_ID, _KEY = (FIELDS.index(name) for name in ("id", "key"))


def id_and_key_in(value: bytes) -> tuple[str, str] | None:
    """Whose row it is, without parsing the rest; None: it is not a row of SCHEMA_VERSION."""
    fields = value.split(SEPARATOR.encode())
    return (fields[_ID].decode(), fields[_KEY].decode()) if len(fields) == len(FIELDS) else None


@dataclass(frozen=True, slots=True)
class RegisteredDump:
    """A dump in a shard's settings. ``mark``: the last entry that it has; ``written``: how many rows had been written
    up to that entry.
    """

    id: str
    mark: str
    written: int


def dumps_in(text: bytes | None) -> list[RegisteredDump]:
    """The dumps in the settings field ``dumps``; None if the field is missing."""
    parts = [part.split(":") for part in (text or b"").decode().split(",") if part]
    return [RegisteredDump(id, mark, int(written)) for id, mark, written in parts]


def _ms(text: str) -> int | None:
    return int(text) if text else None
