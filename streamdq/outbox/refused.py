"""Rows that were refused: each needs a decision, to be relayed again or to be dropped. Needs the extra ``outbox``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select, update

from .batch import RowState
from .figures import CountedRows
from .rows import BATCH
from .tables import ROWS


@dataclass(frozen=True, slots=True)
class Refused:
    number: int
    topic: str
    id: str
    error: str


class RefusedRows(CountedRows):
    """The refused rows of one outbox and namespace. The active relay need not stop: it does not touch them."""

    def refused(self, limit: int, topic: str | None = None) -> list[Refused]:
        """The first rows that were refused."""
        c = ROWS.c
        query = select(c.number, c.topic, c.id, c.error).where(*self._are_refused())
        if topic is not None:
            query = query.where(c.topic == topic)
        with self._db.reading() as db:
            return [Refused(*row) for row in db.execute(query.order_by(c.number).limit(limit))]

    def retry(self, numbers: Sequence[int] | None, id: str | None = None) -> int:
        """Has refused rows wait again, with another ``id`` if it is given: those with the numbers, or all. Returns how
        many.
        """
        new: dict[str, Any] = {"state": RowState.WAITING.value, "error": None} | ({} if id is None else {"id": id})

        def turn(db: Connection, part: Sequence[int]) -> int:
            change = update(ROWS).where(*self._are_refused(), ROWS.c.number.in_(part))
            return db.execute(change.values(**new)).rowcount

        return self._each(numbers, turn)

    def drop(self, numbers: Sequence[int] | None) -> int:
        """Deletes refused rows: those with the numbers, or all. Returns how many."""
        return self._each(numbers, lambda db, part: self._delete(db, RowState.REFUSED, part))

    def _each(self, numbers: Sequence[int] | None, change: Callable[[Connection, Sequence[int]], int]) -> int:
        """Changes at most 500 rows in a transaction. Those that are refused again meanwhile are left alone."""
        count, after, last = 0, 0, self.last()
        query = select(ROWS.c.number).where(*self._are_refused()).order_by(ROWS.c.number).limit(BATCH)
        if numbers is not None:
            query = query.where(ROWS.c.number.in_(numbers))
        while True:
            with self._db.writing() as db:
                part = list(db.execute(query.where(ROWS.c.number > after, ROWS.c.number <= last)).scalars())
                if not part:
                    return count
                count += change(db, part)
            after = part[-1]

    def _are_refused(self) -> tuple[Any, Any]:
        return ROWS.c.namespace == self._namespace, ROWS.c.state == RowState.REFUSED.value
