"""The page of the workers: who, where, since when, what each runs now, and its last heartbeat."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from ...operations.topics.workers import ALIVE_MS
from .. import redact
from ..api.route import backend_of, who_asks
from .page_routes import PageRoute, get
from .render import page

router = APIRouter(route_class=PageRoute)
_MOST = 200
_JOBS = 5
SILENT_MS = 10_000
"""A worker that holds claims sends a heartbeat every second."""


@get(router, "/workers", sifts=True)
async def worker_page(request: Request, q: Annotated[str, Query(max_length=255)] = "") -> Response:
    backend = backend_of(request)
    seen = await backend.workers.latest()
    found = [] if seen is None else redact.workers(who_asks(request), seen.found)
    shown = [one for one in found if q.lower() in one.name.lower()]
    now_ms = seen.now_ms if seen else 0

    def silent(seen_ms: int, held: int) -> bool:
        return now_ms - seen_ms > (SILENT_MS if held else ALIVE_MS)

    shown.sort(key=lambda one: (not silent(one.seen_ms, one.held), one.name))
    return page(
        request, "workers.html", workers=shown[:_MOST], count=len(shown), all=len(found), most=_MOST, jobs=_JOBS,
        now=now_ms, silent=silent, whole=seen is None or seen.whole, ready=seen is not None, q=q, here="workers",
    )  # fmt: skip
