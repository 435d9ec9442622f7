"""Errors as problem details (RFC 9457), for the whole server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from ..errors import (
    AuthenticationFailed,
    BodyStorageUnavailable,
    DurabilityUnsupported,
    EmbeddedError,
    InvalidInput,
    JobAborted,
    JobExists,
    NewerFormat,
    NotDurable,
    ParentUnknown,
    ResultGone,
    ScheduleMissing,
    ServerError,
    ServerRefusesWrites,
    StaleClaim,
    StreamdqError,
    TooManyTopics,
    TopicNotEmpty,
    UnknownGroup,
    UnknownTopic,
)
from ..process.logs import log
from .request_body import LingeringResponse

MEDIA = "application/problem+json"
RETRY_AFTER_S = 2
_TYPE = "urn:streamdq:problem:"
_SHOWN_ERRORS = 10
_ERRORS_IN_DETAIL = 3
_MAX_DETAIL_CHARS = 500


class FieldError(BaseModel):
    """One value that can't be accepted."""

    at: str = Field(description="Where it stands, such as `body.delay` or `query.limit`.")
    message: str


class Problem(BaseModel):
    """Problem details (RFC 9457). `type` and `status` are for programs, `detail` is for people."""

    type: str = Field(description="What kind of problem it is; never changes.", examples=[_TYPE + "job-exists"])
    title: str = Field(description="The type in words.")
    status: int = Field(description="The HTTP status.")
    detail: str | None = Field(default=None, description="What happened here, and what to do.")
    errors: list[FieldError] | None = Field(
        default=None, description=f"The first {_SHOWN_ERRORS} values that can't be accepted."
    )
    error_count: int | None = Field(default=None, description="How many errors there are, shown or not.")
    lines_read: int | None = Field(
        default=None, description="How many lines of a bulk request were processed, not counting blank ones."
    )


# kind: (status, title). The kinds are part of the API.
KINDS: Mapping[str, tuple[int, str]] = {
    "malformed": (400, "The request can't be read"),
    "unauthenticated": (401, "A valid token is needed"),
    "forbidden": (403, "Not allowed"),
    "not-found": (404, "There is nothing here"),
    "unknown-topic": (404, "No such topic"),
    "unknown-group": (404, "No such consumer group"),
    "no-job": (404, "No such job"),
    "no-schedule": (404, "No such schedule"),
    "no-flow": (404, "No such flow"),
    "no-result": (404, "Neither the job nor a result of it"),
    "method-not-allowed": (405, "The path does not have this method"),
    "timeout": (408, "The request took too long to arrive"),
    "job-exists": (409, "The id is taken"),
    "parent-unknown": (409, "Nothing is known of a job that it is to wait for"),
    "job-busy": (409, "The job's state does not allow it"),
    "stale-claim": (409, "The claim has ended"),
    "job-aborted": (409, "The job was aborted"),
    "topic-not-empty": (409, "The topic holds jobs, or is served"),
    "too-many-topics": (409, "There are too many topics"),
    "too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "Another content type is needed"),
    "invalid-input": (422, "A value can't be accepted"),
    "rate-limited": (429, "Too many requests"),
    "internal-error": (500, "An error in the server"),
    "durability-unsupported": (501, "Redis can't give this durability"),
    "too-busy": (503, "Too many requests are waiting"),
    "stopping": (503, "The server is shutting down"),
    "redis-unavailable": (503, "Redis does not answer"),
    "redis-refuses": (503, "Redis refuses the request"),
    "not-durable": (503, "Durability was not confirmed in time"),
    "newer-format": (503, "A newer version has written the data"),
    "storage-unavailable": (503, "The storage of large bodies does not answer"),
}
_IN_THE_MIDST = ("too-large", "stopping")
_OF_STATUS = {400: "malformed", 401: "unauthenticated", 403: "forbidden", 404: "not-found", 405: "method-not-allowed",
              408: "timeout", 413: "too-large", 415: "unsupported-media-type", 422: "invalid-input"}  # fmt: skip
_OF_ERROR: tuple[tuple[type[Exception], str], ...] = (
    (ClientDisconnect, "malformed"),
    (JobExists, "job-exists"),
    (ParentUnknown, "parent-unknown"),
    (JobAborted, "job-aborted"),
    (StaleClaim, "stale-claim"),
    (BodyStorageUnavailable, "storage-unavailable"),
    (TopicNotEmpty, "topic-not-empty"),
    (TooManyTopics, "too-many-topics"),
    (UnknownTopic, "unknown-topic"),
    (UnknownGroup, "unknown-group"),
    (ScheduleMissing, "no-schedule"),
    (ResultGone, "no-result"),
    (InvalidInput, "invalid-input"),
    (NewerFormat, "newer-format"),
    (ServerRefusesWrites, "redis-refuses"),
    (AuthenticationFailed, "redis-refuses"),
    (NotDurable, "not-durable"),
    (DurabilityUnsupported, "durability-unsupported"),
    (ServerError, "redis-unavailable"),
    (EmbeddedError, "redis-unavailable"),
)
_REDIS = {
    "redis-refuses": "Redis refuses writes, or this command; the server's log says why",
    "not-durable": "the change was made, but a failover or a crash may undo it; repeat the request with the same id",
    "durability-unsupported": "nothing was written; the server's log says what to change",
    "redis-unavailable": "no answer in time; a change may have been made, so repeat the request with the same id",
}


class ProblemError(HTTPException):
    """Ends a request with a problem."""

    def __init__(self, kind: str, detail: str, headers: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(KINDS[kind][0], detail, headers)
        self.kind = kind
        self.more = more


def problem(kind: str, detail: str | None = None, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """The response, in ASCII: a detail may quote anything, including lone surrogates."""
    status, title = KINDS[kind]
    content: dict[str, Any] = {"type": _TYPE + kind, "title": title, "status": status}
    if detail:
        content["detail"] = detail[:_MAX_DETAIL_CHARS]
    given = dict(headers or {})
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        given.setdefault("Retry-After", str(RETRY_AFTER_S))
    if status == HTTPStatus.UNAUTHORIZED:
        given.setdefault("WWW-Authenticate", 'Bearer realm="streamdq"')
    made = LingeringResponse if kind in _IN_THE_MIDST else Response
    return made(json.dumps(content | more), status, given, media_type=MEDIA)


def kind_of(error: Exception) -> str:
    """The kind of problem for an error."""
    if isinstance(error, ProblemError):
        return error.kind
    if isinstance(error, StarletteHTTPException):
        return _OF_STATUS.get(error.status_code, "malformed")
    if isinstance(error, RequestValidationError):
        return "malformed" if _is_no_json(error) else "invalid-input"
    return next((kind for cls, kind in _OF_ERROR if isinstance(error, cls)), "internal-error")


def _is_no_json(error: RequestValidationError) -> bool:
    return any(one["type"] == "json_invalid" for one in error.errors())


def problem_of(error: StreamdqError, **more: Any) -> Response:
    """The response to one of streamdq's errors. Redis's address and messages are only logged."""
    kind = kind_of(error)
    if kind == "internal-error":
        log.error("internal error", error=f"{type(error).__name__}: {error}")
        return problem(kind)
    if kind in _REDIS:
        log.warning("redis failed a request", error=str(error))
    return problem(kind, _REDIS.get(kind, str(error)), **more)


def place(loc: Iterable[int | str]) -> str:
    """The place of an error, such as ``body.delay``."""
    return ".".join(str(part).removeprefix("constrained-") for part in loc)


def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if _is_no_json(error):
        return problem("malformed", "the body is not JSON")
    found = error.errors()
    errors = [{"at": place(one["loc"])[:200], "message": str(one["msg"])[:200]} for one in found[:_SHOWN_ERRORS]]
    messages = [f"{error['at']}: {error['message']}" for error in errors[:_ERRORS_IN_DETAIL]]
    if len(found) > _ERRORS_IN_DETAIL:
        messages.append(f"and {len(found) - _ERRORS_IN_DETAIL} more")
    return problem("invalid-input", "; ".join(messages), errors=errors, error_count=len(found))


def _allowed(request: Request, named: str) -> str:
    """The methods of all routes of this path: the error only names those of one route."""
    methods = set(filter(None, named.split(", ")))
    for route in request.app.state.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


def on_http(request: Request, error: Exception) -> Response:
    if isinstance(error, ProblemError):
        return problem(error.kind, error.detail, error.headers, **error.more)
    assert isinstance(error, StarletteHTTPException)
    headers, detail = dict(error.headers or {}), str(error.detail)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = _allowed(request, headers.get("Allow", ""))
        detail = f"this path has {headers['Allow']}"
    elif error.status_code == HTTPStatus.NOT_FOUND:
        detail = "no operation or page has this path; /openapi.json lists all operations"
    return problem(kind_of(error), detail, headers)


def _on_streamdq(_: Request, error: Exception) -> Response:
    assert isinstance(error, StreamdqError)
    return problem_of(error)


def _on_left(_: Request, __: Exception) -> Response:
    """The caller hung up before its body had arrived, or its answer was made. Nobody reads this answer; it only keeps
    the log clean.
    """
    return problem("malformed", "the caller has left")


def _on_fault(request: Request, error: Exception) -> Response:
    log.error("internal error", path=request.url.path, error=f"{type(error).__name__}: {error}")
    return problem("internal-error")


def install(app: FastAPI) -> None:
    """Makes the app answer every error with a problem."""
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(StarletteHTTPException, on_http)
    app.add_exception_handler(StreamdqError, _on_streamdq)
    app.add_exception_handler(ClientDisconnect, _on_left)
    app.add_exception_handler(Exception, _on_fault)


def documented(kind: str, *others: str) -> dict[str, Any]:
    """The OpenAPI response for these problems, which all have the same status."""
    examples = {
        name: {"value": {"type": _TYPE + name, "title": KINDS[name][1], "status": KINDS[name][0]}}
        for name in (kind, *others)
    }
    schema = {"$ref": "#/components/schemas/Problem"}
    headers: dict[str, Any] = {}
    if KINDS[kind][0] in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        headers = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
    return {
        "description": "; ".join(KINDS[name][1] for name in (kind, *others)),
        "content": {MEDIA: {"schema": schema, "examples": examples}},
    } | ({"headers": headers} if headers else {})
