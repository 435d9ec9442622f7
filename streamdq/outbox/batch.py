"""Rows of the outbox, as a relay reads them."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import NamedTuple

from ..store.jobs.records import Encoded, body_of


class RowState(StrEnum):
    """Where the job of an outbox's row is."""

    WAITING = "waiting"  # in the outbox; without a horizon perhaps in Redis, too, if a relay was killed
    RELAYING = "relaying"  # with a horizon: a relay puts it into Redis, or was killed while it did
    KEPT = "kept"  # in Redis; the row stays until it has ended
    RELAYED = "relayed"  # the row is no longer needed; it is deleted once Redis has dropped its receipt
    REFUSED = "refused"  # another job had its id, or the row is not valid; it stays, with the error


class Placed(NamedTuple):
    """A row, as far as it takes to find its job in Redis."""

    number: int
    topic: str
    id: str
    receipt: str
    key: str | None = None


class Row(NamedTuple):
    """A row that waits."""

    placed: Placed
    job: Encoded
    made_ms: int
    since_ms: int  # since when it can be relayed
    replaces: bool
    keeps: bool

    @property
    def body(self) -> str:
        """As it is stored."""
        return body_of(self.job).decode()

    @property
    def number(self) -> int:
        return self.placed.number

    @property
    def topic(self) -> str:
        return self.placed.topic

    @property
    def id(self) -> str:
        return self.placed.id


class Unfit(NamedTuple):
    """A row that waits and can never be relayed."""

    placed: Placed
    error: str


class Batch(NamedTuple):
    """Waiting rows, in their order, and how to tell the time since they were made."""

    rows: list[Row]
    unfit: list[Unfit]
    now_ms: int  # by the database's clock, when it read them
    read_at: float  # on this host's monotonic clock, afterwards
    is_all: bool = False  # no other row is marked, if none was before

    @classmethod
    def none(cls) -> Batch:
        return cls([], [], 0, 0.0)

    @property
    def is_empty(self) -> bool:
        return not self.rows and not self.unfit

    def age_ms(self, row: Row) -> int:
        """At least how long ago the row was made, by the clock of the database, and since it was read by this host's.
        Rounded down, so that no job is early.
        """
        return max(0, self.now_ms - row.made_ms - 1) + int((time.monotonic() - self.read_at) * 1000)

    def waited_s(self, row: Row) -> float:
        """How long it took until the row was relayed."""
        return max(0, self.age_ms(row) - max(0, row.since_ms - row.made_ms)) / 1000

    def when(self, row: Row) -> str:
        """The row's due time, as the scripts take it."""
        when = row.job.when
        return f"+{max(0, int(when) - self.age_ms(row))}" if when[0] == "+" else when
