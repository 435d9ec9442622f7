"""The outbox's tables, and the statements that create them. Needs the extra ``outbox``."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Insert, Integer, MetaData, Table, Text, text
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.functions import FunctionElement

from ..errors import InvalidInput
from ..times.durations import Duration, to_ms

PLAIN, WITH_HORIZON = 1, 2
SCHEMA_VERSION = WITH_HORIZON
"""The newest. In version 2 a relay marks rows before it sends them to Redis, and leaves those that are due later."""

HORIZON = "horizon"
"""The row of ``VERSIONS`` that has it, in seconds, as its version."""

LEAST_HORIZON_MS = 60_000
"""Another relay takes over within seconds, and clocks differ by less; no row may come late by that."""
CHANNEL = "streamdq_outbox"
"""PostgreSQL notifies it when a transaction that put rows into the outbox commits."""

_LOCK = 0x73646F62  # any number, as long as every streamdq uses the same

_metadata = MetaData()


def _text(mysql_chars: int) -> Text:
    """MySQL can put only what has a length into an index."""
    return Text().with_variant(mysql.VARCHAR(mysql_chars), "mysql", "mariadb")


_LONG = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")  # its TEXT has 64 kB
_IN_MYSQL: dict[str, Any] = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    # The default engine may know no transactions, and the default collation not tell "a" from "A".
    for option, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}

VERSIONS = Table(
    "streamdq_outbox_schema",
    _metadata,
    Column("name", _text(16), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("outbox", Text, nullable=False),  # names this outbox in Redis, where there may be several
    **_IN_MYSQL,
)

LEASES = Table(
    "streamdq_outbox_relays",
    _metadata,
    Column("namespace", _text(64), primary_key=True),
    Column("epoch", BigInteger, nullable=False),  # one more for each relay that takes over
    Column("holder", Text, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    **_IN_MYSQL,
)

ROWS = Table(
    "streamdq_outbox",
    _metadata,
    # 64 bits in every database: SQLite numbers rows itself only if the type is INTEGER. A number is not used twice, or
    # SQLite would give a new row that of the last one deleted.
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("namespace", _text(64), nullable=False),
    Column("topic", _text(255), nullable=False),
    Column("id", _text(255), nullable=False),
    Column("state", _text(16), nullable=False),
    Column("body", _LONG, nullable=False),
    Column("delay_ms", BigInteger),
    Column("due_ms", BigInteger),
    Column("ttr_ms", BigInteger),
    Column("retry", Text),
    Column("url", Text),
    Column("job_key", Text),
    Column("expire_ms", BigInteger),
    Column("on_conflict", Text, nullable=False),
    Column("nonce", Text, nullable=False),
    Column("made_ms", BigInteger, nullable=False),
    Column("error", Text),
    Index("streamdq_outbox_by_state", "namespace", "state", "number"),
    Index("streamdq_outbox_by_id", "namespace", "topic", "id"),
    sqlite_autoincrement=True,
    **_IN_MYSQL,
)


class now_ms(FunctionElement[int]):  # noqa: N801 - an SQL function
    """The database's clock at this moment (in MySQL, when the statement began), not at the beginning of the
    transaction.
    """

    type = BigInteger()
    inherit_cache = True


class due_at(FunctionElement[int]):  # noqa: N801 - an SQL function
    """When a row's job is due, by the database's clock. The index of the horizon has it. A row without any time is due
    at once, and refused.
    """

    type = BigInteger()
    inherit_cache = True


_DUE_AT = "coalesce({0}due_ms, {0}made_ms + {0}delay_ms, 0)"


@compiles(due_at)
def _due_at(_element: Any, _compiler: Any, **_: Any) -> str:
    return _DUE_AT.format("streamdq_outbox.")


@compiles(due_at, "mysql", "mariadb")
def _due_at_in_mysql(_element: Any, _compiler: Any, **_: Any) -> str:
    return "streamdq_outbox.due_at_ms"  # MariaDB has no index of an expression


@compiles(now_ms)
def _on_others(_element: Any, compiler: Any, **_: Any) -> str:
    raise _unknown(compiler.dialect.name)


@compiles(now_ms, "postgresql")
def _on_postgresql(_element: Any, _compiler: Any, **_: Any) -> str:
    return "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)"


@compiles(now_ms, "sqlite")
def _on_sqlite(_element: Any, _compiler: Any, **_: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


@compiles(now_ms, "mysql", "mariadb")
def _on_mysql(_element: Any, _compiler: Any, **_: Any) -> str:
    # unix_timestamp() would ask for the local time, of which an hour comes twice a year.
    return "(timestampdiff(MICROSECOND, '1970-01-01', utc_timestamp(3)) DIV 1000)"


def _unknown(dialect: str) -> InvalidInput:
    return InvalidInput(f"outbox: {dialect} is none of sqlite, postgresql, mysql and mariadb")


_DIALECTS: dict[str, Any] = {"postgresql": postgresql, "sqlite": sqlite, "mysql": mysql, "mariadb": mysql}


def dialect_of(name: str) -> Any:
    """SQLAlchemy's module for this kind of database.

    Raises:
        InvalidInput: the outbox does not know it.
    """
    if name not in _DIALECTS:
        raise _unknown(name)
    return _DIALECTS[name]


def insert_if_missing(dialect: str, table: Table, **values: Any) -> Insert:
    """An insertion that changes nothing if the row is there."""
    insert = dialect_of(dialect).insert(table).values(**values)
    if dialect in ("mysql", "mariadb"):
        (key,) = table.primary_key
        return insert.on_duplicate_key_update({key.name: key})  # type: ignore[no-any-return]
    return insert.on_conflict_do_nothing()  # type: ignore[no-any-return]


def creation(dialect: str, horizon: Duration | None = None) -> list[str]:
    """The statements that create what is missing, for one transaction; but MySQL commits each by itself. ``horizon``:
    they also set it, in an outbox that is new or in use.

    Raises:
        InvalidInput: the outbox does not know this kind of database, or the horizon is too short.
    """
    horizon_s = None if horizon is None else _horizon_s(horizon)
    as_text: dict[str, Any] = {"dialect": dialect_of(dialect).dialect(), "compile_kwargs": {"literal_binds": True}}

    def written(element: Any) -> str:
        return str(element.compile(**as_text)).strip()

    statements: list[str] = []
    for table in (LEASES, ROWS, VERSIONS):
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        made = written(CreateTable(table, if_not_exists=True))
        if dialect in ("mysql", "mariadb"):
            statements.append(_with_indexes(made, indexes))
        else:
            statements += [made, *(written(CreateIndex(index, if_not_exists=True)) for index in indexes)]
        if table is LEASES and horizon_s is not None:
            statements.append(_FENCING)
    # Named by the database: a migration of printed statements may run in several, whose outboxes share one Redis.
    name = text(_RANDOM_NAMES[dialect])
    named = insert_if_missing(dialect, VERSIONS, name="schema", version=PLAIN, outbox=name)
    statements.append(written(named))
    if horizon_s is not None:
        first = insert_if_missing(dialect, VERSIONS, name=HORIZON, version=horizon_s, outbox="")
        statements += [*_BY_DUE[dialect], *_TURNING, written(first), _SETTING.format(horizon_s)]
    if dialect != "postgresql":
        return statements
    # IF NOT EXISTS alone fails if two processes create it at once.
    return [f"SELECT pg_advisory_xact_lock({_LOCK})", *statements, *_NOTIFYING]


def _with_indexes(table: str, indexes: list[Index]) -> str:
    """MySQL has no CREATE INDEX IF NOT EXISTS."""
    columns, end, options = table.rpartition("\n)")
    keys = [f"KEY {index.name} ({', '.join(column.name for column in index.columns)})" for index in indexes]
    return ", \n\t".join([columns.rstrip(), *keys]) + end + options


_RANDOM_NAMES = {
    "postgresql": "substr(md5(random()::text || clock_timestamp()::text), 1, 12)",
    "sqlite": "lower(hex(randomblob(6)))",
    **dict.fromkeys(("mysql", "mariadb"), "substr(md5(concat(uuid(), rand())), 1, 12)"),
}

_NOTIFYING = f"""
CREATE OR REPLACE FUNCTION streamdq_outbox_notify() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN PERFORM pg_notify('{CHANNEL}', ''); RETURN NULL; END $$
---
DROP TRIGGER IF EXISTS streamdq_outbox_notify ON streamdq_outbox
---
CREATE TRIGGER streamdq_outbox_notify AFTER INSERT OR UPDATE OF due_ms, delay_ms ON streamdq_outbox
    FOR EACH STATEMENT EXECUTE FUNCTION streamdq_outbox_notify()
""".strip().split("\n---\n")

# -- the horizon
#
# The first statement takes the lease from the active relay, which reads nothing from then on that it was not given
# before. Rows that it may have read, and may still send, are turned to ``relaying`` before the version says that relays
# mark each row first. So a row that is ``waiting`` in version 2 was sent by nobody.

_FENCING = "UPDATE streamdq_outbox_relays SET epoch = epoch + 1, holder = '', until_ms = 0"
_TURNING = [
    """
    UPDATE streamdq_outbox SET state = 'relaying' WHERE state = 'waiting'
    AND EXISTS (SELECT 1 FROM streamdq_outbox_schema WHERE name = 'schema' AND version = 1)
    """.strip(),
    "UPDATE streamdq_outbox_schema SET version = 2 WHERE name = 'schema' AND version = 1",
]
_SETTING = "UPDATE streamdq_outbox_schema SET version = {} WHERE name = 'horizon'"

# Only of rows that wait, where a database can do that: the others change their state without touching it.
_PARTIAL = (
    "CREATE INDEX IF NOT EXISTS streamdq_outbox_by_due ON streamdq_outbox "
    f"(namespace, ({_DUE_AT.format('')}), number) WHERE state = 'waiting'"
)
_ADD_COLUMN = (
    f"ALTER TABLE streamdq_outbox ADD COLUMN due_at_ms BIGINT GENERATED ALWAYS AS ({_DUE_AT.format('')}) VIRTUAL, "
    "ADD KEY streamdq_outbox_by_due (namespace, state, due_at_ms, number)"
)
_HAS_COLUMN = (
    "SELECT count(*) FROM information_schema.columns WHERE table_schema = database() "
    "AND table_name = 'streamdq_outbox' AND column_name = 'due_at_ms'"
)
_BY_DUE: dict[str, tuple[str, ...]] = {
    "sqlite": (_PARTIAL,),
    # Those that put in a row and have not committed it come first, so that it is turned as well.
    "postgresql": ("LOCK TABLE streamdq_outbox IN SHARE ROW EXCLUSIVE MODE", _PARTIAL),
    **dict.fromkeys(("mysql", "mariadb"), (
        f"SET @streamdq_outbox = IF(({_HAS_COLUMN}) = 0, '{_ADD_COLUMN}', 'DO 0')",
        "PREPARE streamdq_outbox FROM @streamdq_outbox",
        "EXECUTE streamdq_outbox",
        "DEALLOCATE PREPARE streamdq_outbox",
    )),
}  # fmt: skip


def _horizon_s(horizon: Duration) -> int:
    ms = to_ms(horizon, "horizon")
    if ms < LEAST_HORIZON_MS:
        raise InvalidInput(f"horizon: {horizon!r} is too short: write at least 1m, so that no job comes late")
    return ms // 1000
