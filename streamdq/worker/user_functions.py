"""Calls users' functions: awaits what they return, and returns what they raise as a value."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

_LAZY = (GeneratorType, AsyncGeneratorType, map, filter)


def called(function: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    """What the function returns, and what it raises. As a value, because not everything can be raised again where the
    result is awaited: no Future holds a StopIteration, and a KeyboardInterrupt or SystemExit would end the event loop.
    """
    try:
        return function(*args), None
    except BaseException as error:
        return None, error


async def completed(result: Any) -> BaseException | None:
    """Awaits what a call returned, until nothing of it is left to do; returns what that raises. A plain function may
    return the coroutine, Task or Future that does its work. A generator has done nothing yet: that is an error.
    """
    try:
        while result is not None:
            if isinstance(result, Future):
                result = asyncio.wrap_future(result)
            if inspect.isawaitable(result):
                result = await result
            elif isinstance(result, _LAZY):
                raise TypeError(f"the handler returned a {type(result).__name__}: none of its code has run")
            else:
                return None
    except BaseException as error:
        return error
    return None


def drop(result: Any) -> None:
    """What a call returned will not be awaited any more."""
    if isinstance(result, CoroutineType):
        result.close()
    elif isinstance(result, Future):
        result.cancel()
