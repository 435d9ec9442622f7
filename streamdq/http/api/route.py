"""What all operations of the API share: authorization, the type and size of the body, and logging."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote, unquote, urlsplit

from fastapi import APIRouter, Path, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Message, Receive

from ..audit_log import fields_of
from ..auth import ANYONE, MAX_TOKEN_CHARS, Identity, Role
from ..backend import Backend
from ..problems import KINDS, ProblemError, documented, kind_of
from ..refusals import peer_of
from ..request_body import JsonRequest
from .models.common import NAME, TOPIC_NAME

JSON, NDJSON = "application/json", "application/x-ndjson"
_SAFE = ("GET", "HEAD")
NOBODY_IN_PARTICULAR = Identity("anyone", ANYONE)
_STRANGER = Identity("", frozenset())


class _Segment(Convertor[str]):
    """One segment of a path, decoded only here: a topic or an id may contain a slash, sent as %2F."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value, errors="surrogateescape")  # names that are not UTF-8 are refused later, not misread

    def to_string(self, value: str) -> str:
        raise NotImplementedError


register_url_convertor("segment", _Segment())
TopicPath = Annotated[
    str,
    Path(
        description="The topic, percent-encoded.", max_length=255, examples=["order.close"],
        json_schema_extra=TOPIC_NAME,
    ),
]  # fmt: skip
IdPath = Annotated[
    str,
    Path(
        description="The job's id, percent-encoded.", max_length=255, examples=["order-42"], json_schema_extra=NAME
    ),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Needs:
    """``roles`` None: open to everyone. ``takes``: the body's content type. ``notable``: logged at info.

    The role is checked before the call, and whether the token allows the topic, in the path or the query, and the group
    in the query. An operation without a topic needs a token for all topics, unless it ``sifts``: then it filters its
    answer by the token itself. ``every_group``: it affects all groups of the topic, and needs a token for all groups.
    """

    roles: frozenset[Role] | None
    takes: str | None = None
    notable: bool = False
    sifts: bool = False
    every_group: bool = False


def backend_of(request: Request) -> Backend:
    backend: Backend = request.app.state.streamdq
    return backend


def who_asks(request: Request) -> Identity:
    """Who makes this request; known after the checks."""
    identity: Identity = request.state.who
    return identity


def _tell(request: Request, needs: Needs, **how: Any) -> None:
    """Logs who did what, and the outcome; reads are not logged. Strangers who are refused can't fill the audit log:
    they only appear in the server's own log.
    """
    who = getattr(request.state, "who", None)  # signing in tells who it is
    is_logged = getattr(request.state, "is_logged", True) or who not in (None, NOBODY_IN_PARTICULAR)
    if request.method not in _SAFE and is_logged:
        backend_of(request).audit.tell(needs.notable, fields_of(request, who or _STRANGER, **how))


class Route(APIRoute):
    """An operation declared with ``operation``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner, needs = super().get_route_handler(), _NEEDS[self.endpoint]

        async def handle(request: Request) -> Response:
            try:
                await self.let_in(request, needs)
                response = await inner(JsonRequest(request.scope, limited(request, needs)))
            except ProblemError as error:
                found = self.refused(request, error)
                _tell(request, needs, failed=found.kind)
                raise found from None
            except Exception as error:
                _tell(request, needs, failed=kind_of(error))
                raise
            _tell(request, needs, status=response.status_code)
            return response

        return handle

    def refused(self, request: Request, error: ProblemError) -> ProblemError:
        """The error for the caller; the refusal is counted and logged."""
        return refused(request, error)

    async def let_in(self, request: Request, needs: Needs) -> None:
        """Checks who asks, and whether they may.

        Raises:
            ProblemError: they may not, or not in this way.
        """
        backend = backend_of(request)
        if needs.roles is not None or request.method not in _SAFE:  # health checks are free
            backend.rates.asked(peer_of(request))
        check_origin(request, backend)
        request.state.who = who = NOBODY_IN_PARTICULAR
        if needs.roles is not None and backend.tokens.required:
            request.state.who = None
            request.state.who = who = await self.identify(request, backend)
            backend.rates.came(who.name)
            if not who.may(needs.roles):
                wanted = " or ".join(sorted({*needs.roles, Role.ADMIN}))
                raise ProblemError("forbidden", f"this takes the role {wanted}")
            _check_scope(request, needs, who, {field.alias for field in self.dependant.query_params})
        check_content_type(request, needs)

    async def identify(self, request: Request, backend: Backend) -> Identity:
        return _bearer(request, backend)


_NEEDS: dict[Callable[..., Any], Needs] = {}


def declare(endpoint: Callable[..., Any], needs: Needs) -> None:
    """Declares the needs of an endpoint that is routed in another way than by ``operation``."""
    _NEEDS[endpoint] = needs


def needs_of(route: APIRoute) -> Needs:
    return _NEEDS[route.endpoint]


def refused(request: Request, error: ProblemError) -> ProblemError:
    """Counts and logs a refusal. Callers without a valid token that exceed their rate get that answer instead."""
    if error.kind == "unauthenticated":
        try:
            count_failure(request)
        except ProblemError as limited:
            error = limited
    request.state.is_logged = backend_of(request).refusals.tell(request, error)
    return error


def count_failure(request: Request) -> None:
    """Counts a request without a valid token.

    Raises:
        ProblemError: too many from this address.
    """
    backend_of(request).rates.failed(peer_of(request))


def _check_scope(request: Request, needs: Needs, who: Identity, queries: Collection[str]) -> None:
    """``queries``: the query parameters that the operation uses; others do not narrow its scope."""
    _check_topic_scope(request, needs, who, in_query="topic" in queries)
    for group in request.query_params.getlist("group"):
        check_group_scope(who, group)
    if needs.every_group and not who.groups.is_all:
        raise ProblemError("forbidden", "this concerns every group, and takes a token for all of them")


def _check_topic_scope(request: Request, needs: Needs, who: Identity, *, in_query: bool) -> None:
    named = request.query_params.getlist("topic") if in_query else []
    if "topic" in request.path_params:
        named = [*named, request.path_params["topic"]]
    check_topics_scope(who, named)
    if not (named or needs.sifts or who.topics.is_all):
        hint = ", or one topic's name" if in_query else ""
        raise ProblemError("forbidden", f"this takes a token for all topics{hint}")


def check_topics_scope(who: Identity, topics: Iterable[str]) -> None:
    """
    Raises:
        ProblemError: the token is for other topics.
    """
    if not all(map(who.topics.holds, topics)):
        raise ProblemError("forbidden", f"this token is for other topics: {who.topics}")


def check_group_scope(who: Identity, group: str) -> None:
    """
    Raises:
        ProblemError: the token is for other groups.
    """
    if not who.groups.holds(group):
        raise ProblemError("forbidden", f"this token is for other groups: {who.groups}")


def check_every_group(who: Identity) -> None:
    """
    Raises:
        ProblemError: the token is for some groups, and this would concern them all.
    """
    if not who.groups.is_all:
        raise ProblemError("forbidden", f"this token is for the groups {who.groups}: name one of them, ?group=")


def check_content_type(request: Request, needs: Needs) -> None:
    if needs.takes is not None:
        given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given != needs.takes:
            raise ProblemError("unsupported-media-type", f"send the body as {needs.takes}")


def may_still(request: Request) -> bool:
    """Whether the request's token is still valid; the request may have waited for long."""
    backend = backend_of(request)
    try:
        return not backend.tokens.required or _bearer(request, backend) == who_asks(request)
    except ProblemError:
        return False


def _bearer(request: Request, backend: Backend) -> Identity:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise ProblemError("unauthenticated", "send the header: Authorization: Bearer TOKEN")
    token = token.strip()[: MAX_TOKEN_CHARS + 1]  # one more than any token has
    who = backend.tokens.identify(token)
    if who is None:
        raise ProblemError(
            "unauthenticated", backend.tokens.why_not(token), {"WWW-Authenticate": 'Bearer error="invalid_token"'}
        )
    return who


def check_origin(request: Request, backend: Backend) -> None:
    """Refuses requests that a page of another site makes through its reader's browser, which may reach servers that the
    site can't: by a form, or under a host name that resolves to this server.
    """
    host = request.headers.get("host", "")
    if backend.hosts is not None and _split(f"//{host}")[0] not in backend.hosts:
        raise ProblemError("forbidden", "without tokens, this server answers to the name localhost alone")
    if request.method in _SAFE:
        return
    origin = request.headers.get("origin")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") or (
        origin is not None and _split(origin)[1] != host
    ):
        raise ProblemError("forbidden", "requests from pages of other sites are refused")


def _split(url: str) -> tuple[str, str]:
    """(host name, host name and port); both are empty if it is not a URL."""
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.netloc
    except ValueError:
        return "", ""


def limited(request: Request, needs: Needs) -> Receive:
    """Receives the body, with limits on its size and time."""
    settings = backend_of(request).http
    limit = settings.max_bulk_bytes if needs.takes == NDJSON else settings.max_request_bytes
    close = {"Connection": "close"}
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or len(declared) > len(str(limit)) or int(declared) > limit:
        raise ProblemError("too-large", f"at most {limit} bytes are taken", close)
    seen, ended = 0, False
    loop = asyncio.get_running_loop()
    # A body of lines may take long in total, as long as it keeps coming.
    deadline = None if needs.takes == NDJSON else loop.time() + settings.body_timeout_s

    async def receive() -> Message:
        nonlocal seen, ended
        if ended:  # the next message says that the caller has left; it may be awaited without a limit
            return await request.receive()
        try:
            async with asyncio.timeout_at(deadline or loop.time() + settings.body_timeout_s):
                message = await request.receive()
        except TimeoutError:
            raise ProblemError("timeout", "the body did not arrive in time", close) from None
        seen += len(message.get("body", b""))
        ended = not message.get("more_body", False)
        if seen > limit:
            raise ProblemError("too-large", f"at most {limit} bytes are taken", close)
        return message

    return receive


def created(description: str, model: type[BaseModel]) -> dict[str, Any]:
    """The documentation of a 201."""
    where = {"description": "The path at which it can be got.", "schema": {"type": "string", "format": "uri-reference"}}
    return {"description": description, "model": model, "headers": {"Location": where}}


def location_of(request: Request, topic: str, id: str, kind: str = "jobs") -> dict[str, str]:
    """The header of a 201: where the job or schedule is found, also in an app that is mounted below a path."""
    return {"Location": f"{request.scope['root_path']}/v1/topics/{quote(topic, safe='')}/{kind}/{quote(id, safe='')}"}


def operation(
    router: APIRouter,
    method: str,
    path: str,
    *,
    roles: Sequence[Role] | None,
    takes: str | None = None,
    problems: Sequence[str] = (),
    notable: bool = False,
    sifts: bool = False,
    every_group: bool = False,
    status: int = 200,
    responses: Mapping[int, Mapping[str, Any]] | None = None,
    tag: str,
    **more: Any,
) -> Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Any]]]:
    """Declares an operation: its route, and its documentation. The docstring's first line is its summary.

    ``problems``: kinds that it may answer with, in addition to those of every such operation.
    """

    def declared(endpoint: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        declare(endpoint, Needs(None if roles is None else frozenset(roles), takes, notable, sifts, every_group))
        summary, _, description = (endpoint.__doc__ or "").partition("\n")
        documented_problems = _problems(problems, roles, takes, "{" in path, method)
        router.add_api_route(
            path,
            endpoint,
            methods=[method],
            status_code=status,
            summary=summary.strip().rstrip("."),
            description=" ".join(description.split()) or summary.strip(),
            operation_id=endpoint.__name__,
            tags=[tag],
            response_model=None,
            responses={**documented_problems, **{code: dict(how) for code, how in (responses or {}).items()}},
            openapi_extra=_extra(roles, more.pop("extra", None)),
            **more,
        )
        return endpoint

    return declared


def _extra(roles: Sequence[Role] | None, extra: Mapping[str, Any] | None) -> dict[str, Any]:
    found = dict(extra or {})
    if roles is not None:
        found["security"] = [{"bearer": []}]
        found["x-roles"] = sorted({*roles, Role.ADMIN})
    return found


def _problems(
    own: Sequence[str], roles: Sequence[Role] | None, takes: str | None, named: bool, method: str
) -> dict[int | str, dict[str, Any]]:
    kinds = ["internal-error", "invalid-input", "stopping", *own]
    if roles is not None:
        kinds += ["unauthenticated", "forbidden", "rate-limited", "redis-unavailable", "redis-refuses", "newer-format"]
    elif method not in _SAFE:
        kinds += ["forbidden"]
    kinds += ["not-found"] if named else []
    kinds += ["malformed", "timeout", "too-large", "unsupported-media-type"] if takes else []
    by_status: dict[int, list[str]] = {}
    for kind in dict.fromkeys(kinds):
        by_status.setdefault(KINDS[kind][0], []).append(kind)
    return {status: documented(*names) for status, names in sorted(by_status.items())}
