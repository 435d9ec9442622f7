"""The functions for a worker's start and end, when what runs them is told to end."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from streamdq.worker.lifespan import shut_down, start, until
from tests.waiting import HANG_S, forever


class Functions:
    """Those that are to be called, and those that were."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def plain(self) -> None:
        self.called.append("plain")

    def fails(self) -> None:
        self.called.append("fails")
        raise ValueError("no")

    async def hangs(self) -> None:
        self.called.append("hangs")
        await forever()

    async def catches(self) -> None:
        """Goes on when it is told to end."""
        self.called.append("catches")
        with contextlib.suppress(asyncio.CancelledError):
            await forever()


@pytest.mark.parametrize("name", ["hangs", "catches"])
async def test_what_comes_after_the_one_that_had_to_end_is_not_called(name: str) -> None:
    functions, event = Functions(), asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, event.set)
    async with asyncio.timeout(HANG_S), until(event):
        await start([getattr(functions, name), functions.hangs])
    event.clear()
    asyncio.get_running_loop().call_later(0.01, event.set)
    async with asyncio.timeout(HANG_S), until(event):
        await shut_down([functions.hangs, getattr(functions, name)], show_errors=False)
    assert functions.called == [name, name]


@pytest.mark.parametrize("name", ["hangs", "catches"])
async def test_a_worker_that_is_cancelled_meanwhile_is_cancelled(name: str) -> None:
    functions = Functions()
    ending = asyncio.create_task(shut_down([functions.plain, getattr(functions, name)], show_errors=False))
    await asyncio.sleep(0.01)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert functions.called == [name]


async def test_all_are_called_at_the_end_of_a_worker_that_was_cancelled_before() -> None:
    functions = Functions()

    async def serve() -> None:
        try:
            await forever()
        finally:
            await shut_down([functions.plain, functions.fails, functions.fails], show_errors=False)

    serving = asyncio.create_task(serve())
    await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert functions.called == ["fails", "fails", "plain"]


@pytest.mark.parametrize("steps", range(5))
async def test_a_block_that_ends_as_the_event_is_set(steps: int) -> None:
    """The event's news comes some steps of the loop later."""
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
    event = asyncio.Event()
    async with until(event):
        await asyncio.sleep(0.01)
        event.set()
        for _ in range(steps):
            await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    assert errors == []
