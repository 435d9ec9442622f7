"""How many rows an outbox has, by their state, and how old they are. Needs the extra ``outbox``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, case, func, select

from .batch import RowState
from .rows import Rows
from .tables import LEASES, ROWS, due_at, now_ms


@dataclass(frozen=True, slots=True)
class StateFigures:
    rows: int
    oldest_ms: int | None  # for how long the oldest could have been relayed, or how long ago it was made


class Figures(NamedTuple):
    states: dict[RowState, StateFigures]
    relay: str | None  # host, process and a random part; None: no relay is active


class CountedRows(Rows):
    """The rows of one outbox and namespace, as figures."""

    def figures(self, states: Collection[RowState] = tuple(RowState)) -> Figures:
        """How many rows are in each of these states, and who relays them. ``waiting`` are those that are due within the
        horizon.
        """
        ours = LEASES.c.namespace == self._namespace
        with self._db.reading() as db:
            found = {state: self._figures_of(db, state) for state in states}
            relay = db.execute(select(LEASES.c.holder).where(ours, LEASES.c.until_ms >= now_ms())).scalar()
        return Figures(found, relay or None)

    def later(self) -> int:
        """How many rows are due beyond the horizon. Counting some millions takes a second."""
        if self.horizon_ms is None:
            return 0
        beyond = select(func.count()).select_from(ROWS)
        with self._db.reading() as db:
            return db.execute(beyond.where(*self.that_wait(), due_at() > self.end_of_horizon())).scalar_one()

    def _figures_of(self, db: Connection, state: RowState) -> StateFigures:
        c = ROWS.c
        since: ColumnElement[int] = c.made_ms
        where: list[ColumnElement[bool]] = [c.namespace == self._namespace, c.state == state.value]
        if self.horizon_ms is not None and state in (RowState.WAITING, RowState.RELAYING):
            since = case((c.made_ms > due_at() - self.horizon_ms, c.made_ms), else_=due_at() - self.horizon_ms)
            if state is RowState.WAITING:
                where = [*self.that_wait(), due_at() <= self.end_of_horizon()]
        count, age_ms = db.execute(select(func.count(), now_ms() - func.min(since)).where(*where)).one()
        return StateFigures(count, None if age_ms is None else int(age_ms))
