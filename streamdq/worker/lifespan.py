"""Calls the functions that users have registered for the start and the end of a worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..process.logs import as_exc_info, log, what
from .user_functions import run


async def start(functions: Sequence[Callable[[], Any]]) -> None:
    """Calls them in the order in which they were registered. What one raises is raised here: the worker does not start,
    and those after it are not called.
    """
    for function in functions:
        if (error := await run(function)) is not None:
            raise error


async def shut_down(functions: Sequence[Callable[[], Any]], *, show_errors: bool) -> None:
    """Calls them in the reverse order, each of them whatever the others raise; that is logged."""
    for function in reversed(functions):
        if (error := await run(function)) is not None:
            shown = {"exc_info": as_exc_info(error)} if show_errors else {}
            log.error("on_shutdown failed", error=what(error), **shown)
