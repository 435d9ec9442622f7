"""The API in front of a real Redis: called in this process, or as a separate server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from streamdq import Queue
from streamdq.config import HttpSettings, Settings
from streamdq.http import create_app
from tests.http.harness import NAMESPACE, Api
from tests.servers import Server
from tests.waiting import HANG_S

Open = Callable[..., Any]


@pytest.fixture
def redis_server(newest: Server) -> Server:
    return newest


@pytest.fixture
async def open_api(redis_server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """Opens the API with other arguments of create_app than `api`; it is closed after the test. Pages have what is read
    of all topics, however long that takes: otherwise a busy machine would show them without.
    """
    monkeypatch.setattr("streamdq.http.topic_cache._WAIT_S", HANG_S)
    async with AsyncExitStack() as opened:

        async def begin(token: str | None = None, **options: Any) -> Api:
            given: dict[str, Any] = {
                "http": HttpSettings(), "settings": Settings(url="memory://unused"), "authentication": "mine",
            }  # fmt: skip
            app = create_app(redis_server.url, NAMESPACE, **(given | options))
            await opened.enter_async_context(app.router.lifespan_context(app))
            transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
            client = httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=HANG_S)
            if token:
                client.headers["Authorization"] = f"Bearer {token}"
            return Api(await opened.enter_async_context(client), app)

        yield begin


@pytest.fixture
async def api(open_api: Open) -> Api:
    """The API without tokens."""
    opened: Api = await open_api()
    return opened


@pytest.fixture
def queue(redis_server: Server) -> Iterator[Queue]:
    with Queue(redis_server.url, NAMESPACE) as opened:
        yield opened


@pytest.fixture
async def site(open_api: Open) -> Api:
    """Without tokens; a browser's client."""
    opened: Api = await open_api()
    opened.client.headers["Origin"] = "http://localhost"
    return opened
