"""Rows that are kept until their jobs have ended: what Redis loses is put back."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from streamdq import Queue
from streamdq.errors import StreamdqError
from streamdq.outbox.relay import Relay, Totals
from tests.outbox.orders import TOPIC, Shop, finish, receipts
from tests.servers import Server
from tests.waiting import HANG_S, until

IDS = [f"o{number}" for number in range(6)]


@pytest.fixture
def keeper(relay: Relay) -> Relay:
    relay._keep = True
    return relay


def test_rows_stay_until_their_jobs_have_ended(shop: Shop, keeper: Relay, queue: Queue, server: Server) -> None:
    shop.order("done", "cancelled", "dead")
    shop.order("late", delay="1h")
    keeper.run(burst=True)
    assert shop.states() == {"kept": 4}
    assert len(receipts(server)) == 4
    queue.cancel(TOPIC, "cancelled")
    for _ in range(2):
        claim = queue.take(TOPIC, timeout=HANG_S)
        assert claim
        claim.finish() if claim.job.id == "done" else claim.bury("no")
    keeper.reconcile()
    assert [id for (id,) in shop.sql("SELECT id FROM streamdq_outbox ORDER BY number")] == ["dead", "late"]
    assert keeper.totals == Totals(relayed=4, ended=2)
    assert len(receipts(server)) == 2
    queue.purge(TOPIC, all=True)
    keeper.reconcile()
    assert shop.states() == {"kept": 1}


def test_redis_loses_everything_and_every_order_is_closed(
    shop: Shop, keeper: Relay, queue: Queue, server: Server
) -> None:
    shop.order(*IDS)
    keeper.run(burst=True)
    claim = queue.take(TOPIC, timeout=HANG_S)
    assert claim
    claim.finish()
    keeper.reconcile()
    server.flush()
    keeper.reconcile()
    assert keeper.totals.put_back == 5
    assert finish(queue) == IDS[1:], "in their order, and the first is not closed again"
    keeper.reconcile()
    assert (shop.states(), receipts(server)) == ({}, [])


def test_redis_loses_everything_in_the_middle_of_a_run(
    shop: Shop, queue: Queue, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orders come in, are relayed and closed; then Redis is empty. Nobody does anything about it."""
    monkeypatch.setattr("streamdq.outbox.relay._CHECK_S", 0.2)
    ids = {f"o{number}" for number in range(60)}
    closed: set[str] = set()

    def close_some() -> bool:
        with suppress(StreamdqError):  # of jobs that Redis has lost meanwhile
            while claim := queue.take(TOPIC, timeout="50ms"):
                claim.finish()
                closed.add(claim.job.id)
        return closed == ids

    stop = threading.Event()
    with Queue(server.url) as other, Relay(shop.url, other, keep=True) as relay:
        thread = threading.Thread(target=relay.run, args=(stop.is_set,))
        thread.start()
        try:
            for number, id in enumerate(sorted(ids)):
                shop.order(id, delay="200ms")
                if number % 10 == 9:
                    close_some()
                if number == 40:
                    until(lambda: relay.totals.relayed == 41, "the last one, which nobody closes yet, is in Redis")
                    server.flush()
            # An order that was closed shortly before may be put back, and is closed again.
            until(lambda: close_some() and shop.states() == {}, "every order is closed, and the outbox is empty")
        finally:
            stop.set()
            thread.join(HANG_S)
        assert not thread.is_alive()
        assert relay.totals.put_back > 0


def test_a_delay_goes_on(shop: Shop, keeper: Relay, queue: Queue, server: Server) -> None:
    shop.order("a", delay="1h")
    keeper.run(burst=True)
    shop.sql("UPDATE streamdq_outbox SET made_ms = made_ms - 1800000")
    server.flush()
    keeper.reconcile()
    after = queue.get(TOPIC, "a")
    assert after is not None
    assert 1_000_000 < after.due_ms - after.created_ms <= 1_800_000


def test_an_old_copy_of_redis(shop: Shop, keeper: Relay, queue: Queue, server: Server) -> None:
    """It knows the first order, which has ended since, and not the second."""
    shop.order("a")
    keeper.run(burst=True)
    with server.client() as client:
        copy = {key: client.dump(key) for key in client.scan_iter()}
    shop.order("b")
    keeper.run(burst=True)
    assert finish(queue) == ["a", "b"]
    keeper.reconcile()
    shop.order("c")
    keeper.run(burst=True)
    server.flush()
    with server.client() as client:
        for key, value in copy.items():
            client.restore(key, 0, value)
    assert len(receipts(server)) == 1, "of a row that is gone"
    keeper.reconcile()
    assert len(receipts(server)) == 1
    assert sorted(finish(queue)) == ["a", "c"], "the first once more: the copy is all that Redis knows"
    keeper.reconcile()
    assert (shop.states(), receipts(server)) == ({}, [])


def test_an_id_that_was_used_again(shop: Shop, keeper: Relay, queue: Queue, server: Server) -> None:
    """The job of the first row has ended, or the second could not have been relayed."""
    shop.order("a")
    keeper.run(burst=True)
    assert finish(queue) == ["a"]
    shop.order("a", ttr="7s")
    keeper.run(burst=True)
    assert shop.states() == {"kept": 2}
    server.flush()
    keeper.reconcile()
    job = queue.get(TOPIC, "a")
    assert job is not None
    assert job.ttr_ms == 7000
    assert shop.states() == {"kept": 1}
    assert finish(queue) == ["a"]


def test_a_relay_looks_after_them_by_itself(
    shop: Shop, keeper: Relay, queue: Queue, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.outbox.relay._CHECK_S", 0.0)
    shop.order(*IDS)
    keeper._keep = True
    keeper.run(burst=True)
    server.flush()
    keeper._check_at = 0.0
    keeper.run(burst=True)
    assert finish(queue) == IDS
    keeper._check_at = 0.0
    keeper.run(burst=True)
    assert (shop.states(), receipts(server)) == ({}, [])


def test_also_one_that_keeps_no_new_rows(shop: Shop, keeper: Relay, queue: Queue, server: Server) -> None:
    shop.order("a")
    keeper.run(burst=True)
    server.flush()
    with Relay(shop.url, queue) as plain:
        plain.run(burst=True)
        plain.run(burst=True)
    assert finish(queue) == ["a"]
    assert shop.states() == {}


def test_many_rows_in_slices(shop: Shop, keeper: Relay, queue: Queue, server: Server) -> None:
    ids = [f"o{number}" for number in range(1100)]
    shop.order(*ids, delay="1h")
    keeper.run(burst=True)
    server.flush()
    keeper.reconcile()
    assert keeper.totals == Totals(relayed=2200, put_back=1100)
    assert queue.stats(TOPIC).delayed == 1100
    assert shop.states() == {"kept": 1100}


def test_another_active_relay_pauses_for_reconcile(shop: Shop, keeper: Relay, queue: Queue, server: Server) -> None:
    shop.order("a", delay="1h")
    assert keeper._lead()
    keeper._relay_some()
    with Queue(server.url) as other, Relay(shop.url, other, keep=True) as reconciling:
        reconciling.reconcile()
    keeper._renewed = 0.0
    assert not keeper._turn(), "it has lost the lease"
    shop.order("b", delay="1h")
    assert keeper._turn(), "it is active again"
    assert queue.get(TOPIC, "b") is not None
