"""Loops go on through everything but data of a newer version: for these there is nothing to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from streamdq.errors import FORMAT, NewerFormat, ServerUnavailable
from streamdq.process.cancellations import uncancelled
from streamdq.process.loop import Failures, supervise

NEWER = FORMAT + 1


async def test_a_loop_that_fails_runs_again() -> None:
    runs = []

    async def body() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise ServerUnavailable("away")

    await supervise("test", body, asyncio.Event(), "ns")
    assert len(runs) == 3


async def test_a_loop_that_awaits_what_somebody_cancelled_runs_again() -> None:
    """It would end without a word, while the others go on."""
    runs = []

    async def body() -> None:
        runs.append(1)
        if len(runs) < 3:
            awaited = asyncio.get_running_loop().create_future()
            awaited.cancel()
            await awaited

    await supervise("test", body, asyncio.Event(), "ns")
    assert len(runs) == 3


async def test_a_loop_that_is_cancelled_itself_ends() -> None:
    begun = asyncio.Event()

    async def body() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(supervise("test", body, asyncio.Event(), "ns"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_group_that_is_cancelled_ends_though_a_part_of_it_then_fails() -> None:
    """Before Python 3.13 the group raises that failure alone, and a caller that waits for the loop's end would wait for
    ever.
    """
    runs, waiting, stopping = [], asyncio.Event(), asyncio.Event()

    async def body() -> None:
        runs.append(1)
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ServerUnavailable("away")

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(uncancelled(body))

    task = asyncio.create_task(supervise("test", group, stopping, "ns"))
    await waiting.wait()
    waiting.clear()
    task.cancel()
    again = asyncio.create_task(waiting.wait())
    await asyncio.wait({task, again}, return_when=asyncio.FIRST_COMPLETED)
    stopping.set()
    again.cancel()
    task.cancel()
    await asyncio.wait({task})
    assert len(runs) == 1
    assert task.cancelled()


async def test_a_part_that_awaits_what_somebody_cancelled_ends_its_group() -> None:
    """The group would go on without it."""

    async def body() -> None:
        awaited = asyncio.get_running_loop().create_future()
        awaited.cancel()
        await awaited

    async def other() -> None:
        await asyncio.Event().wait()

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            for loop in (body, other):
                tasks.create_task(uncancelled(loop))

    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(group(), 10)
    assert raised.group_contains(RuntimeError, match="somebody else has cancelled")


@pytest.mark.parametrize("foreign", [False, True], ids=["an error", "a cancellation"])
async def test_of_a_group_of_errors_the_log_tells_the_first(foreign: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The group itself was raised in asyncio."""
    fails = [True]

    async def body() -> None:
        awaited = asyncio.get_running_loop().create_future()
        if not fails:
            return
        fails.clear()
        if foreign:
            awaited.cancel()
        else:
            awaited.set_exception(RuntimeError("no"))
        await awaited

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(uncancelled(body))

    with caplog.at_level("WARNING", "streamdq"):
        await asyncio.wait_for(supervise("tested", group, asyncio.Event(), "test"), 10)
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"RuntimeError at {__file__}:" in line


async def test_a_part_that_is_cancelled_before_it_began_leaves_nothing_behind() -> None:
    """Python would warn of a coroutine that nobody awaited."""
    called = []

    async def body() -> None: ...

    def made() -> Coroutine[Any, Any, None]:
        called.append(1)
        return body()

    task = asyncio.create_task(uncancelled(made))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not called


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "in a group of errors"])
async def test_a_newer_format_ends_a_loop(grouped: bool) -> None:
    async def fail() -> None:
        raise NewerFormat(NEWER)

    async def body() -> None:
        if not grouped:
            await fail()
        async with asyncio.TaskGroup() as tasks, asyncio.TaskGroup() as inner:
            tasks.create_task(asyncio.Event().wait())
            inner.create_task(fail())

    with pytest.raises(NewerFormat) as raised:
        await asyncio.wait_for(supervise("test", body, asyncio.Event(), "ns"), 10)
    assert raised.value.format == NEWER


def test_what_met_a_newer_format_is_not_tried_again() -> None:
    failures = Failures("test", "ns")
    assert failures.pause_after("shard", ServerUnavailable("away")) > 0
    with pytest.raises(NewerFormat):
        failures.pause_after("shard", NewerFormat(NEWER))


def test_clients_that_failed_together_do_not_try_again_together() -> None:
    first, second = Failures("test", "ns"), Failures("test", "ns")
    error = ServerUnavailable("away")
    pauses = [(first.pause_after("shard", error), second.pause_after("shard", error)) for _ in range(8)]
    longest = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert all(most / 2 <= pause <= most for both, most in zip(pauses, longest, strict=True) for pause in both)
    assert all(one != other for one, other in pauses)
