"""The schema: declared once, and everywhere the same."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from streamdq.dump.arrow import arrow_schema
from streamdq.store.history import COLUMNS, FIELDS, KEY_COLUMNS, SCHEMA_VERSION, VERSION_KEY, Column, Event, HistoryRow

PAGE = Path(__file__).parents[3] / "docs" / "history.md"


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
    assert names & set(FIELDS) or column.name in KEY_COLUMNS


def test_the_version_travels_with_the_arrow_schema() -> None:
    assert arrow_schema().metadata == {VERSION_KEY.encode(): SCHEMA_VERSION.encode()}
    assert [str(kind) for kind in arrow_schema().types if "time" in str(kind)] == ["timestamp[us, tz=UTC]"] * 5
