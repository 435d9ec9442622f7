"""What a scrape shows of an outbox."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, Gauge

from streamdq import Queue
from streamdq.metrics import declared
from streamdq.outbox import collector as module
from streamdq.outbox.collector import OutboxCollector
from streamdq.outbox.relay import Relay
from tests.outbox.orders import TOPIC, Shop
from tests.postgres import Postgres
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from tests.mariadb import Mariadb

WAITING, OLDEST, LATER, REFUSED = (metric.name for metric in declared.FROM_OUTBOX)


@pytest.fixture
def registry(shop: Shop, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Iterator[CollectorRegistry]:
    monkeypatch.setattr(module, "_ANSWER_S", HANG_S)
    monkeypatch.setattr(module, "_KEPT_S", 86_400.0)
    with contextlib.closing(OutboxCollector(shop.url, queue.namespace)) as collector:
        registry = CollectorRegistry()
        registry.register(collector)
        yield registry


def scraped(registry: CollectorRegistry) -> dict[str, float]:
    return {sample.name: sample.value for metric in registry.collect() for sample in metric.samples}


def test_what_waits_and_what_was_refused(shop: Shop, queue: Queue, relay: Relay, registry: CollectorRegistry) -> None:
    assert scraped(registry) == {WAITING: 0, OLDEST: 0, LATER: 0, REFUSED: 0}
    queue.enqueue(TOPIC, 1, id="taken", delay="1h")
    shop.order("a", "taken")
    found = scraped(registry)
    assert 0 <= found.pop(OLDEST) < 1000
    assert found == {WAITING: 2, LATER: 0, REFUSED: 0}
    shop.sql("UPDATE streamdq_outbox SET made_ms = made_ms - 9000000 WHERE id = 'a'")
    assert 9000 <= scraped(registry)[OLDEST] < 10_000
    relay.run(burst=True)
    assert scraped(registry) == {WAITING: 0, OLDEST: 0, LATER: 0, REFUSED: 1}


def test_another_namespace_has_rows_of_its_own(shop: Shop) -> None:
    shop.order("a")
    with contextlib.closing(OutboxCollector(shop.url, "other")) as other:
        (waiting, *_) = other.collect()
        assert [(sample.labels, sample.value) for sample in waiting.samples] == [({"namespace": "other"}, 0)]


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_while_the_database_is_away_it_tells_nothing(
    shop: Shop, registry: CollectorRegistry, running: Postgres | Mariadb, caplog: pytest.LogCaptureFixture
) -> None:
    shop.order("a")
    shop.close()
    assert scraped(registry)[WAITING] == 1
    running.stop()
    try:
        assert scraped(registry) == {}
        assert "outbox not counted" in caplog.text
    finally:
        running.start()
    assert scraped(registry)[WAITING] == 1


_LOCKS = {
    "sqlite": "BEGIN EXCLUSIVE",
    "postgresql": "LOCK TABLE streamdq_outbox IN ACCESS EXCLUSIVE MODE",
    "mysql": "LOCK TABLES streamdq_outbox WRITE",
}


@contextlib.contextmanager
def hanging(shop: Shop) -> Iterator[None]:
    """Nobody can read the outbox meanwhile, as while its table is rewritten."""
    with shop.engine.connect() as migration:
        migration.exec_driver_sql(_LOCKS[migration.dialect.name])
        yield
        (reading,) = (thread for thread in threading.enumerate() if thread.name == "streamdq-outbox")
        if migration.dialect.name == "mysql":
            migration.exec_driver_sql("UNLOCK TABLES")
        migration.rollback()
        reading.join()


def test_a_database_that_hangs_costs_no_other_metric_and_is_asked_once(
    shop: Shop, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.order("a")
    monkeypatch.setattr(module, "_ANSWER_S", 0.2)
    registry.register(gauge := Gauge("own", "", registry=None))
    gauge.set(1)
    with hanging(shop):
        with ThreadPoolExecutor() as scrapes:
            assert list(scrapes.map(scraped, [registry] * 5)) == [{"own": 1}] * 5
        assert scraped(registry) == {"own": 1}
        assert "outbox not counted" in caplog.text
    monkeypatch.setattr(module, "_ANSWER_S", HANG_S)
    assert scraped(registry)[WAITING] == 1


def test_figures_stand_for_a_minute(shop: Shop, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.order("a")
    before = scraped(registry)
    monkeypatch.setattr(module, "_ANSWER_S", 0.2)
    with hanging(shop):
        assert scraped(registry) == before
        monkeypatch.setattr(module, "_KEPT_S", 0)
        assert scraped(registry) == {}
