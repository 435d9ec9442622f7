"""The floor of punctuality: the lateness of a timer and two round trips in a bare asyncio process on this machine."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import redis.asyncio

T = TypeVar("T")


def event_loop() -> str:
    """The event loop that Worker.run uses."""
    return "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    if event_loop() == "uvloop":
        import uvloop

        return uvloop.run(coroutine)
    return asyncio.run(coroutine)


def measure(url: str, count: int, per_second: float) -> list[float]:
    """Lateness in ms of each of ``count`` timers, ``per_second`` of which fire: until the second reply has arrived, as
    with a job that was moved and claimed.
    """
    return run(_measure(url, count, per_second))


async def _measure(url: str, count: int, per_second: float) -> list[float]:
    late_ms: list[float] = []
    async with redis.asyncio.Redis.from_url(url) as client:
        sha = await client.script_load("return 1")
        await asyncio.gather(*(client.ping() for _ in range(10)))  # opens connections before the measurement
        first = time.monotonic() + 0.1

        async def one(due: float) -> None:
            await asyncio.sleep(due - time.monotonic())
            for _ in range(2):
                await client.evalsha(sha, 0)
            late_ms.append((time.monotonic() - due) * 1000)

        await asyncio.gather(*(one(first + i / per_second) for i in range(count)))
    return late_ms
