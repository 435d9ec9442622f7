"""A request that this process makes to its own ASGI app."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp

Answer = tuple[int, list[tuple[str, str]], bytes]
"""Status, headers and body."""


async def answer(app: ASGIApp, scope: dict[str, Any], body: bytes) -> Answer:
    """What the app answers."""
    status = 500
    headers: list[tuple[str, str]] = []
    parts: list[bytes] = []
    asked: list[dict[str, Any]] = [{"type": "http.request", "body": body}]

    async def receive() -> dict[str, Any]:
        if not asked:  # it stays until it is answered: who hears that it has gone answers no more
            await asyncio.Event().wait()
        return asked.pop()

    async def send(message: Any) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
        else:
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, headers, b"".join(parts)
