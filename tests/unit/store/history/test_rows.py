"""The schema: declared once, and everywhere the same."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from streamdq.dump.arrow import arrow_schema, table_in
from streamdq.store.history.rows import (
    COLUMNS,
    FIELDS,
    SCHEMA_VERSION,
    VERSION_KEY,
    Column,
    Event,
    HistoryRow,
)
from tests.dumps import row_text

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "history.md"


def table_under(heading: str) -> list[list[str]]:
    section = PAGE.read_text().partition(heading)[2]
    lines = re.findall(r"^\|(.+)\|$", section, re.MULTILINE)
    return [[cell.strip().strip("`") for cell in line.split("|")] for line in lines]


def test_the_page_shows_the_columns() -> None:
    shown = table_under("## The rows")[2 : 2 + len(COLUMNS)]
    assert shown == [[c.name, str(c.type), "yes" if c.nullable else "", c.meaning] for c in COLUMNS]


def test_the_page_shows_the_events() -> None:
    shown = [row[0] for row in table_under("## The rows")[2 + len(COLUMNS) :]]
    assert set(Event) <= set(shown)


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_a_column_is_a_field_of_the_row_in_redis_or_says_where_it_is(column: Column) -> None:
    names = {column.name, f"{column.name}_ms"}
    assert names & {field.name for field in fields(HistoryRow)}
    assert names & set(FIELDS) or column.name in ("topic", "shard", "entry")


def test_rows_are_dumped_together_and_junk_is_left_out() -> None:
    texts = [
        row_text("a", 5),
        row_text("b", 6, key="k"),
        "junk",
        row_text("c", 7),
        row_text("d", 8) + "\x1f9",
    ]
    table = table_in("t", 0, [(f"{n}-1".encode(), [b"e", text.encode()]) for n, text in enumerate(texts)])
    assert table.select(["entry", "id", "key"]).to_pylist() == [
        {"entry": "0-1", "id": "a", "key": None},
        {"entry": "1-1", "id": "b", "key": "k"},
        {"entry": "3-1", "id": "c", "key": None},
    ]


def test_the_version_travels_with_the_arrow_schema() -> None:
    assert arrow_schema().metadata == {VERSION_KEY.encode(): SCHEMA_VERSION.encode()}
    assert [str(kind) for kind in arrow_schema().types if "time" in str(kind)] == ["timestamp[us, tz=UTC]"] * 5
