"""Rows that are due beyond the horizon stay in the database, and can be cancelled and rescheduled there."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from streamdq import Queue, outbox
from streamdq.errors import InvalidInput, OutboxMissing, OutboxRelaying, OutboxUnavailable
from streamdq.outbox import rows
from streamdq.outbox.batch import RowState
from streamdq.outbox.collector import OutboxCollector
from streamdq.outbox.figures import CountedRows
from streamdq.outbox.redis_side import FencedOff
from streamdq.outbox.relay import Relay, Totals
from streamdq.outbox.rows import LeaseLost
from tests.outbox.orders import TOPIC, Shop, finish, receipts
from tests.outbox.test_enqueue import async_url
from tests.servers import Server
from tests.turns import others_later
from tests.waiting import HANG_S, until

DAY_MS = 86_400_000
_PASS = "UPDATE streamdq_outbox SET made_ms = made_ms - :ms, due_ms = due_ms - :ms"


@pytest.fixture
def shop(shop: Shop) -> Shop:
    """Whose outbox has a horizon of a day."""
    rows.create(shop.url, "1d")
    return shop


def passes(shop: Shop, ms: int) -> None:
    """As if the rows had been put in so much earlier."""
    shop.sql(_PASS, ms=ms)


def in_redis(queue: Queue) -> set[str]:
    return {job.id for job in queue.find(TOPIC)} if TOPIC in queue.stats().topics else set()


# -- what stays, and until when


def test_rows_stay_until_the_horizon(shop: Shop, relay: Relay, queue: Queue, server: Server) -> None:
    shop.order("now")
    shop.order("soon", delay="23h")
    shop.order("far", delay="3d")
    shop.order("then", at=datetime(2040, 1, 31, 9, tzinfo=UTC))
    relay.run(burst=True)
    assert in_redis(queue) == {"now", "soon"}
    assert shop.states() == {"waiting": 2}
    passes(shop, 2 * DAY_MS + 1000)
    relay.run(burst=True)
    assert in_redis(queue) == {"now", "soon", "far"}
    job = queue.get(TOPIC, "far")
    assert job is not None
    assert DAY_MS - 10_000 < job.due_ms - job.created_ms <= DAY_MS - 1000, "the delay counts from the row"
    assert (shop.states(), receipts(server)) == ({"waiting": 1}, [])
    assert relay.totals == Totals(relayed=3)
    queue.delete_topic(TOPIC, force=True)


def test_the_earliest_go_first(shop: Shop, relay: Relay, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BATCH", 2)
    queue.configure(TOPIC, create=True)
    shop.order("c", delay="3h")
    shop.order("b", delay="2h")
    shop.order("d", delay="4h")
    shop.order("a", delay="1h")
    assert relay._lead()
    assert relay._relay_some()
    assert in_redis(queue) == {"a", "b"}
    relay.run(burst=True)
    assert in_redis(queue) == {"a", "b", "c", "d"}


def test_marked_rows_are_looked_for_only_while_there_may_be_some(
    shop: Shop, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query for each batch less."""
    original, looks = rows.Rows.waiting, list[int]()

    def counted(self: rows.Rows, *args: Any) -> Any:
        found = original(self, *args)
        looks.append(len(found.rows))
        return found

    monkeypatch.setattr(rows, "BATCH", 2)
    monkeypatch.setattr(rows.Rows, "waiting", counted)
    shop.order(*(f"o{n}" for n in range(20)), delay="1h")
    relay.run(burst=True)
    assert relay.totals.relayed == 20
    assert len(looks) <= 4, "at the start, when the topic is made, and at the end"
    shop.order("killed-1", "killed-2", "killed-3", delay="1h")
    shop.sql("UPDATE streamdq_outbox SET state = 'relaying'")  # as a relay leaves them that is killed
    relay.run(burst=True)
    assert relay.totals.relayed == 23


def test_what_is_kept_and_lost_comes_back_within_the_horizon(shop: Shop, queue: Queue, server: Server) -> None:
    shop.order("near", delay="1h")
    shop.order("far", delay="9d")
    with Relay(shop.url, queue, keep=True) as relay:
        relay.run(burst=True)
        server.flush()
        relay.reconcile()
        assert relay.totals == Totals(relayed=2, put_back=1)
    assert in_redis(queue) == {"near"}
    assert shop.states() == {"kept": 1, "waiting": 1}


def test_a_lost_job_comes_back_though_a_row_for_later_has_its_id(shop: Shop, queue: Queue, server: Server) -> None:
    shop.order("a", delay="1h")
    shop.order("a", delay="9d")
    with Relay(shop.url, queue, keep=True) as relay:
        relay.run(burst=True)
        server.flush()
        relay.reconcile()
    assert in_redis(queue) == {"a"}
    assert shop.states() == {"kept": 1, "waiting": 1}


def test_a_row_without_a_time_is_refused(shop: Shop, relay: Relay, queue: Queue) -> None:
    shop.order("a", delay="9d")
    shop.sql("UPDATE streamdq_outbox SET delay_ms = NULL")
    relay.run(burst=True)
    assert shop.states() == {"refused": 1}
    assert in_redis(queue) == set()


def test_the_histogram_counts_from_the_horizon(shop: Shop, relay: Relay) -> None:
    shop.order("far", delay="9d")
    passes(shop, 8 * DAY_MS + 5000)
    relay._rows.claim((relay._lead() and relay._epoch) or 0, 5000)
    batch = relay._rows.waiting()
    (row,) = batch.rows
    assert 5 <= batch.waited_s(row) < 60


@pytest.mark.parametrize("changed", ["2d", "2h"])
def test_the_horizon_is_changed_while_a_relay_runs(shop: Shop, queue: Queue, changed: str) -> None:
    stop = threading.Event()
    with Relay(shop.url, queue) as relay:
        thread = threading.Thread(target=relay.run, args=(stop.is_set,))
        thread.start()
        shop.order("first", delay="1h")
        until(lambda: in_redis(queue) == {"first"}, "it relays")
        shop.order("a", delay="30h")
        shop.order("b", delay="12h")
        until(lambda: in_redis(queue) == {"first", "b"}, "a stays")
        rows.create(shop.url, changed)
        shop.order("c", delay="12h")
        shop.order("d", delay="1h")
        expected = {"first", "a", "b", "c", "d"} if changed == "2d" else {"first", "b", "d"}
        try:
            until(lambda: in_redis(queue) == expected, "it knows the new horizon")
            left = {} if changed == "2d" else {"waiting": 2}
            until(lambda: shop.states() == left, "the rows of the others are gone")
        finally:
            stop.set()
            thread.join(HANG_S)


def test_horizons_that_are_refused(shop: Shop) -> None:
    for horizon in ("59s", 0, "11y"):
        with pytest.raises(InvalidInput, match="horizon"):
            rows.create(shop.url, horizon)


@pytest.mark.parametrize("late", ["before", "after"])
def test_an_outbox_in_use_gets_a_horizon(shop: Shop, queue: Queue, server: Server, late: str) -> None:
    """What the active relay has read, and sends before or after another takes over, is relayed once, and can't be
    cancelled.
    """
    shop.sql("UPDATE streamdq_outbox_schema SET version = 1")
    queue.configure(TOPIC, create=True)
    with Relay(shop.url, queue) as old, Queue(server.url) as other, Relay(shop.url, other) as new:
        assert old._lead()
        known = old._redis.known()[TOPIC]
        shop.order("read", delay="9d")
        batch = old._rows.waiting((), old._epoch)
        rows.create(shop.url, "1d")
        shop.order("later", delay="9d")
        assert old._rows.waiting((), old._epoch).is_empty, "it has lost the lease"
        with shop.sale() as db, pytest.raises(OutboxRelaying):
            outbox.cancel(db, TOPIC, "read")
        with shop.sale() as db:
            assert outbox.cancel(db, TOPIC, "later")
        if late == "after":
            new.run(burst=True)
            with pytest.raises(FencedOff):
                old._hand_over(TOPIC, known, batch.rows, batch)
        else:
            assert len(old._hand_over(TOPIC, known, batch.rows, batch)) == 1
            new.run(burst=True)
        assert in_redis(queue) == {"read"}
        with pytest.raises(LeaseLost):
            old._note(batch, {})
        old.run(burst=True)
        old.run(burst=True)
        assert old._rows.horizon_ms == DAY_MS
    assert (in_redis(queue), shop.states(), receipts(server)) == ({"read"}, {}, [])


# -- cancel, reschedule, get


def test_cancel(shop: Shop, relay: Relay, queue: Queue) -> None:
    shop.order("a", "b", "c", delay="9d")
    with shop.sale() as db:
        assert outbox.cancel(db, TOPIC, "a")
        assert not outbox.cancel(db, TOPIC, "a")
        assert not outbox.cancel(db, TOPIC, "none")
    with shop.engine.connect() as db:
        assert outbox.cancel(db, TOPIC, "b")
        db.rollback()
    passes(shop, 9 * DAY_MS)
    relay.run(burst=True)
    assert finish(queue) == ["b", "c"]
    with shop.sale() as db:
        assert not outbox.cancel(db, TOPIC, "b"), "it was relayed"


def test_reschedule(shop: Shop, relay: Relay, queue: Queue) -> None:
    shop.order("near", "nearer", "far", "same", delay="9d")
    passes(shop, DAY_MS)
    with Session(shop.engine) as session, session.begin():
        assert outbox.reschedule(session, TOPIC, "near", delay="2h")
        assert outbox.reschedule(session, TOPIC, "nearer", at=datetime(2020, 1, 1, tzinfo=UTC))
        assert outbox.reschedule(session, TOPIC, "far", at=datetime(2040, 1, 1, tzinfo=UTC))
        assert not outbox.reschedule(session, TOPIC, "none", delay=0)
        with pytest.raises(InvalidInput, match="pass delay or at"):
            outbox.reschedule(session, TOPIC, "far")
        job = outbox.get(session, TOPIC, "far")
        assert job is not None
        assert job.due == datetime(2040, 1, 1, tzinfo=UTC)
    relay.run(burst=True)
    assert in_redis(queue) == {"near", "nearer"}
    job = queue.get(TOPIC, "near")
    assert job is not None
    assert 7_190_000 < job.due_ms - job.created_ms <= 7_200_000
    assert finish(queue) == ["nearer"]
    assert shop.states() == {"waiting": 2}


def test_get(shop: Shop, relay: Relay, queue: Queue) -> None:
    shop.order("a", delay="9d", ttr="7s", retry="1s", url="https://shop.example/x", key="m")
    with shop.sale() as db:
        job = outbox.get(db, TOPIC, "a")
        assert job is not None
        assert (job.body, job.key, job.url, job.ttr_ms) == ({"order": "a"}, "m", "https://shop.example/x", 7000)
        assert job.due_ms - job.created_ms == 9 * DAY_MS
        assert outbox.get(db, TOPIC, "a", key="m") is not None
        assert outbox.get(db, TOPIC, "a", key="other") is None
        assert outbox.get(db, "other", "a") is None
        assert outbox.get(db, TOPIC, "a", namespace="other") is None
    passes(shop, 9 * DAY_MS)
    relay.run(burst=True)
    with shop.sale() as db:
        assert outbox.get(db, TOPIC, "a") is None
    assert finish(queue) == ["a"]


def test_one_of_two_keys(shop: Shop) -> None:
    """And all rows with the id, if no key is given."""
    for key in ("a", "b", "c"):
        shop.order("same", key=key, delay="9d")
    shop.order("same ", delay="9d")
    with shop.sale() as db:
        assert outbox.cancel(db, TOPIC, "same", key="a")
        assert shop.engine.dialect.name == "sqlite" or shop.states() == {"waiting": 4}
    assert [key for (key,) in shop.sql("SELECT job_key FROM streamdq_outbox ORDER BY number")] == ["b", "c", None]
    with shop.sale() as db:
        assert outbox.cancel(db, TOPIC, "same")
    assert [id for (id,) in shop.sql("SELECT id FROM streamdq_outbox")] == ["same "]


def test_without_a_horizon(database: str) -> None:
    """A relay sends rows without marking them first, so that no change could be relied on."""
    shop = Shop(database)
    shop.order("a", delay="9d")
    for change in (outbox.get, outbox.cancel, lambda *given: outbox.reschedule(*given, delay=0)):
        with shop.sale() as db, pytest.raises(InvalidInput, match="streamdq outbox create --horizon"):
            change(db, TOPIC, "a")
    shop.sql("DELETE FROM streamdq_outbox_schema")
    with shop.sale() as db, pytest.raises(OutboxMissing):
        outbox.cancel(db, TOPIC, "a")
    shop.close()


# -- both sides, step by step


CHANGES = [
    pytest.param(lambda db: outbox.cancel(db, TOPIC, "a"), id="cancel"),
    pytest.param(lambda db: outbox.reschedule(db, TOPIC, "a", delay="20d"), id="reschedule"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_changed_before_the_relay_marks_it(shop: Shop, relay: Relay, queue: Queue, change: Any) -> None:
    shop.order("a", "b", delay="9d")
    passes(shop, 8 * DAY_MS + 1)
    assert relay._lead()
    assert relay._rows.is_due()
    with shop.sale() as db:
        assert change(db)
    relay.run(burst=True)
    assert in_redis(queue) == {"b"}


@pytest.mark.parametrize("step", ["claim", "enqueue"])
@pytest.mark.parametrize("change", CHANGES)
def test_changed_after_the_relay_has_marked_it(
    shop: Shop, relay: Relay, queue: Queue, change: Any, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused, whatever the relay has done since; once the relay is through, the job is in Redis."""
    shop.order("a", delay="9d")
    passes(shop, 8 * DAY_MS + 1)
    tried: list[str] = []

    def then_changed(original: Any) -> Any:
        def call(*given: Any, **options: Any) -> Any:
            result = original(*given, **options)
            if shop.states() == {"relaying": 1}:
                with shop.sale() as db:
                    with pytest.raises(OutboxRelaying, match="again in a moment"):
                        change(db)
                    job = outbox.get(db, TOPIC, "a")
                    assert job is not None
                tried.append(step)
            return result

        return call

    at: Any = relay if step == "enqueue" else relay._rows
    name = "_hand_over" if step == "enqueue" else step
    monkeypatch.setattr(at, name, then_changed(getattr(at, name)))
    relay.run(burst=True)
    assert tried
    with shop.sale() as db:
        assert change(db) is False
    assert queue.cancel(TOPIC, "a")


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize("ends", others_later(["commit", "rollback"], "commit"))
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_is_not_committed_holds_up_no_other_row(
    shop: Shop, relay: Relay, queue: Queue, change: Any, ends: str
) -> None:
    """Its own row waits for the end of the transaction. In SQLite nobody else writes meanwhile."""
    shop.order("a", "b", delay="9d")
    passes(shop, 8 * DAY_MS + 1)
    with shop.engine.connect() as db:
        assert change(db)
        assert relay._lead()
        relay._relay_all(lambda: False)
        assert in_redis(queue) == {"b"}
        db.commit() if ends == "commit" else db.rollback()
    relay.run(burst=True)
    assert in_redis(queue) == ({"b"} if ends == "commit" else {"a", "b"})


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_a_change_waits_for_a_relay_that_marks_its_row(shop: Shop, relay: Relay, queue: Queue) -> None:
    """It has found the row waiting; the relay marks it, and commits, before the change gets its lock."""
    shop.order("a", delay="9d")
    passes(shop, 8 * DAY_MS + 1)
    found: list[Any] = []

    def cancel() -> None:
        try:
            with shop.sale() as db:
                found.append(outbox.cancel(db, TOPIC, "a"))
        except OutboxRelaying as error:
            found.append(error)

    assert relay._lead()
    with shop.engine.connect() as db:  # in place of the relay's transaction
        db.exec_driver_sql("UPDATE streamdq_outbox SET state = 'relaying'")
        thread = threading.Thread(target=cancel)
        thread.start()
        until(lambda: shop.sql(_WAITS[shop.engine.dialect.name]) != [], "the other waits")
        db.commit()
    thread.join(HANG_S)
    assert isinstance(found[0], OutboxRelaying)
    relay.run(burst=True)
    assert in_redis(queue) == {"a"}


_WAITS = {
    "postgresql": "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    "mysql": (
        "SELECT 1 FROM information_schema.global_status "
        "WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS' AND variable_value > 0"
    ),
}


def test_two_relays_and_a_row_that_one_has_marked(shop: Shop, relay: Relay, queue: Queue, server: Server) -> None:
    """It is stopped before it sends the row. The other sends it, the job ends, and the first continues."""
    shop.order("a", delay="9d")
    passes(shop, 9 * DAY_MS)
    assert relay._lead()
    known = relay._redis.known()
    batch = relay._rows.claim(relay._epoch or 0, 5000)
    with Queue(server.url) as other, Relay(shop.url, other) as second:
        shop.sql("UPDATE streamdq_outbox_relays SET until_ms = 0")
        second.run(burst=True)
    assert finish(queue) == ["a"]
    assert relay._hand_over(TOPIC, known.get(TOPIC), batch.rows, batch) == {}
    assert not relay._turn()
    relay.run(burst=True)
    assert (finish(queue), shop.states(), receipts(server)) == ([], {}, [])


def test_from_far_to_near_and_back_under_a_running_relay(shop: Shop, queue: Queue) -> None:
    """Each time, either the change is refused or finds no row, or the row is where the change has put it."""
    ids = [f"o{number}" for number in range(40)]
    shop.order(*ids, delay="9d")
    stop, back = threading.Event(), set[str]()
    with Relay(shop.url, queue, look_every="1ms") as relay:
        thread = threading.Thread(target=relay.run, args=(stop.is_set,))
        thread.start()
        for id in ids:
            with shop.sale() as db:
                assert outbox.reschedule(db, TOPIC, id, delay="1h")
            try:
                with shop.sale() as db:
                    if outbox.reschedule(db, TOPIC, id, delay="9d"):
                        back.add(id)
            except OutboxRelaying:
                pass
        until(lambda: in_redis(queue) == set(ids) - back, "all others are relayed")
        until(lambda: shop.states() == ({"waiting": len(back)} if back else {}), "their rows are gone")
        stop.set()
        thread.join(HANG_S)


def test_the_same_id_far_in_the_database_and_near_in_redis(shop: Shop, relay: Relay, queue: Queue) -> None:
    """Ids are compared when a row is relayed."""
    shop.order("a", delay="9d")
    shop.order("a", delay="1h")
    relay.run(burst=True)
    assert in_redis(queue) == {"a"}
    passes(shop, 8 * DAY_MS + 1)
    relay.run(burst=True)
    assert shop.states() == {"refused": 1}


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_the_database_goes_away_after_rows_were_marked(shop: Shop, queue: Queue, running: Any) -> None:
    shop.order("a", delay="9d")
    passes(shop, 8 * DAY_MS + 1)
    with Relay(shop.url, queue) as relay:
        assert relay._lead()
        assert relay._rows.claim(relay._epoch or 0, 5000).rows
        running.stop()
        try:
            with pytest.raises(OutboxUnavailable):
                relay.run(burst=True)
        finally:
            running.start()
            shop.close()
        relay.run(burst=True)
    assert in_redis(queue) == {"a"}


def test_redis_goes_away_after_rows_were_marked(shop: Shop, relay: Relay, queue: Queue, server: Server) -> None:
    shop.order("a", delay="9d")
    passes(shop, 8 * DAY_MS + 1)
    server.stop()
    try:
        with pytest.raises(Exception, match="Redis"):
            relay.run(burst=True)
        assert shop.states() == {"relaying": 1}
        with shop.sale() as db, pytest.raises(OutboxRelaying):
            outbox.cancel(db, TOPIC, "a")
    finally:
        server.start()
    relay.run(burst=True)
    assert in_redis(queue) == {"a"}


@pytest.mark.parametrize("handle", ["session", "connection"])
async def test_async(shop: Shop, handle: str) -> None:
    pytest.importorskip({"sqlite": "aiosqlite", "mysql": "asyncmy"}.get(shop.engine.dialect.name, "psycopg"))
    shop.order("a", "b", delay="9d")
    engine = create_async_engine(async_url(shop.url))
    async with AsyncSession(engine) if handle == "session" else engine.connect() as db:
        assert await outbox.reschedule(db, TOPIC, "a", delay="20d")
        job = await outbox.get(db, TOPIC, "a")
        assert job is not None
        assert job.due_ms - job.created_ms == 20 * DAY_MS
        assert await outbox.cancel(db, TOPIC, "b")
        await db.commit()
    await engine.dispose()
    assert [id for (id,) in shop.sql("SELECT id FROM streamdq_outbox")] == ["a"]


def test_it_is_woken_by_a_row_that_is_moved_near(shop: Shop, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that it would look after a day."""
    shop.order("a", delay="9d")
    stop = threading.Event()
    with Relay(shop.url, queue) as relay:
        thread = threading.Thread(target=relay.run, args=(stop.is_set,))
        thread.start()
        shop.order("first")
        until(lambda: shop.states() == {"waiting": 1}, "it is active")
        monkeypatch.setattr("streamdq.outbox.relay._LOOK_S", 86_400.0)
        shop.order("wake")  # the wait that had begun
        until(lambda: shop.states() == {"waiting": 1}, "it waits for a day")
        try:
            with shop.sale() as db:
                assert outbox.reschedule(db, TOPIC, "a", delay="1h")
            until(lambda: queue.get(TOPIC, "a") is not None, "it is in Redis")
        finally:
            monkeypatch.undo()
            stop.set()
            shop.order("last")
            thread.join(HANG_S)


# -- figures


def test_figures(shop: Shop, queue: Queue) -> None:
    shop.order("near", delay="8d")
    shop.order("far", "further", delay="9d")
    passes(shop, 7 * DAY_MS + 60_000)
    with Relay(shop.url, queue) as relay:
        counted = CountedRows(shop.url, "streamdq")
        try:
            for state in (RowState.WAITING, RowState.RELAYING):
                if state is RowState.RELAYING:
                    assert relay._rows.claim((relay._lead() and relay._epoch) or 0, 5000)
                found = counted.figures().states[state]
                assert found.rows == 1
                assert found.oldest_ms is not None
                assert 60_000 <= found.oldest_ms < 3_600_000
            assert counted.figures().states[RowState.WAITING].oldest_ms is None
            assert counted.later() == 2
        finally:
            counted.close()
        relay.run(burst=True)


def test_gauges(shop: Shop) -> None:
    """The rows for later are counted rarely if there are many of them."""
    shop.order("near", delay="1h")
    shop.order("far", delay="9d")
    collector = OutboxCollector(shop.url, "streamdq")

    def values() -> dict[str, float]:
        return {family.name: family.samples[0].value for family in collector.collect()}

    found = values()
    assert (found["streamdq_outbox_waiting_rows"], found["streamdq_outbox_later_rows"]) == (1, 1)
    collector._later_at = float("inf")
    shop.order("further", delay="10d")
    assert values()["streamdq_outbox_later_rows"] == 1
    collector._later_at = 0.0
    assert values()["streamdq_outbox_later_rows"] == 2
    collector.close()


@pytest.mark.usefixtures("shop")
def test_the_relay_reads_what_is_due_alone(relay: Relay) -> None:
    """By the index, which ends at the horizon: whatever waits beyond it costs nothing."""
    with relay._rows._db.reading() as db:
        sqlite = db.dialect.name == "sqlite"
        bounded = {"sqlite": "<expr><?)", "postgresql": "text) AND (COALESCE("}.get(db.dialect.name, "'range'")
        if db.dialect.name == "postgresql":
            db.exec_driver_sql("SET enable_seqscan = off")  # which it would prefer in an empty table
        query = relay._rows._due(()).compile(db.engine, compile_kwargs={"literal_binds": True})
        plan = str(db.exec_driver_sql(f"EXPLAIN {'QUERY PLAN' * sqlite} {query}".replace("%", "%%")).all())
    assert "streamdq_outbox_by_due" in plan
    assert bounded in plan
    assert "sort" not in plan.lower()
    assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_relay_reads_no_rows_for_later_to_find_kept_ones(shop: Shop, relay: Relay) -> None:
    """As the planner knows how many there are."""
    shop.order(*(f"later-{number}" for number in range(200)), delay="9d")
    shop.sql("ANALYZE")
    asked: list[tuple[str, Any]] = []
    event.listen(relay._rows._db.engine, "before_cursor_execute", lambda *given: asked.append(given[2:4]))
    assert relay._rows.kept(0) == []
    statement, parameters = next(each for each in asked if "SELECT" in each[0])
    with relay._rows._db.reading() as db:
        plan = str(db.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all())
    assert "streamdq_outbox_by_state (namespace=? AND state=? AND number>?)" in plan
