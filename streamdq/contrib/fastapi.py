"""One AsyncQueue for a FastAPI application: opened and closed by its lifespan, handed to endpoints as a dependency."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated

from ..codec.protocol import Codec
from ..config import Settings
from ..errors import MissingExtra
from ..queue import AsyncQueue

try:
    from fastapi import Depends
    from starlette.applications import Starlette
    from starlette.requests import HTTPConnection
except ImportError:
    raise MissingExtra("fastapi") from None

__all__ = ["QueueDependency", "get_queue", "queue_lifespan"]


def queue_lifespan(
    url: str | None = None,
    namespace: str | None = None,
    *,
    codec: Sequence[Codec] | None = None,
    settings: Settings | None = None,
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """The lifespan of an application with a queue: ``FastAPI(lifespan=queue_lifespan())``. The arguments are those of
    AsyncQueue; it is made when the application starts and closed when it ends, and each application has its own. In a
    lifespan of your own, enter it: ``async with queue_lifespan()(app):``.

    Frameworks don't run the lifespan of an application that is mounted in another: enter it there, too.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncQueue(url, namespace, codec=codec, settings=settings) as queue:
            app.state.streamdq_queue = queue
            try:
                yield
            finally:
                del app.state.streamdq_queue

    return lifespan


async def get_queue(connection: HTTPConnection) -> AsyncQueue:
    """The dependency: the queue of the application that serves the request or WebSocket. Tests may put another in its
    place: ``app.dependency_overrides[get_queue] = lambda: queue``.

    Raises:
        RuntimeError: the application's lifespan has not opened one.
    """
    queue: AsyncQueue | None = getattr(connection.app.state, "streamdq_queue", None)
    if queue is None:
        raise RuntimeError(
            "this application has no open queue: make it with FastAPI(lifespan=queue_lifespan()), or enter "
            "`async with queue_lifespan()(app)` in its lifespan; in tests, use `with TestClient(app)`"
        )
    return queue


QueueDependency = Annotated[AsyncQueue, Depends(get_queue)]
"""The type of an endpoint's parameter that gets the queue: ``async def order(queue: QueueDependency)``."""
