"""Reads request bodies of strangers: the work grows only with their size, whatever they contain."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

LINGER_S = 2.0


@contextmanager
def without_collection() -> Iterator[None]:
    """Turns Python's garbage collector off while a body is parsed. It runs for every 700 new lists or dicts and looks
    at more of them each time, so a megabyte of ``[],`` took ten times as long; and nothing parsed is garbage yet.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def is_same_json(one: Any, other: Any) -> bool:
    """Whether both texts have the same values. The order of an object's members does not matter (RFC 8259, section 4),
    while true is not 1, and 1 is not 1.0.
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same_json(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same_json, one, other))
    return bool(one == other)


class LingeringResponse(Response):
    """An answer to a request whose body is still arriving. The connection is closed when the caller has sent all of it
    or has left, or after a while. Closing it earlier would reset the connection, and the answer might be lost.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while (await receive()).get("more_body"):
                    pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class JsonRequest(Request):
    """A request whose JSON is read in bounded time."""

    async def json(self) -> Any:
        """The body.

        Raises:
            ValueError, RecursionError: it is not JSON, nested too deep, or has a number of too many digits.
        """
        body = await self.body()
        with without_collection():
            return json.loads(body)
