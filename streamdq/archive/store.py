"""The archive's rows: every statement that is sent to its database. Needs the extra ``archive``, but not Redis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, delete, func, inspect, or_, select, update

from ..errors import ArchiveError, ArchiveMissing, ArchiveRefusesWrites, ArchiveUnavailable, ArchiveVersion
from ..store.jobs.records import line_fields, url_line
from ..times.clock import wall_ms
from .database import Database, Purpose
from .dead_letters import ArchivedJob, DeadLetter, Receipt, RowState, Wanted
from .schema import DEAD_LETTERS, KEY, SCHEMA_VERSION, VERSIONS

_PURPOSE = Purpose(
    "archive", "what it has not taken yet is still in Redis", ArchiveError, ArchiveUnavailable, ArchiveRefusesWrites
)


class Store:
    """One database and one namespace. ``create``: create missing tables.

    Raises (in the constructor; every method may raise the database's errors):
        InvalidInput: the URL is invalid, or the driver is missing.
        ArchiveError: depending on the database's error.
    """

    def __init__(self, url: str, namespace: str, create: bool) -> None:
        self._db = Database(url, _PURPOSE, create)
        self.address = self._db.address
        self.reading, self.writing = self._db.reading, self._db.writing
        self._namespace = namespace
        if not create and self._db.is_missing_file:
            raise ArchiveMissing(f"no archive at {self.address}: there is no such file; check the path")
        try:
            self._prepare(create)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._db.close()

    def _prepare(self, create: bool) -> None:
        with self.reading() as db:
            there = inspect(db).has_table(VERSIONS.name)
        if not there and not create:
            raise ArchiveMissing(f"no archive at {self.address}: `streamdq archive --to` creates one")
        if not there:
            self._create()
        with self.reading() as db:
            version = db.execute(select(VERSIONS.c.version)).scalar()
        if version != SCHEMA_VERSION:
            raise ArchiveVersion(
                f"the archive at {self.address} has schema version {version}, and this streamdq knows "
                f"{SCHEMA_VERSION}: use the version of streamdq that made it, or a later one"
            )

    def _create(self) -> None:
        with self.writing() as db:
            self._db.create(db, (DEAD_LETTERS, VERSIONS))
            made = self._db.dialect.insert(VERSIONS).values(name="schema", version=SCHEMA_VERSION)
            db.execute(made.on_conflict_do_nothing())

    # -- writing

    def put(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Commits a row for every dead letter that has none. If a dead letter was sent back or left, and is in Redis
        all the same, its row starts again: Redis had lost its last writes.
        """
        now_ms = wall_ms()
        given = {"namespace": self._namespace, "state": RowState.STORED.value, "archived_ms": now_ms}
        made = self._db.dialect.insert(DEAD_LETTERS).on_conflict_do_update(
            index_elements=KEY,
            set_={"state": RowState.STORED.value, "kicked_ms": None, "archived_ms": now_ms},
            where=_in_any((RowState.KICKED, RowState.LEFT)),
        )
        with self.writing() as db:
            db.execute(made, [{**_columns(dead_letter), **given} for dead_letter in dead_letters])

    def mark(
        self, db: Connection, burials: Sequence[DeadLetter | Receipt], state: RowState, before: Sequence[RowState]
    ) -> None:
        """Gives the rows of these burials a new state, if their state is one of ``before``."""
        if not burials:
            return
        change = update(DEAD_LETTERS).values(_values(state)).where(_in_any(before))
        change = change.where(*(DEAD_LETTERS.c[name] == bindparam(f"of_{name}") for name in KEY))
        db.execute(change, [self._key(burial) for burial in burials])

    def turn(self, db: Connection, held: Sequence[ArchivedJob], state: RowState) -> None:
        """Gives rows that this transaction has locked a new state."""
        if held:
            numbers = [row.number for row in held]
            db.execute(update(DEAD_LETTERS).values(_values(state)).where(DEAD_LETTERS.c.number.in_(numbers)))

    def delete(self, numbers: Sequence[int]) -> int:
        """Deletes rows whose dead letters Redis has no more; returns how many."""
        c = DEAD_LETTERS.c
        gone = delete(DEAD_LETTERS).where(c.namespace == self._namespace, c.state != RowState.STORED.value)
        with self.writing() as db:
            return db.execute(gone.where(c.number.in_(numbers))).rowcount

    def _key(self, burial: DeadLetter | Receipt) -> dict[str, Any]:
        own = (self._namespace, burial.topic, burial.group, burial.id, burial.buried_ms, burial.sequence)
        return {f"of_{name}": value for name, value in zip(KEY, own, strict=True)}

    def count(self, db: Connection, burials: Sequence[DeadLetter], state: RowState) -> int:
        """How many of these burials, all of one topic and group, have a row in this state."""
        if not burials:
            return 0
        c = DEAD_LETTERS.c
        query = select(c.id, c.buried_ms, c.sequence).where(
            c.namespace == self._namespace,
            c.topic == burials[0].topic,
            c.group_name == burials[0].group,
            c.id.in_({each.id for each in burials}),
            c.state == state.value,
        )
        found = {tuple(row) for row in db.execute(query)}
        return sum((each.id, each.buried_ms, each.sequence) in found for each in burials)

    def own(self, db: Connection, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Those of one topic's receipts that belong to rows of this database."""
        if not receipts:
            return []
        c = DEAD_LETTERS.c
        query = select(c.group_name, c.id, c.buried_ms, c.sequence).where(
            c.namespace == self._namespace, c.topic == receipts[0].topic, c.id.in_({each.id for each in receipts})
        )
        found = {tuple(row) for row in db.execute(query)}
        return [each for each in receipts if (each.group, each.id, each.buried_ms, each.sequence) in found]

    def lock(self, db: Connection, rows: Sequence[ArchivedJob], states: Sequence[RowState]) -> list[ArchivedJob]:
        """Locks those of the rows that are in one of the states now, until the transaction ends. Rows that another
        process has locked are left out.
        """
        c = DEAD_LETTERS.c
        query = select(DEAD_LETTERS).where(c.number.in_([row.number for row in rows]), _in_any(states))
        found = db.execute(query.order_by(c.number).with_for_update(skip_locked=True))
        return [_row(row) for row in found.mappings()]

    # -- reading

    def rows(self, wanted: Wanted, limit: int, after: int = 0, until: int | None = None) -> list[ArchivedJob]:
        """Rows with numbers above ``after`` up to ``until``, in the order in which they were archived."""
        number = DEAD_LETTERS.c.number
        query = self._where(select(DEAD_LETTERS), wanted).where(number > after).order_by(number).limit(limit)
        if until is not None:
            query = query.where(number <= until)
        with self.reading() as db:
            return [_row(row) for row in db.execute(query).mappings()]

    def extent(self, wanted: Wanted) -> tuple[int, int]:
        """How many rows there are, and the highest number among them."""
        query = select(func.count(), func.coalesce(func.max(DEAD_LETTERS.c.number), 0)).select_from(DEAD_LETTERS)
        with self.reading() as db:
            count, last = db.execute(self._where(query, wanted)).one()
        return int(count), int(last)

    def _where(self, query: Select[Any], wanted: Wanted) -> Select[Any]:
        c = DEAD_LETTERS.c
        query = query.where(c.namespace == self._namespace)
        for column, value in ((c.topic, wanted.topic), (c.group_name, wanted.group), (c.id, wanted.id)):
            if value is not None:
                query = query.where(column == value)
        if wanted.reasons:
            query = query.where(c.reason.in_(wanted.reasons))
        if wanted.states:
            query = query.where(_in_any(wanted.states))
        return query


def _in_any(states: Sequence[RowState]) -> ColumnElement[bool]:
    """A condition without IN, which can't be sent for many rows at once."""
    return or_(*(DEAD_LETTERS.c.state == state.value for state in states))


def _values(state: RowState) -> dict[str, Any]:
    return {"state": state.value, "kicked_ms": wall_ms() if state is RowState.KICKED else None}


def _columns(dead_letter: DeadLetter) -> dict[str, Any]:
    fields = asdict(dead_letter)
    fields["group_name"] = fields.pop("group")
    fields["url"] = url_line(fields["url"], fields.pop("key"), fields.pop("priority")) or None
    return fields


def _row(found: Any) -> ArchivedJob:
    fields = dict(found)
    del fields["namespace"]
    fields["group"] = fields.pop("group_name")
    fields["url"], fields["key"], fields["priority"] = line_fields(fields["url"] or "")
    number, state = fields.pop("number"), RowState(fields.pop("state"))
    archived_ms, kicked_ms = fields.pop("archived_ms"), fields.pop("kicked_ms")
    return ArchivedJob(number, DeadLetter(**fields), state, archived_ms, kicked_ms)
