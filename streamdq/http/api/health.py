"""Health checks and metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from pydantic_core import to_json

from ...errors import NewerFormat, ServerError
from ...exporter.exporter import families
from ...exporter.gauges import read_gauges
from ...metrics import declared
from ...process.logs import log
from ..auth import Role
from ..problems import ProblemError
from .models.checks import HealthOut
from .route import JSON, Route, backend_of, operation

router = APIRouter(route_class=Route)
_STALLED_S = 5.0
_SCRAPE_S = 4.0
_OK = to_json({"status": "ok"})


@operation(
    router, "GET", "/health/alive", roles=None, tag="Health", problems=["too-busy"],
    responses={200: {"description": "It makes progress.", "model": HealthOut}},
)  # fmt: skip
async def get_alive(request: Request) -> Response:
    """Check that the server is alive. Needs no token, and does not ask Redis: restart the server if this fails."""
    ticked = backend_of(request).ticked
    if ticked is not None and time.monotonic() - ticked > _STALLED_S:
        raise ProblemError("too-busy", "the event loop stood still")
    return Response(_OK, media_type=JSON)


@operation(
    router, "GET", "/health/ready", roles=None, tag="Health",
    problems=["redis-unavailable", "redis-refuses", "newer-format"],
    responses={200: {"description": "Redis takes writes.", "model": HealthOut}},
)  # fmt: skip
async def get_ready(request: Request) -> Response:
    """Check that Redis accepts writes, and that no newer version has written the data. Needs no token: send no requests
    to this server while it fails.

    However often it is called, it writes to Redis at most once a second. It looks at the data's format every ten
    seconds.
    """
    await backend_of(request).probe.check()
    return Response(_OK, media_type=JSON)


@operation(
    router, "GET", "/metrics", roles=(Role.VIEWER,), tag="Health", response_class=Response, every_group=True,
    responses={200: {"description": "Prometheus's text format.", "content": {"text/plain": {
        "schema": {"type": "string"}}}}},
)  # fmt: skip
async def get_metrics(request: Request) -> Response:
    """Get this process's metrics, and those read from Redis, which are missing while streamdq_up is 0."""
    backend = backend_of(request)
    store = await backend.store()
    async with backend.reader() as reader:
        try:
            async with asyncio.timeout(_SCRAPE_S):
                readings = await backend.do(read_gauges(store, reader))
        except (ServerError, NewerFormat, TimeoutError) as error:
            log.warning("gauges not read", error=f"{type(error).__name__}: {error}")
            readings = reader.readings()
            readings.put(declared.UP, 0)
    registry = CollectorRegistry()
    registry.register(REGISTRY)
    registry.register(_Read(list(families(readings))))
    return Response(await asyncio.to_thread(generate_latest, registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


class _Read(Collector):
    """A collector of metrics that were read before."""

    def __init__(self, found: list[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found
