"""Rows reach Redis: in their order, soon after their commit, and once."""

from __future__ import annotations

import contextlib
import threading
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from sqlalchemy import event

from streamdq import Queue, outbox
from streamdq.config import Settings
from streamdq.errors import InvalidInput, TooManyTopics
from streamdq.keys import shard_of
from streamdq.outbox import rows
from streamdq.outbox.relay import Relay, Totals
from tests.outbox.orders import TOPIC, Shop, finish, receipts
from tests.servers import Server
from tests.waiting import HANG_S, until


def test_a_committed_order_is_closed(shop: Shop, relay: Relay, queue: Queue, server: Server) -> None:
    shop.order("order-42", ttr="7s", retry="1s 2s", url="https://shop.example/x", expire="1h")
    relay.run(burst=True)
    job = queue.get(TOPIC, "order-42")
    assert job is not None
    assert (job.body, job.ttr_ms, job.retry) == ({"order": "order-42"}, 7000, "1000ms 2000ms")
    assert (job.url, job.expire_ms) == ("https://shop.example/x", 3_600_000)
    assert finish(queue) == ["order-42"]
    assert (shop.states(), receipts(server), relay.totals) == ({}, [], Totals(relayed=1))


@pytest.mark.parametrize("shards", [1, 8])
def test_jobs_with_keys(shop: Shop, relay: Relay, queue: Queue, server: Server, shards: int) -> None:
    """They are in the shards of their keys, and wait for them."""
    queue.configure(TOPIC, shards=shards, key_order=True)
    for number in range(9):
        shop.order(f"o{number}", key=f"merchant-{number % 3}", url="https://shop.example/x")
    shop.order("none")
    relay.run(burst=True)
    job = queue.get(TOPIC, "o4", key="merchant-1")
    assert job is not None
    assert (job.key, job.url) == ("merchant-1", "https://shop.example/x")
    assert {load.key: load.waiting for load in queue.keys(TOPIC)} == {f"merchant-{n}": 2 for n in range(3)}
    done = finish(queue)
    assert sorted(done) == ["none", *(f"o{number}" for number in range(9))]
    assert [id for id in done if id in ("o1", "o4", "o7")] == ["o1", "o4", "o7"]
    assert (shop.states(), receipts(server)) == ({}, [])


def test_many_jobs_of_keys_are_relayed_in_parts(shop: Shop, relay: Relay, queue: Queue) -> None:
    queue.configure(TOPIC, key_concurrency=1)
    shop.order(*(f"o{number}" for number in range(320)), key="merchant")
    relay.run(burst=True)
    assert queue.stats(TOPIC).topics[TOPIC].groups["default"].waiting_for_key == 319
    queue.delete_topic(TOPIC, force=True)


def test_the_same_id_with_two_keys_is_two_jobs(shop: Shop, queue: Queue, database: str, server: Server) -> None:
    """Redis has lost both: neither counts as overtaken by the other."""
    keys = ["a", "b"]
    assert len({shard_of("same", 8, key) for key in keys}) == 2
    queue.configure(TOPIC, shards=8)
    for key in keys:
        shop.order("same", key=key, delay="1h")
    with Relay(database, queue, keep=True) as relay:
        relay.run(burst=True)
        server.flush()
        queue.configure(TOPIC, shards=8)
        relay.reconcile()
        assert relay.totals == Totals(relayed=4, put_back=2)
    for key in keys:
        assert queue.cancel(TOPIC, "same", key=key)


def test_what_is_rolled_back_never_happened(shop: Shop, relay: Relay, queue: Queue) -> None:
    with shop.engine.connect() as db:
        outbox.enqueue(db, TOPIC, {"n": 1}, id="never")
        db.rollback()
    shop.order("kept")
    relay.run(burst=True)
    assert finish(queue) == ["kept"]


def test_rows_keep_their_order_over_batches(
    shop: Shop, relay: Relay, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "BATCH", 20)
    ids = [f"o{number}" for number in range(50)]
    shop.order(*ids)
    relay.run(burst=True)
    assert finish(queue) == ids


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_a_row_that_is_committed_late_is_not_skipped(shop: Shop, relay: Relay, queue: Queue) -> None:
    """Its number is lower than those of rows that were relayed before. SQLite has one writer at a time."""
    with shop.sale() as db:
        outbox.enqueue(db, TOPIC, "b", id="late")
        shop.order("early")
        relay.run(burst=True)
        assert finish(queue) == ["early"]
    relay.run(burst=True)
    assert finish(queue) == ["late"]


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_rows_that_are_not_committed_hold_up_nothing(shop: Shop, relay: Relay, queue: Queue) -> None:
    """However many are relayed beside them, and deleted: a database may find it cheaper to look at all rows."""
    for count in (1, 2, 20):
        ids = [f"{count}-{number}" for number in range(count)]
        with shop.sale() as db:
            outbox.enqueue(db, TOPIC, 1, id=f"late-{count}")
            shop.order(*ids)
            relay.run(burst=True)
            assert finish(queue) == ids
        relay.run(burst=True)
        assert finish(queue) == [f"late-{count}"]


def test_a_delay_counts_from_the_row(shop: Shop, relay: Relay, queue: Queue) -> None:
    shop.order("a", delay="1h")
    shop.order("b", delay="1h")
    shop.order("c")
    shop.sql("UPDATE streamdq_outbox SET made_ms = made_ms - 600000 WHERE id <> 'b'")
    relay.run(burst=True)
    a, b, c = (queue.get(TOPIC, id) for id in "abc")
    assert a is not None
    assert b is not None
    assert c is not None
    assert 2_000_000 < a.due_ms - a.created_ms <= 3_000_000
    assert 3_000_000 < b.due_ms - b.created_ms <= 3_600_000
    assert c.due_ms == c.created_ms


def test_no_job_is_early_however_slow_the_relay(shop: Shop, relay: Relay, queue: Queue) -> None:
    with Queue(queue._url) as other:
        other.enqueue(TOPIC, 1, id="before")
        before = other.get(TOPIC, "before")
    shop.order("a", delay="2s")
    relay.run(burst=True)
    job = queue.get(TOPIC, "a")
    assert job is not None
    assert before is not None
    assert job.due_ms >= before.created_ms + 2000


def test_a_moment_stays_what_it_is(shop: Shop, relay: Relay, queue: Queue) -> None:
    at = datetime(2040, 1, 31, 9, tzinfo=UTC)
    shop.order("a", at=at)
    relay.run(burst=True)
    job = queue.get(TOPIC, "a")
    assert job is not None
    assert job.due_ms == int(at.timestamp() * 1000)


def test_large_rows_go_in_parts(shop: Shop, relay: Relay, queue: Queue) -> None:
    with shop.sale() as db:
        for number in range(25):
            outbox.enqueue(db, TOPIC, "x" * 200_000, id=f"o{number}")
    relay.run(burst=True)
    assert finish(queue) == [f"o{number}" for number in range(25)]


def test_topics_and_shards(shop: Shop, relay: Relay, queue: Queue, server: Server) -> None:
    queue.configure("many", shards=4)
    for number in range(40):
        shop.order(f"o{number}", topic=("many", "one")[number % 2])
    relay.run(burst=True)
    assert sorted(finish(queue, "many")) == sorted(f"o{number}" for number in range(0, 40, 2))
    assert finish(queue, "one") == [f"o{number}" for number in range(1, 40, 2)]
    assert receipts(server) == []


def test_a_namespace_has_its_own_rows(shop: Shop, relay: Relay, queue: Queue, server: Server) -> None:
    shop.order("mine")
    shop.order("theirs", namespace="other")
    relay.run(burst=True)
    assert finish(queue) == ["mine"]
    with Queue(server.url, "other") as other, Relay(shop.url, other) as theirs:
        theirs.run(burst=True)
        assert finish(other) == ["theirs"]


# -- ids that are taken


def test_a_taken_id_is_refused_and_holds_up_nothing(shop: Shop, relay: Relay, queue: Queue) -> None:
    queue.enqueue(TOPIC, "first", id="a", delay="1h")
    shop.order("a")
    shop.order("b")
    relay.run(burst=True)
    assert finish(queue) == ["b"]
    ((state, error),) = shop.sql("SELECT state, error FROM streamdq_outbox")
    assert state == "refused"
    assert "'a' is already in topic" in error
    assert relay.totals == Totals(relayed=1, refused=1)
    queue.cancel(TOPIC, "a")
    shop.sql("UPDATE streamdq_outbox SET state = 'waiting'")
    relay.run(burst=True)
    assert finish(queue) == ["a"]


def test_on_conflict_keep_and_replace(shop: Shop, relay: Relay, queue: Queue) -> None:
    queue.enqueue(TOPIC, "first", id="a", delay="1h")
    queue.enqueue(TOPIC, "first", id="b", delay="1h")
    shop.order("a", on_conflict="keep")
    shop.order("b", on_conflict="replace")
    relay.run(burst=True)
    a = queue.get(TOPIC, "a")
    assert a is not None
    assert a.body == "first"
    assert finish(queue) == ["b"]
    assert shop.states() == {}


def test_a_topic_that_can_not_be_made_holds_up_no_other(shop: Shop, server: Server) -> None:
    with Queue(server.url, settings=Settings(max_topics=1)) as queue, Relay(shop.url, queue) as relay:
        queue.enqueue("only", 1, id="first")
        shop.order("a", topic="too.many")
        shop.order("b", topic="only")
        with pytest.raises(TooManyTopics):
            relay.run(burst=True)
        assert sorted(finish(queue, "only")) == ["b", "first"]
        assert shop.states() == {"waiting": 1}


# -- soon


class Clock:
    """In place of the module ``time``: it passes while somebody sleeps."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def at_work(shop: Shop, relay: Relay) -> Any:
    """The active relay in a thread, waiting for the first row."""
    stop = threading.Event()
    thread = threading.Thread(target=relay.run, args=(stop.is_set,))
    thread.start()
    shop.order("first")
    until(lambda: shop.states() == {}, "the first row is relayed")
    yield relay
    stop.set()
    thread.join(HANG_S)
    assert not thread.is_alive()


@pytest.mark.usefixtures("at_work")
def test_it_is_woken_by_the_commit(shop: Shop, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that it would look after a day."""
    monkeypatch.setattr("streamdq.outbox.relay._LOOK_S", 86_400.0)
    shop.order("wake")  # the wait that had begun
    try:
        for number in range(10):
            shop.order(f"o{number}", delay="1h")
            until(partial(queue.get, TOPIC, f"o{number}"), "it is in Redis")
    finally:
        monkeypatch.undo()
        shop.order("last")


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_lost_notification_costs_a_second(shop: Shop, at_work: Relay, queue: Queue) -> None:
    shop.sql("ALTER TABLE streamdq_outbox DISABLE TRIGGER streamdq_outbox_notify")
    shop.order("quiet", delay="1h")
    until(lambda: at_work.totals.relayed == 2, "it is relayed")
    assert queue.get(TOPIC, "quiet") is not None


@pytest.mark.parametrize("database", ["sqlite", "mariadb"], indirect=True)
def test_how_often_it_looks_is_up_to_you(shop: Shop, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="at least 1ms"):
        Relay(shop.url, queue, look_every=0)
    with Relay(shop.url, queue, look_every="10m") as relay, relay._rows.wakeups(relay._look_s) as wakeups:
        monkeypatch.setattr("streamdq.outbox.wakeups.time", clock := Clock())
        wakeups.wait(0)
        shop.order("a", delay="1h")
        wakeups.wait(60)
        assert clock.slept == [], "it looks first"
        wakeups.wait(0.2)
        wakeups.wait(3600)
        assert clock.slept == [0.2, 600.0, 600.0, 600.0, 600.0, 600.0, 600.0]


def test_an_idle_relay_asks_little(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few statements each time that it has waited for a second, none of them in a loop."""
    monkeypatch.setattr("streamdq.outbox.relay.time", clock := Clock())
    statements, waited = 0, list[int]()

    def count(*_: Any) -> None:
        nonlocal statements
        statements += 1

    class Quiet:
        def wait(self, timeout_s: float) -> None:
            assert timeout_s == 1
            clock.slept.append(timeout_s)
            waited.append(statements)

    monkeypatch.setattr(relay._rows, "wakeups", lambda _: contextlib.nullcontext(Quiet()))
    event.listen(relay._rows._db.engine, "before_cursor_execute", count)
    relay.run(lambda: len(waited) == 30)
    assert waited[-1] - waited[0] <= 4 * 29, waited


# -- several relays


def test_two_relays_side_by_side(shop: Shop, queue: Queue, server: Server) -> None:
    stop = threading.Event()
    with Queue(server.url) as other, Relay(shop.url, queue) as one, Relay(shop.url, other) as two:
        threads = [threading.Thread(target=each.run, args=(stop.is_set,)) for each in (one, two)]
        for thread in threads:
            thread.start()
        ids = [f"o{number}" for number in range(100)]
        for start in range(0, 100, 5):
            shop.order(*ids[start : start + 5])
        until(lambda: shop.states() == {}, "all are relayed")
        stop.set()
        for thread in threads:
            thread.join(HANG_S)
        found = [each.totals.relayed for each in (one, two)]
    assert finish(queue) == ids
    assert sum(found) == 100


def test_another_takes_over_when_the_lease_has_run_out(shop: Shop, relay: Relay, queue: Queue, server: Server) -> None:
    assert relay._lead()
    shop.order("a")
    with Queue(server.url) as other, Relay(shop.url, other) as standby:
        assert not standby._lead()
        shop.sql("UPDATE streamdq_outbox_relays SET until_ms = 0")
        assert standby._turn()
        standby._relay_all(lambda: False)
        assert not relay._turn(), "it has noticed"
    assert finish(queue) == ["a"]


def test_a_lease_does_not_outlive_its_time_if_the_clock_is_set_back(shop: Shop, relay: Relay, queue: Queue) -> None:
    assert relay._lead()
    shop.sql("UPDATE streamdq_outbox_relays SET until_ms = until_ms + 3600000")
    with Relay(shop.url, queue) as second:
        assert second._lead()


STOPS = [("waiting", "after"), ("write_states", "before"), ("write_states", "after")]


@pytest.mark.parametrize("keep", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["", "keep"])
@pytest.mark.parametrize(("step", "when"), STOPS)
def test_stopped_for_so_long_that_another_took_over(
    shop: Shop, queue: Queue, server: Server, step: str, when: str, keep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It continues after another has relayed its rows, and their jobs have ended: nothing happens twice."""
    ids = ["a", "b", "c"]
    done: list[str] = []
    with (
        Queue(server.url) as other,
        Relay(shop.url, queue, keep=keep) as stopped,
        Relay(shop.url, other, keep=keep) as second,
    ):

        def stop() -> None:
            """What happens while it is stopped."""
            monkeypatch.undo()
            shop.sql("UPDATE streamdq_outbox_relays SET until_ms = 0")
            assert second._lead()
            second._relay_all(lambda: False)
            done.extend(finish(queue))
            assert done == ids
            second.reconcile()
            assert shop.states() == {}

        original = getattr(stopped._rows, step)

        def interrupted(*args: Any) -> Any:
            if when == "before":
                stop()
            result = original(*args)
            if when == "after":
                stop()
            return result

        shop.order(*ids)
        assert stopped._lead()
        monkeypatch.setattr(stopped._rows, step, interrupted)
        stopped._turn()
        second.run(burst=True)
        second.reconcile()
        assert done + finish(queue) == ids
        assert shop.states() == {}
        assert receipts(server) == []


def test_a_database_that_lost_the_epoch_gets_a_higher_one(shop: Shop, relay: Relay, queue: Queue) -> None:
    """As after it was restored from a backup."""
    for id in ("a", "b", "c"):
        shop.order(id)
        relay.run(burst=True)
    shop.sql("DELETE FROM streamdq_outbox_relays")
    shop.order("d")
    relay.run(burst=True)
    assert finish(queue) == ["a", "b", "c", "d"]


@pytest.mark.thorough  # the server takes five seconds to notice
@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_a_relay_stopped_in_a_transaction_locks_out_nobody(
    shop: Shop, relay: Relay, queue: Queue, server: Server
) -> None:
    """The server ends its transaction. In SQLite a writer that is stopped locks out all others."""
    with Queue(server.url) as other, Relay(shop.url, other) as second:
        assert relay._lead()
        shop.order("a")
        with relay._rows._db.engine.connect() as stopped:
            stopped.exec_driver_sql("UPDATE streamdq_outbox_relays SET until_ms = 0")
            until(lambda: second._turn() or shop.states() == {}, "the other relays")
            stopped.invalidate()
        second.run(burst=True)
    assert finish(queue) == ["a"]
