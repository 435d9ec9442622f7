"""Database connections of handlers."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import ParamSpec, TypeVar

from django.db import close_old_connections

P = ParamSpec("P")
T = TypeVar("T")


def fresh_connections(handler: Callable[P, T]) -> Callable[P, T]:
    """Decorates a ``def`` handler, below ``@worker.handler``. Before and after each attempt, it closes the thread's
    database connections that have broken or are older than ``CONN_MAX_AGE``, as Django does around each request.

    Raises:
        TypeError: it is an ``async def`` handler, which shares its thread with all others.
    """
    if iscoroutinefunction(handler):
        raise TypeError(
            f"fresh_connections: {handler.__qualname__} is async; a handler that uses the ORM is a plain def"
        )

    @wraps(handler)
    def fresh(*args: P.args, **kwargs: P.kwargs) -> T:
        close_old_connections()
        try:
            return handler(*args, **kwargs)
        finally:
            close_old_connections()

    return fresh
