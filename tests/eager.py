"""Event loops whose tasks begin at once, as with ``asyncio.eager_task_factory``, which Python has from 3.12 on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def _begun(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
    """A task that has made its first step. That is scheduled when the task is made; here it is taken out, and made."""
    task: asyncio.Task[Any] = asyncio.tasks._PyTask(coroutine, loop=loop, **options)  # type: ignore[attr-defined]
    if not loop.is_running():
        return task
    first = loop._ready.pop()  # type: ignore[attr-defined]
    outer = asyncio.current_task(loop)
    if outer is not None:
        asyncio.tasks._leave_task(loop, outer)
    try:
        first._run()
    finally:
        if outer is not None:
            asyncio.tasks._enter_task(loop, outer)
    return task


def eager_loop() -> asyncio.AbstractEventLoop:
    """A new one."""
    loop: asyncio.AbstractEventLoop = asyncio.SelectorEventLoop()
    factory: Any = getattr(asyncio, "eager_task_factory", None) or _begun
    loop.set_task_factory(factory)
    return loop
