"""Synchronous code in the simulation: it runs in a greenlet, as in a thread of its process, and each of its blocking
calls gives the loop its turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from typing import Any, Self

from greenlet import GreenletExit, getcurrent, greenlet

from streamdq import Queue
from streamdq.link.command import Command
from streamdq.process.loop import wait

from .link import SimulatedLink
from .loop import running


class BlockingLink:
    """In the place of Link."""

    is_cluster = False

    def __init__(self, link: SimulatedLink) -> None:
        self._link = link
        self.target = link.target
        self.node_of = link.node_of

    def send(self, commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        replies: list[Any] = _wait_for(self._link.send(commands, timeout_s, blocking))
        return replies

    def close(self) -> None:
        """There is nothing to close."""


_sleep = time.sleep


def sleep(seconds: float) -> None:
    """In the place of time.sleep; a real thread, such as another test's library may have left, really sleeps."""
    if getcurrent().parent is None:
        _sleep(seconds)
    else:
        _wait_for(asyncio.sleep(seconds))


def _wait_for(awaitable: Awaitable[Any]) -> Any:
    parent = getcurrent().parent
    assert parent is not None
    return parent.switch(awaitable)


async def in_thread(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Runs a function that makes blocking calls. It ends where it is when its process is killed."""
    process = running.get()
    thread = greenlet(function)
    thread.gr_context = copy_context()
    end = lambda: thread.throw(GreenletExit)  # noqa: E731
    if process is not None:
        process.at_end.append(end)
    value = thread.switch(*args, **options)
    while not thread.dead:
        try:
            reply = await value
        except Exception as error:
            value = thread.throw(error)
        else:
            value = thread.switch(reply)
    if process is not None:
        process.at_end.remove(end)
    return value


class SimulatedPulse:
    """In the place of a process's thread that sends heartbeats."""

    def __init__(self) -> None:
        self._sooner: dict[Any, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, one: Any) -> None:
        self._sooner[one] = asyncio.Event()
        self._tasks.add(asyncio.create_task(self._run(one, self._sooner[one])))

    async def _run(self, one: Any, sooner: asyncio.Event) -> None:
        while one in self._sooner:
            sooner.clear()
            left_s = await in_thread(one.beat)
            await wait(sooner, None if left_s == float("inf") else left_s)

    def remove(self, one: Any) -> None:
        if (sooner := self._sooner.pop(one, None)) is not None:
            sooner.set()

    def wake(self) -> None:
        for sooner in self._sooner.values():
            sooner.set()


class ThreadedQueue:
    """A Queue whose methods are awaited, as those of AsyncQueue are."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._queue, name)
        return lambda *args, **options: in_thread(method, *args, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await in_thread(self._queue.close)
