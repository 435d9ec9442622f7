"""Reads what strangers send: the work is bounded by its bytes, whatever they spell."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import Request


@contextmanager
def without_collection() -> Iterator[None]:
    """Python looks for garbage every 700 new lists or dicts, and each time at more of them: a megabyte of ``[],`` took
    ten times as long to read with it. None of what is read is garbage yet.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Reading(Request):
    """A request whose JSON is read in bounded time."""

    async def json(self) -> Any:
        """The body.

        Raises:
            ValueError, RecursionError: it is not JSON, nested too deep, or has a number of too many digits.
        """
        body = await self.body()
        with without_collection():
            return json.loads(body)
