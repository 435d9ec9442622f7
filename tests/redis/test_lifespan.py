"""What runs before the first job and after the last, the state it leaves to handlers, and event loops."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from dataclasses import dataclass
from typing import Any

import pytest

from streamdq import AsyncQueue, InvalidInput, Worker, WrongLoop
from tests.redis.harness import NAMESPACE, SETTINGS, Seen, Space
from tests.waiting import HANG_S, eventually, forever


@dataclass
class Shop:
    name: str


async def test_the_state_is_made_before_the_first_job_and_given_up_after_the_last(space: Space, seen: Seen) -> None:
    worker = Worker[Shop](space.url, NAMESPACE, settings=space.settings)

    @worker.on_startup
    async def open_shop() -> None:
        worker.state = Shop("corner")
        seen.add("open")

    @worker.on_startup
    def plain() -> None:
        seen.add("plain")

    @worker.on_shutdown
    async def close_shop() -> None:
        seen.add("closed")

    @worker.on_shutdown
    def failing() -> None:
        raise ValueError("told, and no more")

    @worker.handler("t")
    async def handle(body: int) -> None:
        seen.add((worker.state.name, body))

    with pytest.raises(InvalidInput, match=r"set worker.state in a function with @worker.on_startup"):
        worker.state  # noqa: B018
    space.queue.enqueue("t", 1)
    await space.burst(worker)
    assert seen.all == ["open", "plain", ("corner", 1), "closed"]


async def test_a_worker_whose_start_fails_does_not_start(
    space: Space, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    worker = space.worker()

    @worker.on_startup
    def no_database() -> None:
        raise ConnectionError("no database")

    worker.on_shutdown(lambda: seen.add("shut down"))

    @worker.handler("t")
    async def handle(_body: int) -> None:
        seen.add("ran")

    space.queue.enqueue("t", 1, id="a")
    with pytest.raises(ConnectionError, match="no database"):
        await worker.serve(burst=True)
    assert seen.all == []
    assert space.state("a") in ("delayed", "ready")
    with caplog.at_level(logging.ERROR, "streamdq"), pytest.raises(ConnectionError):
        await worker.serve(burst=True)


async def test_what_a_start_function_raises_is_no_stop(space: Space) -> None:
    worker = space.worker()

    @worker.on_startup
    async def late() -> None:
        raise TimeoutError("no database")

    worker.handler("t")(lambda _body: None)
    with pytest.raises(TimeoutError, match="no database"):
        await worker.serve(burst=True)


ONE_SIGNAL_S = 0.1


@pytest.fixture(autouse=True)
def _soon_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.worker.serving.ONE_SIGNAL_S", ONE_SIGNAL_S)


async def _another_signal_counts() -> None:
    """Those that come at once are taken for one."""
    moment = time.monotonic() + ONE_SIGNAL_S
    await eventually(lambda: time.monotonic() > moment, "a moment has passed")


@pytest.mark.parametrize("cancelled", [False, True], ids=["second signal", "cancelled"])
async def test_a_hanging_shutdown_function_can_be_ended(space: Space, seen: Seen, cancelled: bool) -> None:
    worker = space.worker()
    worker.on_shutdown(lambda: seen.add("next"))

    @worker.on_shutdown
    async def hang() -> None:
        seen.add("ending")
        await forever()

    worker.handler("t")(lambda _body: None)
    async with asyncio.timeout(HANG_S):
        serving = asyncio.create_task(worker.serve(burst=True, signals=not cancelled))
        await seen.count(1)
        if cancelled:
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
        else:
            signal.raise_signal(signal.SIGTERM)
            await _another_signal_counts()
            assert not serving.done()
            signal.raise_signal(signal.SIGTERM)
            await serving
    assert seen.all == ["ending"]


async def test_who_hurries_the_handlers_does_not_cut_the_end_short(space: Space, seen: Seen) -> None:
    """Another signal does."""
    worker = space.worker(grace_s=60)

    @worker.on_shutdown
    async def write_what_is_left() -> None:
        await asyncio.sleep(0.01)
        seen.add("written")

    @worker.handler("t")
    async def handle(_body: int) -> None:
        seen.add("running")
        await forever()

    space.queue.enqueue("t", 1, id="a")
    async with asyncio.timeout(HANG_S):
        serving = asyncio.create_task(worker.serve(signals=True))
        await seen.count(1)
        signal.raise_signal(signal.SIGTERM)
        await _another_signal_counts()
        signal.raise_signal(signal.SIGTERM)
        await serving
    assert seen.all == ["running", "written"]


def test_only_functions_whose_code_runs_are_registered(space: Space) -> None:
    worker = space.worker()

    async def lifespan() -> Any:
        yield

    for register in (worker.on_startup, worker.on_shutdown, worker.middleware, worker.on_dead):
        with pytest.raises(InvalidInput, match="lifespan is a generator function, so calling it runs nothing"):
            register(lifespan)
        with pytest.raises(InvalidInput, match=f"{register.__name__}: 5 is not a function"):
            register(5)  # type: ignore[type-var]


def test_an_asynchronous_queue_belongs_to_one_event_loop(space: Space) -> None:
    queue = AsyncQueue(space.url, NAMESPACE, settings=SETTINGS)

    async def put() -> None:
        await queue.enqueue("t")

    with asyncio.Runner() as runner:
        runner.run(put())
        with (
            asyncio.Runner() as another,
            pytest.raises(WrongLoop, match=r"make one in each loop \(async with AsyncQueue\(\) as queue:\)"),
        ):
            another.run(put())
        runner.run(put())
        runner.run(queue.close())
    assert space.queue.stats("t").topics["t"].enqueued == 2
