"""The outbox's rows and leases: every statement that a relay sends to the database. Needs the extra ``outbox``."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Insert,
    Select,
    and_,
    any_,
    case,
    cast,
    delete,
    event,
    exists,
    func,
    inspect,
    literal,
    literal_column,
    or_,
    select,
    text,
    update,
)  # fmt: skip
from sqlalchemy.dialects import postgresql

from ..archive.database import Database, Purpose
from ..errors import (
    InvalidInput,
    OutboxError,
    OutboxMissing,
    OutboxRefusesWrites,
    OutboxUnavailable,
    OutboxVersion,
)
from ..store.jobs.records import Encoded, rest_of, url_and_priority, url_line
from ..times.durations import Duration
from .batch import Batch, Placed, Row, RowState, Unfit
from .checks import check_row
from .tables import (
    HORIZON,
    LEASES,
    PLAIN,
    ROWS,
    SCHEMA_VERSION,
    VERSIONS,
    WITH_HORIZON,
    creation,
    due_at,
    insert_if_missing,
    now_ms,
)  # fmt: skip
from .wakeups import Wakeups, wakeups

BATCH = 500
_MOST_BYTES = 4 * 1024 * 1024
_PURPOSE = Purpose(
    "outbox", "rows that were not relayed are still in it", OutboxError, OutboxUnavailable, OutboxRefusesWrites,
    mysql=True,
)  # fmt: skip


class LeaseLost(Exception):
    """Another relay has taken over. Nothing was written."""


class Rows:
    """One outbox, and the rows of one namespace in it.

    Raises (in the constructor; every method may raise the database's errors):
        InvalidInput: the URL is invalid, or the driver is missing.
        OutboxError: depending on the database's error.
    """

    def __init__(self, url: str, namespace: str) -> None:
        self._db = Database(url, _PURPOSE, create=False)
        self.address = self._db.address
        self._namespace = namespace
        if self._db.is_postgresql:
            event.listen(self._db.engine, "connect", _end_when_idle)
        elif self._db.is_mysql:
            event.listen(self._db.engine, "connect", _end_when_idle_in_mysql)
        try:
            self.outbox, self.horizon_ms = self._known()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._db.close()

    def learn_horizon(self) -> None:
        """Reads it again. A process that changes it takes the lease from the active relay."""
        self.outbox, self.horizon_ms = self._known()

    def _known(self) -> tuple[str, int | None]:
        """The outbox's name in Redis, and its horizon; None: it has none."""
        if self._db.is_missing_file:
            raise OutboxMissing(f"no outbox at {self.address}: there is no such file; check the path")
        with self._db.reading() as db:
            there = inspect(db).has_table(VERSIONS.name)
        found: dict[str, tuple[int, str]] = {}
        with self._db.reading() as db:
            for name, version, outbox in db.execute(select(VERSIONS)) if there else ():
                found[name] = version, outbox
        if "schema" not in found:  # also if `create` was interrupted, in a database that commits each of its statements
            raise OutboxMissing(f"no outbox at {self.address}: `streamdq outbox create` makes one")
        version, outbox = found["schema"]
        if version not in (PLAIN, WITH_HORIZON):
            raise OutboxVersion(
                f"the outbox at {self.address} has schema version {version}, and this streamdq knows "
                f"{SCHEMA_VERSION}: use the version of streamdq that made it, or a later one"
            )
        return outbox, found[HORIZON][0] * 1000 if version == WITH_HORIZON else None

    def wakeups(self, look_s: float | None = None) -> AbstractContextManager[Wakeups]:
        """Waits for commits to the outbox. ``look_s``: how often to look for one, where the database does not tell."""
        return wakeups(self._db, self._namespace, look_s, lambda: self.horizon_ms)

    # -- the lease

    def take_lease(self, holder: str, lease_ms: int, above: int, force: bool) -> int | None:
        """Takes the relay's lease if it is free or held by ``holder``, or by ``force`` from another. Returns the epoch,
        which is higher than any before and ``above``; None: another relay has it.
        """
        c = LEASES.c
        ours = c.namespace == self._namespace
        # One that ends later than any lease can is from before the database's clock was set back.
        over = or_(c.until_ms < now_ms(), c.until_ms > now_ms() + lease_ms)
        free = or_(over, c.holder == holder, literal(force))
        with self._db.reading() as db:
            there = db.execute(select(case((free, True), else_=False)).where(ours)).scalar()
        if there is not None and not there:
            return None
        with self._db.writing() as db:
            if there is None:  # in MySQL it would wait for the transaction that has locked the row
                db.execute(self._first_lease())
            found = db.execute(select(c.epoch).where(ours, free).with_for_update(skip_locked=True)).scalar()
            if found is None:
                return None
            epoch = max(int(found), above) + 1
            db.execute(update(LEASES).where(ours).values(epoch=epoch, holder=holder, until_ms=now_ms() + lease_ms))
        return epoch

    def _first_lease(self) -> Insert:
        values = {"namespace": self._namespace, "epoch": 0, "holder": "", "until_ms": 0}
        return insert_if_missing(self._db.engine.dialect.name, LEASES, **values)

    def release_lease(self, epoch: int) -> None:
        c = LEASES.c
        with self._db.writing() as db:
            db.execute(
                update(LEASES).where(c.namespace == self._namespace, c.epoch == epoch).values(holder="", until_ms=0)
            )

    def write_states(
        self,
        epoch: int,
        lease_ms: int,
        turned: Sequence[tuple[RowState, Collection[int]]] = (),
        errors: Sequence[tuple[int, str]] = (),
        gone: Collection[int] = (),
    ) -> None:
        """Renews the lease, and in the same transaction gives rows their new states (by numbers), refuses rows with an
        error, and deletes the ``gone``. A row that is to wait again, and whose id a later row has, counts as ended.

        Raises:
            LeaseLost
        """
        with self._db.writing() as db:
            self._renew(db, epoch, lease_ms)
            for state, numbers in turned:
                back = state is RowState.WAITING
                over = self._overtaken(db, numbers) if back else set()
                self._turn(db, self._next_state if back else state, set(numbers) - over)
                self._turn(db, RowState.RELAYED, over)
            for number, error in errors:
                self._turn(db, RowState.REFUSED, [number], error)
            if gone:
                self._delete(db, RowState.RELAYED, gone)

    def _renew(self, db: Connection, epoch: int, lease_ms: int) -> None:
        own = (LEASES.c.namespace == self._namespace, LEASES.c.epoch == epoch)
        if db.execute(update(LEASES).where(*own).values(until_ms=now_ms() + lease_ms)).rowcount == 0:
            raise LeaseLost

    def _turn(self, db: Connection, state: RowState, numbers: Collection[int], error: str | None = None) -> None:
        if numbers:
            db.execute(update(ROWS).where(self._among(numbers)).values(state=state.value, error=error))

    def _delete(self, db: Connection, state: RowState, numbers: Collection[int]) -> int:
        if self._db.is_mysql:
            values = {"numbers": json.dumps(sorted(numbers)), "state": state.value, "namespace": self._namespace}
            return db.execute(_DELETE_IN_MYSQL, values).rowcount
        ours = (ROWS.c.namespace == self._namespace, ROWS.c.state == state.value)
        return db.execute(delete(ROWS).where(*ours, self._among(numbers))).rowcount

    def _among(self, numbers: Collection[int]) -> ColumnElement[bool]:
        """Whether a row has one of these numbers."""
        if not self._db.is_postgresql:
            return ROWS.c.number.in_(numbers)
        # One parameter: psycopg needs longer for five hundred than the server for the rows.
        return ROWS.c.number == any_(cast(list(numbers), postgresql.ARRAY(BigInteger)))

    def _overtaken(self, db: Connection, numbers: Collection[int]) -> set[int]:
        """Those of the rows whose id, and key, a later row has."""
        c, later = ROWS.c, ROWS.alias()
        same = (later.c.namespace == c.namespace, later.c.topic == c.topic, later.c.id == c.id)
        known = later.c.state.in_((RowState.KEPT.value, self._next_state.value))
        asked = select(c.number, c.id, c.job_key, later.c.id, later.c.job_key)
        pairs = asked.join(later, and_(*same, later.c.number > c.number, known)).where(self._among(numbers))
        # Compared once more, as MySQL does not tell "a" from "a ".
        return {number for number, id, key, *other in db.execute(pairs) if [id, key] == other}

    # -- rows

    @property
    def _next_state(self) -> RowState:
        """Of rows that are sent to Redis next. With a horizon, a row that waits has never been there."""
        return RowState.WAITING if self.horizon_ms is None else RowState.RELAYING

    def claim(self, epoch: int, lease_ms: int, without: Collection[str] = ()) -> Batch:
        """Marks rows that are due within the horizon, before any of them is sent to Redis, and reads them: the first
        500, except those of the topics ``without`` and those that a transaction is about to change. Without a horizon,
        none. ``outbox.cancel`` and ``reschedule`` leave marked rows alone.

        Raises:
            LeaseLost
        """
        if self.horizon_ms is None or (
            self._db.is_sqlite and not self.is_due(without)
        ):  # where it locks out all others
            return self._batch([])
        with self._db.writing() as db:
            numbers = db.execute(self._due(without).limit(BATCH).with_for_update(skip_locked=True)).scalars().all()
            if not numbers:
                return self._batch([])
            self._renew(db, epoch, lease_ms)
            self._turn(db, RowState.RELAYING, numbers)
            found = db.execute(self._first(without)).mappings().all()
        return self._batch(found)._replace(is_all=len(found) == len(numbers) and not without)

    def is_due(self, without: Collection[str] = ()) -> bool:
        """Whether rows are due within the horizon that nobody has marked. Without a horizon nobody marks rows."""
        if self.horizon_ms is None:
            return False
        with self._db.reading() as db:
            return db.execute(self._due(without).limit(1)).first() is not None

    def _due(self, without: Collection[str]) -> Select[Any]:
        due = due_at()
        found = select(ROWS.c.number).where(*self.that_wait(), due <= self.end_of_horizon())
        if without:
            found = found.where(ROWS.c.topic.not_in(without))
        return found.order_by(due, ROWS.c.number)

    def end_of_horizon(self) -> Any:
        """Rows that are due until then are relayed."""
        # A query of its own, so that PostgreSQL looks at its clock once. It would compare each row with the moment at
        # which it comes to it, and so read all of them, as no index leads to that.
        return select(now_ms() + self.horizon_ms).scalar_subquery()

    def that_wait(self) -> tuple[Any, Any]:
        # The state is written out, as a parameter would not lead to an index of such rows alone.
        return ROWS.c.namespace == self._namespace, ROWS.c.state == literal_column(f"'{RowState.WAITING}'")

    def waiting(self, without: Collection[str] = (), epoch: int | None = None) -> Batch:
        """The first rows to be relayed that are committed, at most 500 and 4 MB, except those of the topics
        ``without``: rows that wait or, with a horizon, that were marked. None if another relay has a later ``epoch``.
        """
        query = self._first(without, epoch)
        with self._db.reading() as db:
            return self._batch(db.execute(query).mappings().all())

    def _first(self, without: Collection[str], epoch: int | None = None) -> Select[Any]:
        c = ROWS.c
        first = select(ROWS).where(c.namespace == self._namespace, c.state == self._next_state.value)
        if epoch is not None:
            first = first.where(exists().where(LEASES.c.namespace == self._namespace, LEASES.c.epoch == epoch))
        if without:
            first = first.where(c.topic.not_in(without))
        page = first.order_by(c.number).limit(BATCH).subquery()
        size = func.length(page.c.body)
        summed = select(page, (func.sum(size).over(order_by=page.c.number) - size).label("before")).subquery()
        return select(summed, now_ms().label("now_ms")).where(summed.c.before < _MOST_BYTES).order_by(summed.c.number)

    def _batch(self, found: Sequence[Any]) -> Batch:
        read_at, rows, unfit = time.monotonic(), list[Row](), list[Unfit]()
        for row in found:
            try:
                check_row(row)
            except InvalidInput as error:
                unfit.append(Unfit(self._placed_at(row), f"InvalidInput: {error}"))
            else:
                rows.append(self._row(row))
        return Batch(rows, unfit, found[0]["now_ms"] if found else 0, read_at)

    def kept(self, after: int) -> list[Placed]:
        """The first kept rows above the number ``after``."""
        return self._placed(RowState.KEPT, after)

    def relayed(self, without: Collection[str] = ()) -> list[Placed]:
        """The first rows whose receipts have to be cleared before they are deleted, except those of ``without``."""
        return self._placed(RowState.RELAYED, 0, without)

    def _placed(self, state: RowState, after: int, without: Collection[str] = ()) -> list[Placed]:
        c = ROWS.c
        of_state: Any = c.state == state.value
        if self._db.is_sqlite:  # if most rows are for later, it would read all of them in the order of their numbers
            of_state = func.unlikely(of_state)
        query = select(c.number, c.topic, c.id, c.nonce, c.job_key).where(
            c.namespace == self._namespace, of_state, c.number > after
        )
        if without:
            query = query.where(c.topic.not_in(without))
        with self._db.reading() as db:
            found = db.execute(query.order_by(c.number).limit(BATCH)).all()
        return [Placed(number, topic, id, self._receipt(number, nonce), key) for number, topic, id, nonce, key in found]

    def last(self) -> int:
        """The highest number of any committed row."""
        with self._db.reading() as db:
            return int(db.execute(select(func.coalesce(func.max(ROWS.c.number), 0))).scalar_one())

    def existing(self, numbers: Collection[int]) -> set[int]:
        """Those of the numbers that are still rows."""
        with self._db.reading() as db:
            return set(db.execute(select(ROWS.c.number).where(self._among(numbers))).scalars())

    def _receipt(self, number: int, nonce: str) -> str:
        return f"{self.outbox}:{number}:{nonce}"

    def _row(self, found: Any) -> Row:
        when = f"+{found['delay_ms']}" if found["due_ms"] is None else str(found["due_ms"])
        fields = {name: found[name] for name in ("ttr_ms", "expire_ms", "nonce", "retry", "body")}
        line = url_line(found["url"], found["job_key"])
        priority = url_and_priority(found["url"])[1]
        job = Encoded(found["id"], when, rest_of(**fields, url=line), found["nonce"], priority=priority)
        on_conflict, made_ms, since_ms = found["on_conflict"], found["made_ms"], found["made_ms"]
        if self.horizon_ms is not None:
            due_ms = made_ms + found["delay_ms"] if found["due_ms"] is None else found["due_ms"]
            since_ms = due_ms - self.horizon_ms
        replaces, keeps = on_conflict == "replace", on_conflict == "keep"
        return Row(self._placed_at(found), job, made_ms, since_ms, replaces, keeps)

    def _placed_at(self, found: Any) -> Placed:
        number = found["number"]
        return Placed(number, found["topic"], found["id"], self._receipt(number, found["nonce"]), found["job_key"])


# If many rows are to be deleted, MySQL reads the whole table, and waits for everybody who has put a row there and not
# committed it, unless it has to look up each number. An UPDATE, READ COMMITTED, waits for its own rows alone.
_DELETE_IN_MYSQL = text("""
DELETE gone FROM JSON_TABLE(:numbers, '$[*]' COLUMNS (number BIGINT PATH '$')) AS given
STRAIGHT_JOIN streamdq_outbox AS gone FORCE INDEX (PRIMARY) ON gone.number = given.number
WHERE gone.namespace = :namespace AND gone.state = :state
""")


def _end_when_idle(connection: Any, _record: Any) -> None:
    """Ends a transaction whose relay was stopped (SIGSTOP) in the middle, as it would lock out other relays."""
    connection.execute("SET idle_in_transaction_session_timeout = '5s'")
    connection.commit()


def _end_when_idle_in_mysql(connection: Any, _record: Any) -> None:
    """As above. MySQL, unlike MariaDB, can end only a connection, whether or not it is in a transaction."""
    variable = "idle_transaction_timeout" if "mariadb" in connection.get_server_info().lower() else "wait_timeout"
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION {variable} = 5")


def create(url: str, horizon: Duration | None = None) -> str:
    """Creates an outbox, as far as it is missing, and sets its horizon if one is given; returns the database's address.

    Raises:
        InvalidInput, OutboxError
    """
    database = Database(url, _PURPOSE, create=True)
    try:
        with database.writing() as db:
            _execute_all(db, creation(db.dialect.name, horizon))
    finally:
        database.close()
    return database.address


def creation_at(url: str, horizon: Duration | None = None) -> list[str]:
    """The statements that create the outbox in this kind of database, and set its horizon.

    Raises:
        InvalidInput
    """
    database = Database(url, _PURPOSE, create=False)
    database.close()
    return creation(database.engine.dialect.name, horizon)


def _execute_all(db: Connection, statements: Sequence[str]) -> None:
    for statement in statements:
        db.execute(text(statement))
