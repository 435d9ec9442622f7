"""What tests of other projects run on: clocks that stand still, and other times than ours."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from streamdq import InvalidInput
from streamdq.testing import drain, memory
from streamdq.worker.blocked_loop import LoopWatch


class _Stands(asyncio.SelectorEventLoop):
    """A loop whose clock stands still, as freezegun makes it."""

    def time(self) -> float:
        return 946_684_800.0


def test_a_clock_that_stands_still_is_reported() -> None:
    """Its time-outs would never come."""
    server = memory()
    with asyncio.Runner(loop_factory=_Stands) as runner, pytest.raises(InvalidInput, match="real_asyncio=True"):
        runner.run(drain(server.worker(), server.clock))


def test_the_year_2000(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moments then have a digit less."""
    monkeypatch.setattr(time, "time", lambda: 946_684_800.0)
    monkeypatch.setattr(LoopWatch, "_stood_still", lambda *_: None)  # this machine may, at any moment
    server = memory()
    worker = server.worker()
    worker.handler("t")(print)
    with server.queue() as queue, caplog.at_level("WARNING", "streamdq"):
        queue.enqueue("t", {}, delay=5)
        asyncio.run(drain(worker, server.clock, "1m"))
        assert queue.stats("t").topics["t"].groups["default"].done == 1
    assert caplog.messages == []


@pytest.mark.parametrize("threaded", [False, True])
def test_a_handler_that_hangs_is_named(monkeypatch: pytest.MonkeyPatch, threaded: bool) -> None:
    server, ends, timeout, limits = memory(), threading.Event(), asyncio.timeout, list[asyncio.Timeout]()
    worker = server.worker()

    def until_it_hangs(delay: float | None) -> asyncio.Timeout:
        if delay != 12345:
            return timeout(delay)
        limits.append(timeout(None))
        return limits[0]

    async def hang() -> None:
        limits[0].reschedule(0.0)
        await asyncio.Event().wait()

    def hang_in_a_thread() -> None:
        loops[0].call_soon_threadsafe(limits[0].reschedule, 0.0)
        ends.wait()

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        await drain(worker, server.clock, within_s=12345)

    loops: list[asyncio.AbstractEventLoop] = []
    monkeypatch.setattr(asyncio, "timeout", until_it_hangs)
    worker.handler("t")(hang_in_a_thread if threaded else hang)
    with server.queue() as queue:
        queue.enqueue("t", id="a")
    try:
        with pytest.raises(TimeoutError, match=r"not done within 12345 s; handlers still run: t / a$"):
            asyncio.run(run())
    finally:
        ends.set()


def test_a_timeout_of_the_workers_own_is_raised_as_it_is() -> None:
    server = memory()
    worker = server.worker()
    worker.handler("t")(print)

    @worker.on_startup
    async def fails() -> None:
        raise TimeoutError("of the database")

    with pytest.raises(TimeoutError, match="of the database"):
        asyncio.run(drain(worker, server.clock))
