"""The database is killed again and again, while orders come in and relays work: no order is missing, and none is closed
twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import pytest
from sqlalchemy.exc import SQLAlchemyError

from streamdq import Queue
from streamdq.errors import OutboxUnavailable
from streamdq.outbox.relay import Relay
from tests.outbox.orders import Shop, finish
from tests.postgres import Postgres
from tests.servers import Server
from tests.waiting import HANG_S, until

if TYPE_CHECKING:
    from tests.mariadb import Mariadb

KILLS, BETWEEN = 5, 60


class Traffic:
    """Orders, and two relays, which both look for the database again when it is away."""

    def __init__(self, url: str, redis: str) -> None:
        self.committed: list[str] = []
        self.unknown: list[str] = []  # their commits failed, which may have come to pass all the same
        self._url, self._redis = url, redis
        self._stop = threading.Event()
        targets: list[Callable[[], None]] = [self._order, self._relay, self._relay]
        self._threads = [threading.Thread(target=target) for target in targets]

    def _order(self) -> None:
        shop, number = Shop(self._url), 0
        while not self._stop.is_set():
            ids = [f"{number}-{each}" for each in range(3)]
            number += 1
            try:
                shop.order(*ids)
            except SQLAlchemyError:
                self.unknown += ids
                shop.close()
            else:
                self.committed += ids
        shop.close()

    def _relay(self) -> None:
        with Queue(self._redis) as queue:
            while not self._stop.is_set():
                try:
                    with Relay(self._url, queue, keep=True) as relay:
                        relay.run(self._stop.is_set)
                except OutboxUnavailable:
                    self._stop.wait(0.05)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(HANG_S)
            assert not thread.is_alive()


@pytest.mark.thorough
@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_a_database_that_is_killed_again_and_again(
    shop: Shop, queue: Queue, server: Server, running: Postgres | Mariadb
) -> None:
    with Traffic(shop.url, server.url) as traffic:
        for _ in range(KILLS):
            enough = len(traffic.committed) + BETWEEN
            until(lambda enough=enough: len(traffic.committed) > enough, "orders come in")  # type: ignore[misc]
            running.stop()
            running.start()
    shop.close()
    with Relay(shop.url, queue, keep=True) as relay:
        relay.run(burst=True)
        done = finish(queue)
        relay.reconcile()
    assert set(traffic.committed) <= set(done) <= {*traffic.committed, *traffic.unknown}
    assert len(done) == len(set(done))
    assert (shop.states(), finish(queue)) == ({}, [])
