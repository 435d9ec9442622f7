"""How tests wait: for an event, and where nothing tells of it, by asking again until it is so.

``HANG_S`` is no expectation. It ends a test that hangs, and is so long that no busy machine reaches it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

HANG_S = 120.0
_PAUSES_S = (0.005, 0.05)
"""The first pause and the longest: of what takes seconds, asking two hundred times a second is most of the work."""


def until(done: Callable[[], Any], what: str, within_s: float = HANG_S) -> None:
    """Waits for what has no event to await.

    Raises:
        TimeoutError: it did not come; ``what`` says what was waited for.
    """
    begin = time.monotonic()
    while not done():
        time.sleep(_pause(time.monotonic() - begin, what, within_s))


async def eventually(done: Callable[[], Any], what: str, within_s: float = HANG_S) -> None:
    """As ``until``, and lets the event loop go on."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    while not done():
        pause_s = _pause(loop.time() - begin, what, within_s)
        await asyncio.sleep(pause_s)


def _pause(waited_s: float, what: str, within_s: float) -> float:
    """A tenth of the time that it has waited, so that it never waits much longer than it has to."""
    if waited_s > within_s:
        raise TimeoutError(f"not within {within_s} s: {what}")
    first, longest = _PAUSES_S
    return min(max(first, waited_s / 10), longest)


async def forever() -> None:
    """For a handler that is to be cancelled, or killed with its process."""
    await asyncio.Event().wait()
