"""The outbox's tables, and the statements that create them. Needs the extra ``outbox``."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Insert, Integer, MetaData, Table, Text, text
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.functions import FunctionElement

from ..errors import InvalidInput

SCHEMA_VERSION = 1
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


def creation(dialect: str) -> list[str]:
    """The statements that create what is missing, for one transaction; but MySQL commits each by itself.

    Raises:
        InvalidInput: the outbox does not know this kind of database.
    """
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
    # Named by the database: a migration of printed statements may run in several, whose outboxes share one Redis.
    name = text(_RANDOM_NAMES[dialect])
    named = insert_if_missing(dialect, VERSIONS, name="schema", version=SCHEMA_VERSION, outbox=name)
    statements.append(written(named))
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
CREATE TRIGGER streamdq_outbox_notify AFTER INSERT ON streamdq_outbox
    FOR EACH STATEMENT EXECUTE FUNCTION streamdq_outbox_notify()
""".strip().split("\n---\n")
