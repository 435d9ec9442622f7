"""How tests wait: for an event, and where nothing tells of it, by asking again until it is so.

``HANG_S`` is no expectation. It ends a test that hangs, and is so long that no busy machine reaches it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

HANG_S = 120.0
_PAUSE_S = 0.005


def until(done: Callable[[], Any], what: str, within_s: float = HANG_S) -> None:
    """Waits for what has no event to await.

    Raises:
        TimeoutError: it did not come; ``what`` says what was waited for.
    """
    deadline = time.monotonic() + within_s
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s} s: {what}")
        time.sleep(_PAUSE_S)


async def eventually(done: Callable[[], Any], what: str, within_s: float = HANG_S) -> None:
    """As ``until``, and lets the event loop go on."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not done():
        if loop.time() > deadline:
            raise TimeoutError(f"not within {within_s} s: {what}")
        await asyncio.sleep(_PAUSE_S)


async def forever() -> None:
    """For a handler that is to be cancelled, or killed with its process."""
    await asyncio.Event().wait()
