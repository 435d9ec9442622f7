"""Time to run: what is over it is cut off or taken over; heartbeats and a job's own TTR change it."""

from __future__ import annotations

import asyncio
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from streamdq import Job, NewJob, RunningJob, StaleClaim
from streamdq.keys import ShardKeys
from streamdq.mover.reclaim import Reclaimer
from streamdq.times.clock import ManualClock
from tests.redis.harness import Seen, Space, recorder, taken
from tests.servers import Server
from tests.waiting import HANG_S, eventually, forever


@pytest.fixture
def _no_take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a worker may be too late, and the mover takes its job over."""

    async def never(_: Reclaimer) -> None:
        await forever()

    monkeypatch.setattr(Reclaimer, "run", never)


only_the_worker = pytest.mark.usefixtures("_no_take_over")


@only_the_worker
async def test_a_handler_over_its_ttr_is_cancelled_and_retried(space: Space, seen: Seen) -> None:
    worker, never = space.worker(), asyncio.Event()

    @worker.handler("t", ttr="30s", retry="1ms")
    async def handler(_body: int, job: RunningJob) -> None:
        seen.add(("start", job.attempt))
        if job.attempt == 1:
            job.touch("150ms")  # once it has begun, however late that is
            try:
                await never.wait()
            except asyncio.CancelledError:
                seen.add(("cancelled", job.attempt))
                raise

    space.queue.enqueue("t", 1, id="a")
    async with space.serving(worker):
        await seen.count(3)
        await space.becomes("a", "gone")
    assert seen.all == [("start", 1), ("cancelled", 1), ("start", 2)]
    stats = space.stats()
    assert (stats.done, stats.retried, stats.reclaimed) == (1, 1, 0)


@pytest.mark.parametrize("batch", [None, 5])
async def test_a_heartbeat_that_comes_too_late_ends_the_handler(
    stepped: Space, clock: ManualClock, seen: Seen, batch: int | None
) -> None:
    """As where its process was stopped for longer than the TTR. It would run on beside that of another worker, for as
    long as it sends heartbeats.
    """
    stopped, other, goes_on, ends = stepped.worker(concurrency=1), stepped.worker(), asyncio.Event(), asyncio.Event()

    @stopped.handler("t", batch=batch, ttr="60s")
    async def has_lost_it(_body: Any, job: RunningJob | list[RunningJob]) -> None:
        (only,) = job if isinstance(job, list) else [job]
        seen.add(("first", only.attempt))
        await goes_on.wait()
        only.touch()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.add("cancelled")
            raise

    @other.handler("t", ttr="60s")
    async def has_it(_body: int, job: Job) -> None:
        seen.add(("second", job.attempt))
        await ends.wait()

    stepped.queue.enqueue("t", 1)
    async with stepped.serving(stopped):
        await seen.count(1)
        clock.advance("61s")
        async with stepped.serving(other):
            await seen.count(2)
            goes_on.set()
            await seen.count(3)
            ends.set()
            await eventually(lambda: stepped.stats().done == 1, "the other has done it")
    assert seen.all == [("first", 1), ("second", 2), "cancelled"]
    assert (stepped.stats().retried, stepped.stats().reclaimed) == (0, 1)


async def test_one_of_a_batch_that_was_lost_ends_for_itself(space: Space, seen: Seen, redis_server: Server) -> None:
    worker, goes_on = space.worker(), asyncio.Event()

    @worker.handler("t", batch=5, ttr="60s")
    async def handler(bodies: list[int], jobs: list[RunningJob]) -> None:
        seen.add(sorted(bodies))
        await goes_on.wait()
        for job in jobs:
            job.touch()
        with pytest.raises(StaleClaim):
            await _until_it_is_not_running(next(job for job in jobs if job.id == "1"))
        seen.add("done")

    space.queue.enqueue_many("t", [NewJob(n, id=str(n)) for n in range(3)])
    async with space.serving(worker):
        await seen.count(1)
        with redis_server.client() as client:  # its claim is gone, as after a failover
            (progress,) = client.keys("*:progress")
            kept = {key: value for key, value in client.hgetall(progress).items() if key.endswith(b"\x1f1")}
            client.hdel(progress, *kept)
        goes_on.set()
        await seen.count(2)
        await eventually(lambda: space.stats().done == 2, "the others are done")
        with redis_server.client() as client:
            client.hset(progress, mapping=kept)
            space.queue.delete_topic("t", force=True)
    assert seen.all == [[0, 1, 2], "done"]


async def test_a_touch_that_redis_refused_is_no_failure_if_the_claim_holds_all_the_same(
    space: Space, seen: Seen, redis_server: Server
) -> None:
    """Somebody has destroyed the consumer group, and its claims with it."""
    worker = space.worker()

    @worker.handler("t", ttr="60s", retry="none")
    async def handler(_body: int, job: RunningJob) -> None:
        seen.add(job.attempt)
        if len(seen) == 1:
            with redis_server.client() as client:
                (ready,) = client.keys("*:ready")
                client.xgroup_destroy(ready, "default")
                client.xgroup_create(ready, "default", "0")
            job.touch()
            await asyncio.Event().wait()

    space.queue.enqueue("t", 1, id="a")
    async with space.serving(worker):
        await space.becomes("a", "gone")
    assert (space.stats().done, space.stats().dead) == (1, 0)
    assert len(seen) == 2


async def _until_it_is_not_running(job: RunningJob) -> None:
    async with asyncio.timeout(HANG_S):
        while True:
            job.time_left_s()
            await asyncio.sleep(0.005)


def lost_claim(space: Space, id: str, ttr: str | None = None) -> None:
    """A consumer claims the job and never comes back."""
    space.queue.enqueue("t", id, id=id, ttr=ttr)
    assert space.queue.take("t", timeout=HANG_S)


@pytest.mark.parametrize("in_thread", [False, True])
async def test_heartbeats_keep_a_long_job(stepped: Space, clock: ManualClock, seen: Seen, in_thread: bool) -> None:
    worker, beats, loop = stepped.worker(), SimpleQueue[bool](), asyncio.get_running_loop()
    stepped.queue.configure("t", ttr="60s", retry="none")
    for ttr in ("70s", "115s"):  # show that it was looked what is to be taken over
        lost_claim(stepped, ttr, ttr)

    def work(body: str, job: RunningJob) -> None:
        loop.call_soon_threadsafe(seen.add, body)
        while body == "long" and beats.get():
            job.touch()

    async def work_in_loop(body: str, job: RunningJob) -> None:
        seen.add(body)
        while body == "long":
            await eventually(lambda: not beats.empty(), "it is to send a heartbeat")
            if not beats.get():
                break
            job.touch()

    worker.handler("t")(work if in_thread else work_in_loop)
    stepped.queue.enqueue("t", "long", id="long")

    def deadline_ms() -> int:
        return stepped.job("long").groups["default"].deadline_ms or 0

    async with stepped.serving(worker):
        await seen.count(1)
        for count in (1, 2, 3):
            before = deadline_ms()
            clock.advance("45s")
            await seen.count(count)
            beats.put(True)
            await eventually(partial(lambda before: deadline_ms() > before, before), "its heartbeat has come")
        await eventually(lambda: stepped.stats().done == 2, "the others are done")
        beats.put(False)
        await stepped.becomes("long", "gone")
    assert seen.all == ["long", "70s", "115s"]
    assert stepped.stats().reclaimed == 2


async def test_a_poison_pill_is_buried_after_max_deliveries(space: Space, seen: Seen) -> None:
    space.queue.configure("t", ttr="150ms", max_deliveries=3)
    lost_claim(space, "a")
    for attempt in (2, 3):
        claim = taken(space.queue, "t", timeout=HANG_S)
        assert claim.job.attempt == attempt
    worker = space.recording(seen)

    @worker.on_dead
    async def reported(job: Job) -> None:
        progress = job.groups["default"]
        seen.add((job.id, progress.reason, progress.crashes))

    async with space.serving(worker):
        await seen.count(1)
    assert seen.all == [("a", "crashed", 3)]
    assert (space.stats().reclaimed, space.stats().dead) == (3, 1)
    # kicked back, it is given as many chances again
    space.queue.kick("t", "a")
    await space.burst(worker)
    assert seen.all[1:] == ["a"]


async def test_a_client_whose_name_is_no_text_holds_nothing_up(space: Space, redis_server: Server) -> None:
    """Names of another client's consumers are bytes. While one holds a job, other groups' jobs are taken over."""
    space.queue.configure("t", groups=["a", "b"], ttr="500ms", create=True)
    space.queue.enqueue("t", 1, id="a")
    ready = space.queue._store.session.keys.shard("t", 0).ready
    foreign, mover = b"\xff\xfe|\x80", space.worker()
    mover.handler("another")(recorder(Seen()))
    async with space.serving(mover):
        await eventually(lambda: space.stats("t", "a").ready, "it is ready")
        with redis_server.client() as client:
            ((_, ((entry, _),)),) = client.xreadgroup("a", foreign, {ready: ">"})
            assert space.queue.take("t", "b")

            def taken_over() -> int:
                client.xclaim(ready, "a", foreign, 0, [entry], justid=True)
                return space.stats("t", "b").reclaimed

            await eventually(taken_over, "b's job is taken over")
        assert space.audit().balanced


async def test_time_that_jumps_while_the_mover_looks_is_noticed(
    stepped: Space, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock that is moved by hand there is no other look."""
    worker, sweep, jumps = stepped.worker(), Reclaimer._sweep, [clock.advance]

    @worker.handler("another")
    async def handler(_body: int) -> None:
        pass

    async def swept(self: Reclaimer, shard: ShardKeys, topic: Any, group: str, watch: Any) -> Any:
        found = await sweep(self, shard, topic, group, watch)
        if found is not None and found.running and jumps:
            jumps.pop()("61s")
            await eventually(lambda: watch.next == 0.0, "another look is wanted")
        return found

    monkeypatch.setattr(Reclaimer, "_sweep", swept)
    async with stepped.serving(worker):
        stepped.queue.enqueue("t", 1, ttr="60s")
        assert await asyncio.to_thread(stepped.queue.take, "t")
        clock.advance("1s")  # the mover looks
        await eventually(lambda: stepped.stats().reclaimed == 1, "it is taken over")


async def test_a_look_that_does_not_end_is_made_again(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it awaits something that somebody else cancels: the loop goes on."""
    worker, sweep, breaks = space.worker(), Reclaimer._sweep, [True]
    monkeypatch.setattr("streamdq.mover.reclaim._SLOW_S", 0.1)

    @worker.handler("another")
    async def handler(_body: int) -> None:
        pass

    async def swept(self: Reclaimer, *args: Any) -> Any:
        found = await sweep(self, *args)
        if found is not None and found.running and breaks:
            breaks.pop()
            raise asyncio.CancelledError
        return found

    monkeypatch.setattr(Reclaimer, "_sweep", swept)
    async with space.serving(worker):
        space.queue.enqueue("t", 1, ttr="2s")
        assert await asyncio.to_thread(space.queue.take, "t")
        await eventually(lambda: not breaks, "a look does not end")
        await eventually(lambda: space.stats().reclaimed == 1, "it is taken over")
