"""How jobs have ended, and waiting for that."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic_core import to_json
from starlette.requests import ClientDisconnect

from ...config import TopicSettings
from ...errors import BodyUnreadable, InvalidInput, ResultTimeout
from ...link.session import Op
from ...operations.results.value import json_of
from ...operations.results.wanted import Wanted, wanted
from ...process.loop import cancel_and_wait
from ...queue import kept_by
from ...store.jobs.results import EndState, StoredResult
from ...store.redis_store import RedisStore
from ..auth import Identity, Role
from ..backend import Backend, left
from ..problems import ProblemError
from .jobs import KeyIn
from .models.jobs import ResultOut
from .route import JSON, IdPath, Route, TopicPath, backend_of, check_group_scope, operation, who_asks

router = APIRouter(route_class=Route)
MAX_WAIT_S = 60.0


@operation(
    router, "GET", "/v1/topics/{topic:segment}/jobs/{id:segment}/result",
    roles=(Role.PRODUCER, Role.WORKER, Role.VIEWER), tag="Jobs",
    problems=["unknown-topic", "unknown-group", "no-result", "too-busy"],
    responses={
        200: {"description": "How the job has ended.", "model": ResultOut},
        202: {"description": "It has not ended yet.", "model": ResultOut},
    },
)  # fmt: skip
async def get_result(
    request: Request,
    topic: TopicPath,
    id: IdPath,
    group: Annotated[
        str | None, Query(description="Whose result, if several groups of the topic keep theirs.", max_length=64)
    ] = None,
    key: KeyIn = None,
    wait_s: Annotated[
        float, Query(description="How long to wait for the job to end.", ge=0, le=MAX_WAIT_S, examples=[30])
    ] = 0,
) -> Response:
    """Get the result of a job, and wait for it if necessary.

    The topic has to keep results: its handler asks for that, or the topic's setting `result`. The answer comes as soon
    as the job has ended for the group, however it ended. 404 `no-result`: there is neither the job nor a result of it.
    """
    backend, who = backend_of(request), who_asks(request)
    if group is not None:
        check_group_scope(who, group)
    settings = await backend.do((await backend.store()).topics.get(topic))
    asked = wanted(topic, id, key, _group_for(who, settings, group))
    try:
        found, kept = await _kept(request, backend, asked, wait_s)
    except ResultTimeout:
        return Response(_json(asked, asked.group or next(iter(settings.results), ""), None), 202, media_type=JSON)
    answer = await backend.do(result_bytes(await backend.store(), asked, found, kept))
    return Response(answer, media_type=JSON)


def _group_for(who: Identity, settings: TopicSettings, group: str | None) -> str | None:
    """The group that is meant, of those that the token allows; None: the only one of the topic that keeps results."""
    if group is not None or who.groups.is_all or not settings.results:
        return group
    seen = who.groups.of(settings.results)
    if not seen:
        raise ProblemError("forbidden", f"this token is for other groups: {who.groups}")
    if len(seen) > 1:
        raise InvalidInput(f"group: several keep results; name one: {', '.join(sorted(seen))}")
    return next(iter(seen))


async def _kept(request: Request, backend: Backend, asked: Wanted, wait_s: float) -> tuple[str, StoredResult]:
    """Ends early if the caller leaves or the server stops."""
    queue = await backend.queue()
    if wait_s == 0:
        return await kept_by(queue, asked, 0)
    if backend.waits >= backend.http.max_takes:
        raise ProblemError("too-busy", f"{backend.waits} requests wait for a result already")
    waiting = asyncio.create_task(kept_by(queue, asked, wait_s))
    ends = [asyncio.create_task(left(request)), asyncio.create_task(backend.stopping.wait())]
    backend.waits += 1
    try:
        await asyncio.wait([waiting, *ends], return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        if ends[0].done():
            raise ClientDisconnect
        raise ResultTimeout("the server stops")
    finally:
        backend.waits -= 1
        await cancel_and_wait([waiting, *ends])


def result_bytes(store: RedisStore, asked: Wanted, group: str, kept: StoredResult) -> Op[bytes]:
    """How the job has ended, as JSON; that of its result is copied."""
    if kept.outcome is not EndState.DONE:
        return _json(asked, group, kept)
    try:
        encoded = yield from json_of(store.session.bodies, asked, group, kept)
    except BodyUnreadable as error:
        return _json(asked, group, kept, result_unreadable=error.why)
    return _json(asked, group, kept)[:-1] + b',"result":' + encoded + b"}"


def _json(asked: Wanted, group: str, kept: StoredResult | None, **more: str) -> bytes:
    reason, error = None, None
    if kept is not None and kept.outcome is not EndState.DONE:
        text = kept.payload.decode(errors="replace")
        if kept.outcome is EndState.DEAD:
            reason, _, error = text.partition("|")
        else:
            error = text or None
    fields = {
        "topic": asked.topic, "id": asked.id, "group": group, "outcome": "waiting" if kept is None else kept.outcome,
        "ended_ms": (kept.ended_ms or None) if kept else None, "reason": reason, "error": error, **more,
    }  # fmt: skip
    return to_json(fields)
