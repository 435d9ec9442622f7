"""Erases rows of an outbox, in whatever state. Needs the extra ``outbox``.

A relay that has just read a row may still put its job into Redis, where an erasure finds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import select

from ..operations.find.conditions import SeenJob
from ..store.jobs.records import url_and_priority
from .batch import Placed, RowState
from .rows import BATCH, Rows
from .tables import ROWS


class KeptRow(NamedTuple):
    placed: Placed
    state: RowState
    seen: SeenJob
    body: str


class ErasableRows(Rows):
    """All rows of one outbox and namespace."""

    def each(self) -> Iterator[KeptRow]:
        """Every row, in their order."""
        c, after = ROWS.c, 0
        query = select(c.number, c.topic, c.id, c.state, c.body, c.url, c.job_key, c.nonce)
        query = query.where(c.namespace == self._namespace).order_by(c.number).limit(BATCH)
        while True:
            with self._db.reading() as db:
                page = db.execute(query.where(c.number > after)).all()
            for number, topic, id, state, body, url, key, nonce in page:
                placed = Placed(number, topic, id, self._receipt(number, nonce), key)
                yield KeptRow(placed, RowState(state), SeenJob(id, url_and_priority(url)[0], key), body)
            if not page:
                return
            after = page[-1].number

    def erase(self, rows: Sequence[KeptRow]) -> int:
        """Deletes these rows; returns how many. One that a relay has given another state meanwhile stays."""
        gone = 0
        for state in RowState:
            numbers = [row.placed.number for row in rows if row.state is state]
            for start in range(0, len(numbers), BATCH):
                with self._db.writing() as db:
                    gone += self._delete(db, state, numbers[start : start + BATCH])
        return gone
