"""Flows in the outbox: each starts once after its transaction is committed, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from streamdq import FlowState, NewJob, Queue, outbox
from streamdq.errors import InvalidInput, ServerUnavailable
from streamdq.operations.flows.builder import Building
from streamdq.outbox.redis_side import RedisSide
from streamdq.outbox.relay import Relay, Totals
from tests.outbox.orders import Shop, driver_url, receipts
from tests.servers import Server
from tests.waiting import HANG_S, until


def report(shop: Shop, name: str = "report-7", parts: int = 3, **options: Any) -> None:
    with shop.sale() as db, outbox.flow(db, name, **options) as flow:
        made = flow.enqueue_many("part", (NewJob({"n": n}, id=f"{name}-{n}", key="k") for n in range(parts)))
        join = flow.enqueue("join", {"parts": parts}, id=f"{name}-join", after=made, retry="5s", ttr="7s")
        flow.enqueue("mail", {"to": 1}, id=f"{name}-mail", after=join, delay="10m", on_failure="run")


def state(queue: Queue, name: str = "report-7") -> FlowState | None:
    status = queue.flow_status(name)
    return status.state if status else None


def finish(queue: Queue, topic: str, count: int) -> list[str]:
    """Waits for so many jobs, and finishes them."""
    done = []
    for _ in range(count):
        claim = queue.take(topic, timeout=HANG_S)
        assert claim
        claim.finish()
        done.append(claim.job.id)
    return done


def test_a_committed_flow_starts(shop: Shop, relay: Relay, queue: Queue, server: Server) -> None:
    report(shop)
    assert shop.states() == {"waiting": 1}
    relay.run(burst=True)
    assert (shop.states(), receipts(server), relay.totals) == ({}, [], Totals(relayed=1))
    assert sorted(finish(queue, "part", 3)) == ["report-7-0", "report-7-1", "report-7-2"]
    join = queue.get("join", "report-7-join")
    assert join is not None
    assert (join.body, join.retry, join.ttr_ms) == ({"parts": 3}, "5000ms", 7000)
    assert finish(queue, "join", 1) == ["report-7-join"]
    until(lambda: (job := queue.get("mail", "report-7-mail")) and job.state == "delayed", "the mail is delayed")
    status = queue.flow_status("report-7")
    assert status is not None
    assert [(one.topic, one.jobs, one.after, one.on_failure) for one in status.stages] == [
        ("part", 3, (), "block"), ("join", 1, (0,), "block"), ("mail", 1, (1,), "run"),
    ]  # fmt: skip


def test_jobs_with_priorities(shop: Shop, relay: Relay, queue: Queue) -> None:
    with shop.sale() as db, outbox.flow(db, "f") as flow:
        flow.enqueue_many("part", [NewJob(0, id="p0", priority="low")])
        flow.enqueue("part", 1, id="p1", priority="high")
    relay.run(burst=True)
    jobs = [queue.get("part", f"p{n}") for n in range(2)]
    assert [job and job.priority for job in jobs] == ["low", "high"]
    assert sorted(finish(queue, "part", 2)) == ["p0", "p1"]


def test_a_flow_that_is_rolled_back_leaves_nothing(shop: Shop, relay: Relay, queue: Queue) -> None:
    class Stop(Exception): ...

    def sell(db: Connection, name: str = "") -> None:
        with outbox.flow(db, "report-7") as flow:
            flow.enqueue("part", 1)
            if name == "inside":
                raise Stop
        if name == "after":
            raise Stop

    with pytest.raises(Stop), shop.sale() as db:
        sell(db, "after")
    with shop.sale() as db, pytest.raises(Stop):
        sell(db, "inside")
    with shop.sale() as db, outbox.flow(db, "report-7"):
        pass  # without a job there is no flow
    assert shop.states() == {}
    relay.run(burst=True)
    assert state(queue) is None


@pytest.mark.parametrize("killed", ["before it is complete", "after it"])
def test_a_relay_that_is_killed(
    shop: Shop, relay: Relay, queue: Queue, server: Server, killed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one starts the flow, or knows that it has started: by its receipt, although nothing has noted that."""

    class Killed(BaseException): ...

    def die(*_: Any) -> Any:
        raise Killed

    report(shop)
    with monkeypatch.context() as patch:
        if killed == "after it":
            patch.setattr("streamdq.outbox.redis_side.keep_outbox_receipt", die)
        else:
            patch.setattr(Building, "_open", die)
        with pytest.raises(Killed):
            relay.run(burst=True)
    assert shop.states() == {"waiting": 1}
    with Relay(shop.url, queue) as successor:
        successor.run(burst=True)
        assert successor.totals == Totals(relayed=1)
    assert sorted(finish(queue, "part", 3)) == ["report-7-0", "report-7-1", "report-7-2"]
    groups = queue.stats("part").topics["part"].groups["default"]
    assert groups.done == 3
    assert (shop.states(), receipts(server)) == ({}, [])


def test_a_receipt_tells_although_the_flow_is_forgotten(
    shop: Shop, relay: Relay, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop.sale() as db, outbox.flow(db, "report-7", keep="0s") as flow:
        flow.enqueue("part", 1, id="p")
    with monkeypatch.context() as patch:
        patch.setattr(Relay, "_note", lambda *_: None)
        assert relay._turn()
    assert finish(queue, "part", 1) == ["p"]
    until(lambda: state(queue) is None, "the flow is forgotten")
    relay.run(burst=True)
    assert (queue.get("part", "p"), shop.states()) == (None, {})


def test_a_name_that_is_taken_is_refused(shop: Shop, relay: Relay, queue: Queue) -> None:
    with queue.flow("report-7") as flow:
        flow.enqueue("part", 1, delay="1h")
    report(shop)
    relay.run(burst=True)
    ((error,),) = shop.sql("SELECT error FROM streamdq_outbox WHERE state = 'refused'")
    assert error.startswith("FlowExists: flow 'report-7' was enqueued before")
    assert queue.get("join", "report-7-join") is None


def test_an_id_that_is_taken_is_refused_and_nothing_starts(shop: Shop, relay: Relay, queue: Queue) -> None:
    queue.enqueue("join", 1, id="report-7-join", delay="1h")
    report(shop)
    relay.run(burst=True)
    ((error,),) = shop.sql("SELECT error FROM streamdq_outbox WHERE state = 'refused'")
    assert error.startswith("JobExists: ")
    assert queue.find("part").count() == 0


def test_a_flow_may_wait_for_rows_before_it(shop: Shop, relay: Relay, queue: Queue) -> None:
    """Also in the same transaction; they are relayed first, whatever their topics are."""
    with shop.sale() as db:
        with outbox.flow(db, "other") as flow:
            flow.enqueue("part", 1, id="other")
        outbox.enqueue(db, "order.close", 1, id="o", delay="1h")
        with outbox.flow(db, "report-7") as flow:
            flow.enqueue("part", 1, id="p", after=("order.close", "o"))
        with outbox.flow(db, "bad") as flow:
            flow.enqueue("part", 1, id="b", after=("order.close", "never"))
    relay.run(burst=True)
    found = queue.dependencies("part", "p")
    assert found is not None
    assert [(one.id, one.outcome) for one in found.jobs] == [("o", None)]
    ((error,),) = shop.sql("SELECT error FROM streamdq_outbox WHERE state = 'refused'")
    assert error.startswith("ParentUnknown: ")


def test_a_flow_waits_while_rows_before_it_can_t_be_relayed(
    shop: Shop, relay: Relay, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop.sale() as db:
        outbox.enqueue(db, "order.close", 1, id="o", delay="1h")
        with outbox.flow(db, "report-7") as flow:
            flow.enqueue("part", 1, id="p", after=("order.close", "o"))
    queue.configure("order.close", shards=1)
    original, left = RedisSide.enqueue, [1]

    def unavailable(*args: Any) -> Any:
        if left.pop() if left else 0:
            raise ServerUnavailable("as told")
        return original(*args)

    monkeypatch.setattr(RedisSide, "enqueue", unavailable)
    monkeypatch.setattr(Relay, "_hold", lambda self, topic, error: self._held.update({topic: (0.0, error)}))
    relay.run(burst=True)
    assert shop.states() == {}
    assert queue.dependencies("part", "p") is not None


def test_kept_rows_of_flows(shop: Shop, database: str, queue: Queue, server: Server) -> None:
    report(shop)
    with Relay(database, queue, keep=True) as relay:
        relay.run(burst=True)
        assert (shop.states(), len(receipts(server))) == ({"kept": 1}, 1)
        with server.client() as client:
            client.flushall()
        relay.reconcile()
        assert relay.totals.put_back == 1
        assert state(queue) is FlowState.RUNNING
        assert queue.cancel_flow("report-7")


def test_an_asyncio_session(database: str, relay: Relay, queue: Queue) -> None:
    if database.startswith("sqlite"):
        pytest.importorskip("aiosqlite")
    if not database.startswith(("sqlite", "postgresql")):
        pytest.skip("no asyncio driver of it here")

    async def sell() -> None:
        url = driver_url(database).replace("sqlite://", "sqlite+aiosqlite://")
        engine = create_async_engine(url)
        async with AsyncSession(engine) as session, session.begin():
            async with outbox.flow(session, "report-7") as flow:
                flow.enqueue("part", 1, id="p")
            with pytest.raises(InvalidInput, match="async with"), outbox.flow(session, "report-8"):
                pass
        await engine.dispose()

    asyncio.run(sell())
    relay.run(burst=True)
    assert state(queue) is FlowState.RUNNING


def test_what_is_refused_at_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    with shop.sale() as db:
        for name, options in (("bad\x00", {}), ("f", {"deadline": "soon"}), ("f", {"keep": -1})):
            with pytest.raises(InvalidInput):
                outbox.flow(db, name, **options)
        flow = outbox.flow(db, "f")
        with pytest.raises(InvalidInput, match="kept for flows"):
            flow.enqueue("streamdq.flows", 1)
        with pytest.raises(InvalidInput, match="wait for a flow"):
            flow.enqueue("part", 1, after=("streamdq.flows", "g"))
        monkeypatch.setattr("streamdq.outbox.flows.MOST_BYTES", 200)
        with pytest.raises(InvalidInput, match="more than 200 bytes"):
            flow.enqueue_many("part", [NewJob("x" * 100), NewJob("x" * 100)])


@pytest.mark.parametrize(
    "body",
    [
        "7", "[]", "{}", '{"jobs":[],"deadline_ms":null,"keep_ms":0,"more":1}',
        '{"jobs":[{}],"deadline_ms":null,"keep_ms":0}', '{"jobs":7,"deadline_ms":null,"keep_ms":0}',
    ],
)  # fmt: skip
def test_a_row_that_somebody_else_wrote(shop: Shop, relay: Relay, body: str) -> None:
    report(shop)
    shop.sql("UPDATE streamdq_outbox SET body = :body", body=body)
    relay.run(burst=True)
    assert shop.states() == {"refused": 1}


def test_a_job_in_such_a_row_that_waits_for_a_later_one(shop: Shop, relay: Relay) -> None:
    report(shop)
    shop.sql("""UPDATE streamdq_outbox SET body = replace(body, '"after":[0,1,2]', '"after":[4]')""")
    relay.run(burst=True)
    assert shop.states() == {"refused": 1}


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ('"deadline_ms":null', '"deadline_ms":"soon"'), ('"deadline_ms":null', '"deadline_ms":-1'),
        ('"keep_ms":86400000', '"keep_ms":null'), ('"keep_ms":86400000', '"keep_ms":1e300'),
        ('"delay_ms":600000', '"delay_ms":null'), ('"delay_ms":600000', '"delay_ms":"x"'),
        ('"after":[0,1,2]', '"after":[["part","p",7]]'), ('"after":[0,1,2]', '"after":[[7,"p",null]]'),
        ('"on_failure":"run"', '"on_failure":7'), ('"ttr_ms":7000', '"ttr_ms":true'),
    ],
)  # fmt: skip
def test_a_value_in_such_a_row_that_is_none(shop: Shop, relay: Relay, written: str, instead: str) -> None:
    report(shop)
    shop.sql("UPDATE streamdq_outbox SET body = replace(body, :written, :instead)", written=written, instead=instead)
    ((body,),) = shop.sql("SELECT body FROM streamdq_outbox")
    assert instead in body
    relay.run(burst=True)
    assert shop.states() == {"refused": 1}
