"""The MCP server over HTTP in this process, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from streamdq.config import HttpSettings
from streamdq.http import create_app
from streamdq.http.auth import Tokens
from streamdq.mcp.api import Api
from streamdq.mcp.server import http_app, make_server
from tests.mcp.conftest import NAMESPACE

_URL = "http://localhost/mcp"


class Served:
    """A server over HTTP in this process."""

    def __init__(self, url: str, tokens: Tokens, audit_log: Path | None = None) -> None:
        hosts = None if tokens.required else ("localhost",)
        api = create_app(
            url, NAMESPACE, http=HttpSettings(), tokens=tokens, authentication="mine", allowed_hosts=hosts,
            audit_log=audit_log,
        )  # fmt: skip
        self.app = http_app(api, make_server(Api(api, ""), allow_changes=True, show_bodies=False))

    def http(self, token: str = "", **headers: str) -> httpx2.AsyncClient:
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=self.app), headers=headers, base_url="http://localhost"
        )

    @asynccontextmanager
    async def client(self, token: str = "") -> AsyncIterator[Client]:
        async with self.http(token) as http, Client(streamable_http_client(_URL, http_client=http)) as client:
            yield client
