"""The archive's tables. Needs the extra ``archive``."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text, UniqueConstraint

SCHEMA_VERSION = 1
KEY = ("namespace", "topic", "group_name", "id", "buried_ms", "sequence")
"""One row per burial: a job that is kicked and buried again gets another row."""

_metadata = MetaData()

VERSIONS = Table(
    "streamdq_archive_schema",
    _metadata,
    Column("name", Text, primary_key=True),
    Column("version", Integer, nullable=False),
)

DEAD_LETTERS = Table(
    "streamdq_dead_letters",
    _metadata,
    # 64 bits in both databases: SQLite numbers rows itself only if the type is INTEGER.
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("namespace", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("error", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("crashes", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("url", Text),
    Column("created_ms", BigInteger, nullable=False),
    Column("due_ms", BigInteger, nullable=False),
    Column("buried_ms", BigInteger, nullable=False),
    Column("archived_ms", BigInteger, nullable=False),
    Column("kicked_ms", BigInteger),
    Column("ttr_ms", BigInteger),
    Column("retry", Text),
    Column("expire_ms", BigInteger),
    Column("nonce", Text, nullable=False),
    Column("sequence", Text, nullable=False),
    UniqueConstraint(*KEY, name="streamdq_dead_letters_key"),
    Index("streamdq_dead_letters_by_state", "namespace", "state", "number"),
)
