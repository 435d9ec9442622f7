"""Workers that take topics by weight or strictly by priority, counted start by start."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from streamdq import NewJob, Worker
from streamdq.worker.slots import Slots
from tests.redis.harness import Seen, Space
from tests.redis.movers import mover_at
from tests.waiting import eventually


def worker_of(space: Space, seen: Seen, concurrency: int = 1) -> Worker:
    """It notes the topic of each start."""
    worker = space.worker(concurrency=concurrency)
    for topic in ("mail", "pay"):

        @worker.handler(topic)
        async def handler(topic: str) -> None:
            seen.add(topic)
            await asyncio.sleep(0)

    return worker


def fill(space: Space, **jobs: int) -> None:
    for topic, count in jobs.items():
        space.queue.enqueue_many(topic, [NewJob(topic) for _ in range(count)])


async def fill_ready(space: Space, **jobs: int) -> None:
    """Turns are among what is ready: so all are, before a worker starts."""
    fill(space, **jobs)
    async with mover_at(space.url, "mover"):
        await eventually(
            lambda: all(space.stats(topic).ready == count for topic, count in jobs.items()), "all are ready"
        )


@pytest.fixture(params=[pytest.param(False, marks=pytest.mark.thorough, id="slots"), pytest.param(True, id="ahead")])
def _small_claims(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares are exact to within one claim, so that no claim may be large, whatever a busy machine does: one is for
    free slots only, or for 20 jobs ahead of them, of which none goes back for having waited.
    """
    monkeypatch.setattr("streamdq.worker.slots._AHEAD_S", 0.02 if request.param else 0.0)
    monkeypatch.setattr("streamdq.worker.slots.MAX_BATCH", 10)
    monkeypatch.setattr("streamdq.worker.slots._HOLD_S", 60.0)


@pytest.mark.usefixtures("_small_claims")
async def test_a_flood_leaves_the_other_its_share(space: Space, seen: Seen) -> None:
    await fill_ready(space, mail=1100, pay=300)
    worker = worker_of(space, seen)
    worker.take_turns({"pay": 3, "mail": 1})
    await space.burst(worker)
    assert Counter(seen.all) == {"mail": 1100, "pay": 300}
    last = len(seen.all) - 1 - seen.all[::-1].index("pay")
    # While both had jobs: 100 by weight, and 300 without weights.
    assert 90 <= Counter(seen.all[: last + 1])["mail"] <= 110


async def test_what_was_handed_back_has_had_no_turn(space: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that were claimed ahead go back when a handler hangs: their topic is next again."""
    ahead = 40
    monkeypatch.setattr(Slots, "_ahead", lambda _: ahead)
    await fill_ready(space, mail=100, pay=100)
    worker = space.worker(concurrency=1)
    worker.take_turns({"pay": 3, "mail": 1})

    @worker.handler("mail")
    async def mail(_: str) -> None:
        seen.add("mail")

    @worker.handler("pay")
    async def pay(_: str) -> None:
        nonlocal ahead
        seen.add("pay")
        if ahead:
            await eventually(lambda: space.stats("pay").running > 10, "some are claimed ahead")
            ahead = 0
            await eventually(lambda: space.stats("pay").running == 1, "they went back")

    await space.burst(worker)
    starts = seen.all[: seen.all.index("pay") + 60]
    assert 0.7 <= Counter(starts)["pay"] / len(starts) <= 0.8, starts


async def test_strictly_by_priority(space: Space, seen: Seen) -> None:
    await fill_ready(space, mail=60, pay=60)
    worker = worker_of(space, seen)
    worker.take_turns(priority=["pay", "mail"])
    await space.burst(worker)
    assert seen.all == ["pay"] * 60 + ["mail"] * 60


async def test_what_becomes_ready_above_is_next(space: Space, seen: Seen) -> None:
    """Also while the topic below has many ready jobs, and the one above had none for a while."""
    fill(space, mail=40)
    space.queue.configure("pay", create=True)
    worker = Worker(space.url, space.queue.namespace, concurrency=1, priority=["pay", "mail"], settings=space.settings)

    @worker.handler("mail")
    async def mail(_: str) -> None:
        seen.add("mail")
        if len(seen) % 10 == 5:
            await asyncio.to_thread(fill, space, pay=2)

    @worker.handler("pay")
    async def pay(_: str) -> None:
        seen.add("pay")

    await space.burst(worker)
    text = "".join(topic[0] for topic in seen.all)
    assert text.count("m") == 40
    assert text.startswith("mmmmmpp")
    for i, topic in enumerate(text[:-2]):
        if topic == "m" and (i + 1) % 10 == 5:
            assert text[i + 1 : i + 3] == "pp", text
