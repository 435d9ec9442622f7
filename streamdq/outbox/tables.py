"""The outbox's tables, and the statements that create them. Needs the extra ``outbox``."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.functions import FunctionElement

from ..errors import InvalidInput

SCHEMA_VERSION = 1
CHANNEL = "streamdq_outbox"
"""PostgreSQL notifies it when a transaction that put rows into the outbox commits."""

_LOCK = 0x73646F62  # any number, as long as every streamdq uses the same

_metadata = MetaData()

VERSIONS = Table(
    "streamdq_outbox_schema",
    _metadata,
    Column("name", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("outbox", Text, nullable=False),  # names this outbox in Redis, where there may be several
)

LEASES = Table(
    "streamdq_outbox_relays",
    _metadata,
    Column("namespace", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),  # one more for each relay that takes over
    Column("holder", Text, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
)

ROWS = Table(
    "streamdq_outbox",
    _metadata,
    # 64 bits in both databases: SQLite numbers rows itself only if the type is INTEGER. A number is not used twice, or
    # SQLite would give a new row that of the last one deleted.
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("namespace", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("delay_ms", BigInteger),
    Column("due_ms", BigInteger),
    Column("ttr_ms", BigInteger),
    Column("retry", Text),
    Column("url", Text),
    Column("expire_ms", BigInteger),
    Column("on_conflict", Text, nullable=False),
    Column("nonce", Text, nullable=False),
    Column("made_ms", BigInteger, nullable=False),
    Column("error", Text),
    Index("streamdq_outbox_by_state", "namespace", "state", "number"),
    Index("streamdq_outbox_by_id", "namespace", "topic", "id"),
    sqlite_autoincrement=True,
)


class now_ms(FunctionElement[int]):  # noqa: N801 - an SQL function
    """The database's clock at this moment, not at the beginning of the transaction."""

    type = BigInteger()
    inherit_cache = True


@compiles(now_ms)
def _on_others(_element: Any, compiler: Any, **_: Any) -> str:
    raise InvalidInput(f"outbox: {compiler.dialect.name} is neither sqlite nor postgresql")


@compiles(now_ms, "postgresql")
def _on_postgresql(_element: Any, _compiler: Any, **_: Any) -> str:
    return "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)"


@compiles(now_ms, "sqlite")
def _on_sqlite(_element: Any, _compiler: Any, **_: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


def creation(dialect: str) -> list[str]:
    """The statements that create what is missing, for one transaction.

    Raises:
        InvalidInput: for a database that is neither SQLite nor PostgreSQL.
    """
    if dialect not in ("sqlite", "postgresql"):
        raise InvalidInput(f"outbox: {dialect} is neither sqlite nor postgresql")
    module: Any = postgresql if dialect == "postgresql" else sqlite
    elements: list[Any] = []
    for table in (VERSIONS, LEASES, ROWS):
        elements.append(CreateTable(table, if_not_exists=True))
        elements += [CreateIndex(index, if_not_exists=True) for index in table.indexes]
    # Named by the database: a migration of printed statements may run in several, whose outboxes share one Redis.
    named = module.insert(VERSIONS).values(name="schema", version=SCHEMA_VERSION, outbox=text(_RANDOM_NAMES[dialect]))
    elements.append(named.on_conflict_do_nothing())
    as_text: dict[str, Any] = {"dialect": module.dialect(), "compile_kwargs": {"literal_binds": True}}
    statements = [str(element.compile(**as_text)).strip() for element in elements]
    if dialect == "sqlite":
        return statements
    # IF NOT EXISTS alone fails if two processes create it at once.
    return [f"SELECT pg_advisory_xact_lock({_LOCK})", *statements, *_NOTIFYING]


_RANDOM_NAMES = {
    "postgresql": "substr(md5(random()::text || clock_timestamp()::text), 1, 12)",
    "sqlite": "lower(hex(randomblob(6)))",
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
