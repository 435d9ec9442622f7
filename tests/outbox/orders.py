"""A shop that puts orders and jobs into one database, and looks at what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, create_engine, event, text

from streamdq import Queue, outbox
from tests.servers import Server
from tests.waiting import HANG_S

TOPIC = "order.close"


def driver_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://").replace("mysql://", "mysql+pymysql://")


class Shop:
    """An application with its own engine."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = create_engine(driver_url(url))
        if self.engine.dialect.name == "sqlite":
            event.listen(self.engine, "connect", _be_patient)

    @contextmanager
    def sale(self) -> Iterator[Connection]:
        with self.engine.begin() as db:
            yield db

    def order(self, *ids: str, topic: str = TOPIC, **options: Any) -> None:
        """One transaction with a job for each order."""
        with self.sale() as db:
            for id in ids:
                outbox.enqueue(db, topic, {"order": id}, id=id, **options)

    def sql(self, statement: str, **values: Any) -> list[Any]:
        with self.engine.begin() as db:
            done = db.execute(text(statement), values)
            return list(done.all()) if done.returns_rows else []

    def states(self) -> dict[str, int]:
        """How many rows are in each state."""
        return dict(Counter(state for (state,) in self.sql("SELECT state FROM streamdq_outbox")))

    def close(self) -> None:
        self.engine.dispose()


def _be_patient(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA busy_timeout = 10000")


def finish(queue: Queue, topic: str = TOPIC) -> list[str]:
    """Finishes all jobs that are due; returns their ids in the order in which they came."""
    done: list[str] = []
    while _is_due(queue, topic):
        claim = queue.take(topic, timeout=HANG_S)
        assert claim
        while True:
            claim.finish()
            done.append(claim.job.id)
            claim = queue.take(topic, timeout=0)
            if not claim:
                break
    return done


def _is_due(queue: Queue, topic: str) -> bool:
    """Whether a job is ready, or will be once a mover has moved it. Asked in the direction in which it moves, so
    that it is not missed on its way.
    """
    if topic not in queue.stats().topics:
        return False
    return queue.upcoming(topic, ["0s"])["0s"] > 0 or queue.stats().topics[topic].groups["default"].ready > 0


def receipts(server: Server) -> list[str]:
    with server.client() as client:
        fields = [field.decode() for key in client.scan_iter("*:outbox") for field in client.hkeys(key)]
    return sorted(fields)


def ownerless_receipts(server: Server, shop: Shop) -> list[str]:
    """Receipts in Redis whose rows are gone."""
    there = {number for (number,) in shop.sql("SELECT number FROM streamdq_outbox")}
    return [receipt for receipt in receipts(server) if int(receipt.split(":")[1]) not in there]
