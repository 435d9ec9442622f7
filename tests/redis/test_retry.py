"""Failed attempts: the steps, what a handler can ask for, and where it ends."""

from __future__ import annotations

from pydantic import BaseModel

from streamdq import Bury, Job
from streamdq.times.clock import ManualClock
from tests.redis.harness import Seen, Space, taken


class Order(BaseModel):
    order_id: int


async def test_an_invalid_body_is_buried_with_the_validation_error(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t", retry="0 0 0")
    async def handler(order: Order) -> None:
        seen.add(order.order_id)

    space.queue.enqueue("t", {"order_id": "not a number"}, id="wrong")
    space.queue.enqueue("t", {}, id="missing")
    space.queue.enqueue("t", {"order_id": 7}, id="right")
    await space.burst(worker)
    assert seen.all == [7]
    dead = {job.id: job.groups["default"] for job in space.queue.dead("t")}
    assert set(dead) == {"wrong", "missing"}
    assert {progress.reason for progress in dead.values()} == {"invalid"}
    assert "order_id: Input should be a valid integer" in (dead["wrong"].error or "")
    assert dead["missing"].error == "order_id: Field required"
    assert {progress.attempt for progress in dead.values()} == {1}


async def test_on_dead_is_called_for_each_job_given_up(space: Space, seen: Seen) -> None:
    worker = space.worker()
    threads: list[str] = []

    @worker.handler("t", retry="none")
    async def handler(body: dict[str, str]) -> None:
        if body["how"] == "bury":
            raise Bury("why")
        if body["how"] == "fail":
            raise ValueError("what")

    @worker.on_dead
    async def reported(job: Job) -> None:
        progress = job.groups["default"]
        # Redis has it already
        seen.add((job.id, space.state(job.id), progress.reason, progress.error, job.body))

    @worker.on_dead
    def on_dead_in_a_thread(job: Job) -> None:
        threads.append(job.id)

    for how in ("bury", "fail", "finish"):
        space.queue.enqueue("t", {"how": how}, id=how)
    space.queue.enqueue("t", [1], id="invalid")
    await space.burst(worker)
    by_id = {reported[0]: reported[1:] for reported in seen.all}
    assert len(seen) == 3
    assert by_id["bury"] == ("dead", "buried", "why", {"how": "bury"})
    assert by_id["fail"] == ("dead", "exhausted", "ValueError: what", {"how": "fail"})
    assert by_id["invalid"][:2] == ("dead", "invalid")
    assert sorted(threads) == ["bury", "fail", "invalid"]


async def test_dead_letters_are_in_order_over_all_shards(stepped: Space, clock: ManualClock) -> None:
    stepped.queue.configure("t", shards=4)
    ids = [f"j{n}" for n in range(12)]
    for id in ids:
        stepped.queue.enqueue("t", 1, id=id)
        taken(stepped.queue, "t").bury("x")
        clock.advance(1)
    assert [job.id for job in stepped.queue.dead("t")] == ids
    assert [job.id for job in stepped.queue.dead("t", limit=5)] == ids[:5]
