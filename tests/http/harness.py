"""The HTTP tests' client of the API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
from fastapi import FastAPI

NAMESPACE = "streamdq"
JSON = {"Content-Type": "application/json"}


@dataclass
class Api:
    """The API's client, and the app behind it."""

    client: httpx.AsyncClient
    app: FastAPI

    @staticmethod
    def job(topic: str, id: str) -> str:
        return f"/v1/topics/{quote(topic, safe='')}/jobs/{quote(id, safe='')}"

    async def put(self, id: str, body: Any = 1, topic: str = "t", on_conflict: str | None = None, **more: Any) -> Any:
        query = {"on_conflict": on_conflict} if on_conflict else None
        return await self.client.put(self.job(topic, id), json={"body": body, **more}, params=query)

    async def get(self, id: str, topic: str = "t") -> Any:
        return await self.client.get(self.job(topic, id))

    async def take(self, topic: str = "t", **query: Any) -> Any:
        return await self.client.post(f"/v1/topics/{topic}/take", params=query)

    async def end(self, how: str, claim: str, **more: Any) -> Any:
        return await self.client.post(f"/v1/claims/{how}", json={"claim": claim, **more})


def kind(response: httpx.Response) -> str:
    """The kind of problem in a response; checks that it is a valid problem."""
    assert response.headers["content-type"] == "application/problem+json"
    found = response.json()
    assert found["status"] == response.status_code
    assert found["title"]
    return str(found["type"].removeprefix("urn:streamdq:problem:"))


def altered(text: str) -> str:
    """The text with another character near its end, and not at it: the last one of Base64 has bits that don't count."""
    return text[:-5] + ("A" if text[-5] != "A" else "B") + text[-4:]
