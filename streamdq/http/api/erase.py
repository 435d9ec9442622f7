"""Erase what Redis keeps of a person or customer."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from ..audit_log import about
from ..auth import Role
from .models.erase import ErasedOut, EraseIn
from .route import JSON, Route, backend_of, operation

router = APIRouter(route_class=Route)


@operation(
    router, "POST", "/v1/erase", roles=(Role.ADMIN,), takes=JSON, tag="Erasure", notable=True, every_group=True,
    problems=["unknown-topic", "too-busy"],
    responses={200: {"description": "What was found and erased; look at `whole`.", "model": ErasedOut}},
)  # fmt: skip
async def erase(request: Request, which: EraseIn) -> Response:
    """Erase what Redis keeps of a person or customer.

    Jobs, dead letters, results, history, errors and taken ids; not the archive, the outbox and the dumps, which
    `streamdq erase` reaches. It needs a token for all topics and groups. Count with `dry_run` first. Safe to repeat: if
    the answer was lost, or the caller left, send the request again; it completes what the one before began. If `whole`
    is false, `remaining` says what is left and why.
    """
    if which.topic is not None:
        about(request, topic=which.topic)
    backend = backend_of(request)
    queue = await backend.queue()
    found = await backend.search(
        request,
        lambda: queue.erase(
            which.topic, key=which.key, where=which.where or None, schedules=which.schedules, abort=which.abort,
            dry_run=which.dry_run,
        ),
    )  # fmt: skip
    return Response(to_json({**asdict(found), "whole": found.whole}), media_type=JSON)
