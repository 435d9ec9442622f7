"""What the page of the outbox shows is what there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from streamdq import Queue, outbox
from streamdq.outbox import rows
from streamdq.outbox.batch import RowState
from streamdq.outbox.relay import Relay
from streamdq.outbox.tables import ROWS, SCHEMA_VERSION
from tests.outbox.orders import TOPIC, Shop, driver_url, finish
from tests.postgres import Postgres
from tests.servers import Server
from tests.turns import others_later
from tests.waiting import HANG_S

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "outbox.md").read_text()
REFERENCE = (DOCS / "reference/outbox.md").read_text()


def test_the_example_runs_as_it_stands(server: Server, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (code,) = (text for text in blocks if "try_outbox" in text)
    (tmp_path / "try_outbox.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "try_outbox.py"], cwd=tmp_path, env={**os.environ, "STREAMDQ_URL": server.url},
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert "topic='order.close', id='order-42'" in done.stdout, done.stderr


def test_every_column_and_state_is_explained() -> None:
    table = REFERENCE.partition("| column | holds |")[2].partition("\n\n")[0]
    explained = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE))))
    assert explained == {column.name for column in ROWS.columns}
    assert all(f"`{state}`" in table for state in RowState)
    assert f"the version, {SCHEMA_VERSION}," in REFERENCE.replace("\n", " ")


@pytest.fixture
def granted(postgres: Postgres, shop: Shop) -> Iterator[Postgres]:
    """The two roles have the rights that the page prints, and no others."""
    (printed,) = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    shop.close()
    roles = ("shop", "relay")
    postgres.sql(*(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'" for role in roles), printed)
    yield postgres
    postgres.sql(*(f"DROP {what} {role}" for role in roles for what in ("OWNED BY", "ROLE")))


@pytest.mark.parametrize("keep", others_later([False, True], True))
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_these_rights_are_enough(granted: Postgres, queue: Queue, keep: bool) -> None:
    with Relay(granted.url("relay", "relay"), queue, keep=keep) as relay:
        engine = sqlalchemy.create_engine(driver_url(granted.url("shop", "shop")))
        with engine.begin() as db:
            outbox.enqueue(db, TOPIC, {"order": "a"}, id="a")
        relay.run(burst=True)
        assert finish(queue) == ["a"]
        relay.run(burst=True)
        relay.reconcile()
        with pytest.raises(sqlalchemy.exc.ProgrammingError, match="permission denied"), engine.begin() as db:
            db.execute(sqlalchemy.text("SELECT * FROM streamdq_outbox"))
        rows.create(granted.url(), "1d")
        granted.sql(*_rights_of_changes())
        with engine.begin() as db:
            outbox.enqueue(db, TOPIC, {"order": "b"}, id="b", delay="9d")
            assert outbox.reschedule(db, TOPIC, "b", delay="8d")
            assert outbox.cancel(db, TOPIC, "b")
        relay.run(burst=True)
        engine.dispose()


def _rights_of_changes() -> list[str]:
    """The rights that the page names for changes of rows that wait."""
    (sentence,) = re.findall(r"^- The program also needs the rights (.*)\.$", PAGE, re.MULTILINE)
    return [f"GRANT {rights} ON {table} TO shop" for rights, table in re.findall(r"`([A-Z, ]+)` on `(\w+)`", sentence)]
