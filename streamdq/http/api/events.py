"""A topic's events as they take place, as server-sent events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ...errors import InvalidInput, StreamdqError
from ...operations.history.events import following
from ...times.durations import to_ms
from .. import redact
from ..auth import Role
from ..backend import Backend
from ..followed import LOOK_S
from ..problems import ProblemError
from .route import Route, TopicPath, backend_of, may_still, operation, who_asks

router = APIRouter(route_class=Route)
MAX_FOLLOW_S = 300
_STREAM = "text/event-stream"
_POSITION_CHARS = 8_192  # a header has at most twice as many
_EVENT = {
    "type": "object",
    "description": "One event. `data`: the row, as in the answer of `GET …/history`, with the job's `id`, as JSON.",
    "properties": {field: {"type": "string"} for field in ("id", "event", "data")},
}


class EventStream(StreamingResponse):
    """Its caller counts among those that wait, until it ends."""

    media_type = _STREAM

    def __init__(self, stream: AsyncIterator[bytes], backend: Backend) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}  # nginx keeps answers back otherwise
        super().__init__(stream, headers=headers)
        self._backend = backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._backend.waits -= 1


@operation(
    router, "GET", "/v1/topics/{topic:segment}/events", roles=(Role.PRODUCER, Role.WORKER, Role.VIEWER), tag="Topics",
    problems=["unknown-topic", "too-busy"], response_class=EventStream,
    responses={
        200: {
            "description": "Server-sent events, as they take place.",
            "content": {_STREAM: {"schema": _EVENT}},
        }
    },
)  # fmt: skip
async def follow_topic(
    request: Request,
    topic: TopicPath,
    since: Annotated[
        str | None,
        Query(
            description="From when on: a moment, how long ago, or an event's `id`. Left out: from now on.",
            examples=["-10m"],
            max_length=_POSITION_CHARS,
        ),
    ] = None,
    timeout: Annotated[
        str, Query(description=f"How long to follow, at most {MAX_FOLLOW_S}s.", examples=["60s"], max_length=20)
    ] = f"{MAX_FOLLOW_S}s",
    last_event_id: Annotated[
        str | None, Header(description="As browsers send it to go on; overrules `since`.", max_length=_POSITION_CHARS)
    ] = None,
) -> Response:
    """Follow the events of a topic.

    The rows of the history, as they are written: each attempt that ends, and each cancel, expiry, kick and burial. An
    event has the name of the row's event, the row as JSON, and an `id`, with which a later request goes on. An `id`
    without an event only says how far the answer is. The answer ends after `timeout`; browsers' `EventSource` then goes
    on by itself.
    """
    backend = backend_of(request)
    longest_ms = to_ms(timeout, "timeout")
    if longest_ms > MAX_FOLLOW_S * 1000:
        raise InvalidInput(f"timeout: at most {MAX_FOLLOW_S}s; repeat the request to go on")
    found = following(await backend.store(), topic, last_event_id or since)
    if backend.waits >= backend.http.max_takes:
        raise ProblemError("too-busy", f"{backend.waits} requests wait already")
    backend.waits += 1
    try:
        await backend.do(found.begin())
    except BaseException:
        backend.waits -= 1
        raise
    # HEAD has the answer's headers alone, and is not answered when the stream ends.
    stream = _nothing() if request.scope["is_head"] else _stream(request, topic, found.position, longest_ms / 1000)
    return EventStream(stream, backend)


async def _nothing() -> AsyncIterator[bytes]:
    for each in [b""][:0]:
        yield each


async def _stream(request: Request, topic: str, position: str, longest_s: float) -> AsyncIterator[bytes]:
    backend, begun, who = backend_of(request), time.monotonic(), who_asks(request)
    ends, latest, left_s = begun + longest_s, begun + MAX_FOLLOW_S, longest_s
    try:
        events = deque(await backend.followed.read(topic, position, 0))
        while True:
            if not events:
                yield _at(position)  # a caller that has left is noticed
            else:
                position, row, text = events.popleft()
                if redact.rows(who, [row]):
                    yield _at(position, b"event: %b\ndata: %b\n" % (row.event.encode(), text))
            if not events:
                left_s = max(0.0, ends - time.monotonic())
                look = backend.followed.after if left_s > 0 else backend.followed.read
                events.extend(await look(topic, position, min(left_s, LOOK_S)))
            if not (events or left_s > 0) or not _goes_on(request, latest):
                return
    except StreamdqError:
        return  # the caller asks again, and gets the error


def _goes_on(request: Request, latest: float) -> bool:
    """Events may come faster than they are sent, or may be none that this caller sees."""
    return time.monotonic() < latest and not backend_of(request).stopping.is_set() and may_still(request)


def _at(position: str, event: bytes = b"") -> bytes:
    """An event with the position after it. One without data only sets the position."""
    return b"id: %b\n%b\n" % (position.encode(), event)
