"""Calls users' functions, awaits their results, and returns their exceptions as values."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from ..errors import InvalidInput

_LAZY = (GeneratorType, AsyncGeneratorType, map, filter)


def check(function: Callable[..., Any], name: str) -> None:
    """Checks a function that is registered as ``name``.

    Raises:
        InvalidInput: it can't be called, or a call runs none of its code.
    """
    if not callable(function):
        raise InvalidInput(f"{name}: {function!r} is not a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(f"{name}: {function.__qualname__} is a generator function, so calling it runs nothing")


def called(function: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    """What the function returns, and what it raises. The exception is returned as a value because some can't be raised
    where the result is awaited: a Future can't hold a StopIteration, and a KeyboardInterrupt or SystemExit would end
    the event loop.
    """
    try:
        return function(*args), None
    except BaseException as error:
        return None, error


async def run(function: Callable[..., Any], *args: Any) -> BaseException | None:
    """Calls the function and awaits what it returns, as ``completed`` does; returns the exception."""
    try:
        result = function(*args)
        if type(result) is CoroutineType:  # an async def's, and nearly always the only thing to await
            result = await result
    except BaseException as error:
        return error
    return None if result is None else await completed(result)


async def completed(result: Any) -> BaseException | None:
    """Awaits the result of a call, and the results of that, until nothing is left to await; returns the exception. A
    plain function may return the coroutine, Task or Future that does its work. A generator is an error, because none
    of its code has run.
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


def is_complete(result: Any) -> bool:
    """Whether ``completed`` would find nothing to await in the result of a call, and no error."""
    return result is None or not (isinstance(result, (Future, *_LAZY)) or inspect.isawaitable(result))


def drop(result: Any) -> None:
    """Disposes of a call's result that nobody will await."""
    if isinstance(result, CoroutineType):
        result.close()
    elif isinstance(result, Future):
        result.cancel()
