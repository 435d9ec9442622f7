"""The MCP server in front of a real Redis, asked by the SDK's own client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from streamdq import Queue
from streamdq.config import HttpSettings
from streamdq.http import create_app
from tests.servers import Server

if TYPE_CHECKING:
    from mcp import Client

NAMESPACE = "mcp"
Open = Callable[..., AbstractAsyncContextManager["Client"]]


@pytest.fixture
def redis_server(newest: Server) -> Server:
    return newest


@pytest.fixture
def queue(redis_server: Server) -> Iterator[Queue]:
    with Queue(redis_server.url, NAMESPACE) as opened:
        yield opened


@pytest.fixture
def connect(redis_server: Server) -> Open:
    """Connects a client to a server in this process, with the options of the command."""
    from mcp import Client  # which takes a second, in every process of the suite

    from streamdq.mcp.api import Api
    from streamdq.mcp.server import local_token, make_server

    @asynccontextmanager
    async def connected(topics: str | None = None, groups: str | None = None, **how: bool) -> AsyncIterator[Client]:
        how = {"allow_changes": False, "show_bodies": False} | how
        token, tokens = local_token(topics, groups, allow_changes=how["allow_changes"])
        app = create_app(redis_server.url, NAMESPACE, http=HttpSettings(), tokens=tokens)
        async with app.router.lifespan_context(app), Client(make_server(Api(app, token), **how)) as client:
            yield client

    return connected


async def called(client: Client, tool: str, **arguments: Any) -> Any:
    """The structured answer, or the text of the error."""
    result = await client.call_tool(tool, arguments)
    return result.content[0].text if result.is_error else result.structured_content  # type: ignore[union-attr]
