"""The queries of the archive's page answer what the page says, on the database that it says."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from streamdq import Queue
from streamdq.archive import Archive
from tests.archive.letters import bury
from tests.postgres import Postgres

PAGE = (Path(__file__).parents[2] / "docs/archive.md").read_text()
(PRINTED,) = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
MOST_FAILED, ORDERS = (query.strip() for query in PRINTED.split(";") if query.strip())


@pytest.fixture
def letters(queue: Queue, archive: Archive) -> None:
    """Three that failed in two ways, one of another topic, and one that was sent back."""
    for id, why in (("a", "Timeout: 3 s"), ("b", "Timeout: 5 s"), ("c", "Declined: card")):
        bury(queue, id, topic="order.close", why=why)
    bury(queue, "d", topic="mail.send", why="Timeout: 1 s")
    archive.store(queue)
    archive.kick(queue, "order.close", "c")


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.usefixtures("letters")
def test_what_is_printed_for_postgresql(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url()) as connection:
        most: list[Any] = connection.execute(MOST_FAILED).fetchall()
        orders: list[Any] = connection.execute(ORDERS.replace("order_id", "n")).fetchall()
    assert most[0] == ("order.close", "default", "buried", "Timeout", 2)
    assert sorted(most[1:]) == [
        ("mail.send", "default", "buried", "Timeout", 1),
        ("order.close", "default", "buried", "Declined", 1),
    ]
    assert sorted(orders) == [("a", "a", "Timeout: 3 s"), ("b", "b", "Timeout: 5 s")]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.usefixtures("letters")
def test_what_is_said_of_sqlite(database: str) -> None:
    moment, field = re.findall(r"`([^`]*)`", PAGE.partition("In SQLite: ")[2])[:2]
    with sqlite3.connect(database.removeprefix("sqlite:///")) as connection:
        query = f"SELECT id, {field.replace('order_id', 'n')}, {moment} <= datetime('now') FROM streamdq_dead_letters"
        assert sorted(connection.execute(query)) == [(id, id, 1) for id in "abcd"]
