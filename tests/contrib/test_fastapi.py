"""streamdq.contrib.fastapi, in real applications."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI, WebSocket
from fastapi.testclient import TestClient

from streamdq import AsyncQueue
from streamdq.contrib.fastapi import QueueDependency, get_queue, queue_lifespan
from streamdq.testing import Memory, memory


@pytest.fixture
def server() -> Iterator[Memory]:
    made = memory()
    yield made
    made.close()


def shop(**given: Any) -> FastAPI:
    app = FastAPI(**given)

    @app.put("/orders/{number}")
    async def order(number: int, queue: QueueDependency) -> str:
        return (await queue.enqueue("order.close", {"n": number}, id=f"order-{number}", delay="30m")).id

    @app.websocket("/socket")
    async def socket(websocket: WebSocket, queue: QueueDependency) -> None:
        await websocket.accept()
        await websocket.send_text(queue.namespace)
        await websocket.close()

    return app


def test_endpoints_get_the_queue(server: Memory) -> None:
    app = shop(lifespan=queue_lifespan(server.url, "ns"))
    with TestClient(app) as client, server.queue("ns") as queue:
        assert client.put("/orders/42").json() == "order-42"
        job = queue.get("order.close", "order-42")
        assert job is not None
        assert (job.body, job.state) == ({"n": 42}, "delayed")
        with client.websocket_connect("/socket") as socket:
            assert socket.receive_text() == "ns"


def test_the_url_may_come_from_the_environment(server: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    app = shop(lifespan=queue_lifespan())
    monkeypatch.setenv("STREAMDQ_URL", server.url)  # after the import of the application, as tests do
    with TestClient(app) as client, server.queue() as queue:
        client.put("/orders/42")
        assert queue.get("order.close", "order-42") is not None


def test_each_application_has_its_own(server: Memory) -> None:
    other = memory()
    one, two = (shop(lifespan=queue_lifespan(at.url)) for at in (server, other))
    with TestClient(one) as first, TestClient(two) as second, server.queue() as here, other.queue() as there:
        first.put("/orders/1")
        second.put("/orders/2")
        assert [here.get("order.close", f"order-{n}") is not None for n in (1, 2)] == [True, False]
        assert [there.get("order.close", f"order-{n}") is not None for n in (1, 2)] == [False, True]
    other.close()


def test_an_application_starts_again_with_a_new_queue(server: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    made, closed = [], []
    init, close = AsyncQueue.__init__, AsyncQueue.close

    def counted(self: AsyncQueue, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        made.append(self)

    async def seen(self: AsyncQueue) -> None:
        await close(self)
        closed.append(self)

    monkeypatch.setattr(AsyncQueue, "__init__", counted)
    monkeypatch.setattr(AsyncQueue, "close", seen)
    app = shop(lifespan=queue_lifespan(server.url))
    for n in (1, 2):  # each in an event loop of its own
        with TestClient(app) as client:
            assert client.put(f"/orders/{n}").status_code == 200
            assert len(closed) == n - 1
        assert closed == made
        assert len(made) == n


def test_in_a_lifespan_of_ones_own_also_for_what_is_mounted(server: Memory) -> None:
    mounted, opened = shop(), queue_lifespan(server.url)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opened(app), opened(mounted):
            yield

    app = shop(lifespan=lifespan)
    app.mount("/mounted", mounted)
    with TestClient(app) as client, server.queue() as queue:
        client.put("/orders/1")
        client.put("/mounted/orders/2")
        assert [queue.get("order.close", f"order-{n}") is not None for n in (1, 2)] == [True, True]


def test_an_application_whose_lifespan_opens_none_says_so(server: Memory) -> None:
    with TestClient(shop()) as client, pytest.raises(RuntimeError, match=r"FastAPI\(lifespan=queue_lifespan\(\)\)"):
        client.put("/orders/1")
    app = shop(lifespan=queue_lifespan(server.url))
    with TestClient(app):
        pass
    with pytest.raises(RuntimeError, match="no open queue"):
        TestClient(app).put("/orders/1")


def test_tests_may_put_another_in_its_place(server: Memory) -> None:
    app = shop()

    async def another() -> AsyncIterator[AsyncQueue]:
        async with server.async_queue("other") as queue:
            yield queue

    app.dependency_overrides[get_queue] = another
    with TestClient(app) as client, server.queue("other") as queue:
        client.put("/orders/1")
        assert queue.get("order.close", "order-1") is not None


def test_closes_when_the_application_fails(server: Memory) -> None:
    app = FastAPI()

    async def fail() -> None:
        async with queue_lifespan(server.url)(app):
            raise ArithmeticError

    import asyncio

    with pytest.raises(ArithmeticError):
        asyncio.run(fail())
    assert not hasattr(app.state, "streamdq_queue")
