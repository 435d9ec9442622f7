"""The ASGI app: the API and its description, for a server of its own or mounted in another app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..config import HttpSettings, Settings
from ..errors import InvalidInput
from ..queue import AsyncQueue
from ..version import __version__
from . import problems
from .api import claims, erase, events, find, flows, health, jobs, results, schedules, topics
from .audit_log import AuditLog
from .auth import Tokens
from .backend import Backend
from .pages import actions, pages
from .pages import failed as failed_pages
from .pages import find as find_pages
from .pages import flows as flow_pages
from .pages import schedules as schedule_pages
from .pages import topic_settings as settings_pages
from .pages import workers as worker_pages
from .pages.page_routes import on_missing
from .pages.signed_in import UserOf

_ABOUT = """Jobs that wait until they are due, for any language.

Producers enqueue jobs. Workers take them, or a callback worker POSTs them to a URL. Operators look after dead letters.
Times are Unix milliseconds by Redis's clock. In a path, topics and ids are percent-encoded, a slash as `%2F`.

If tokens are configured, send `Authorization: Bearer TOKEN`; `x-roles` lists the roles that an operation needs. Errors
are problem details (RFC 9457). After a 503, wait for the seconds in `Retry-After` and try again."""

_SERVERS = [{"url": ".", "description": "Where this description is: paths continue its own, also behind a prefix."}]
_TAGS = {
    "Jobs": "Enqueue jobs, look at them, cancel and reschedule them.",
    "Find": "Search the jobs of a topic, and act on what was found.",
    "Claims": "Take jobs to run them, and tell how that ended.",
    "Schedules": "Jobs that come again and again.",
    "Flows": "Jobs that start together, or not at all: how they stand, and cancel them.",
    "Erasure": "Erase what is kept of a person or customer.",
    "Topics": "The settings of topics; pause, resume and delete them.",
    "Figures": "How many jobs wait, run and fail, how many workers they need, and the audit.",
    "Dead letters": "Jobs that were given up: look at them, send them back, delete them.",
    "Health": "Whether the server works, and its metrics.",
}


def create_app(
    url: str | None = None,
    namespace: str | None = None,
    *,
    queue: AsyncQueue | None = None,
    settings: Settings | None = None,
    http: HttpSettings | None = None,
    tokens: Tokens | None = None,
    authentication: Literal["tokens", "mine"] = "tokens",
    allowed_hosts: Collection[str] | None = None,
    audit_log: Path | None = None,
    user_of: UserOf | None = None,
) -> FastAPI:
    """The API of one namespace as an ASGI app.

    ``url``, ``namespace`` and ``settings`` are those of AsyncQueue; or pass a ``queue``, which stays yours to close.
    ``tokens`` None: those of ``$STREAMDQ_HTTP_TOKENS``. Without tokens, anyone who can reach the app may do everything,
    so it needs ``authentication="mine"``: your own code lets nobody else reach it. ``allowed_hosts`` then keeps out web
    pages whose host name points here. ``audit_log``: a file that gets a line for each request that may change
    something; else the logger ``streamdq.audit`` alone.

    ``user_of``: a function that tells who uses the page, plain or async. It gets the request and returns a
    SignedInUser, or None for a user without a session, who may sign in with a token. The API takes tokens alone.

    Mounted in another app it needs nothing more: ``app.mount("/queue", create_app())``. Frameworks don't pass a
    lifespan on to what is mounted, so enter ``app.router.lifespan_context(app)`` in your own to close its connections.
    Nor do they apply their dependencies to it: authenticate in a middleware, or around the app that you mount.

    Raises:
        InvalidInput: there are neither tokens nor ``user_of``, and ``authentication`` is not "mine"; or another
            argument can't be used.
    """
    http = http or HttpSettings()
    if tokens is None:
        tokens = Tokens.parse(http.tokens, "STREAMDQ_HTTP_TOKENS")
    if user_of is not None and not tokens.required:
        tokens = Tokens(required=True)
    _check_authentication(authentication, tokens)
    names = None if allowed_hosts is None else frozenset(allowed_hosts)
    served = _namespace_of(queue, namespace, settings)
    backend = Backend(url, served, settings, http, tokens, names, queue, user_of, audit=AuditLog(audit_log))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with backend.running():
            yield

    pieces = (
        jobs, results, events, find, claims, schedules, flows, topics, erase, health, pages, find_pages, schedule_pages,
        worker_pages, failed_pages, settings_pages, flow_pages, actions,
    )  # fmt: skip
    parts = [piece.router for piece in pieces]
    routes = [route for part in parts for route in part.routes]
    # The routes as they are: include_router would make each of them anew for every app, before its first answers.
    app = FastAPI(
        routes=[*routes], title="streamdq", version=__version__, description=_ABOUT, lifespan=lifespan,
        redirect_slashes=False, docs_url=None, redoc_url=None, openapi_url="/openapi.json",
    )  # fmt: skip
    app.state.streamdq = backend
    problems.install(app)
    app.add_exception_handler(404, on_missing)
    app.state.routes = routes
    app.mount("/static", _Static(packages=[("streamdq.http", "static")]))
    app.openapi = lambda: _describe(app)  # type: ignore[method-assign]
    app.add_middleware(_Outermost)
    return app


def _check_authentication(authentication: str, tokens: Tokens) -> None:
    if authentication not in ("tokens", "mine"):
        raise InvalidInput(f"authentication: {authentication!r} is neither 'tokens' nor 'mine'")
    if authentication == "tokens" and not tokens.required:
        raise InvalidInput(
            "create_app: without tokens anyone who can reach the app may do everything: set STREAMDQ_HTTP_TOKENS or "
            "pass tokens=…; if your own code authenticates everyone who reaches the app, pass authentication='mine'"
        )


def _namespace_of(queue: AsyncQueue | None, namespace: str | None, settings: Settings | None) -> str:
    if queue is not None:
        return queue.namespace
    return (settings or Settings()).namespace if namespace is None else namespace


def _describe(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        found = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes,
            openapi_version="3.1.0", servers=_SERVERS,
            tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
        )  # fmt: skip
        components = found.setdefault("components", {})
        schema = problems.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        components["schemas"] |= schema.pop("$defs") | {"Problem": schema}
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer", "description": "A token, where any are configured."}
        }
        app.openapi_schema = found
    return app.openapi_schema


class _Static(StaticFiles):
    """The pages' static files. Browsers ask again, and get a file only if it has changed."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response


class _Outermost:
    """Leaves paths undecoded for the routes, which decode each segment by itself; forbids caches to keep answers;
    answers HEAD like GET, without the body; refuses a body with two lengths, as a proxy might believe the other one
    (RFC 9112, section 6.1); and answers requests that a server cuts off as it ends.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        is_head = scope["method"] == "HEAD"

        async def careful(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((name, value) for name, value in _HEADERS if name not in names),
                ]
            elif is_head and "body" in message:
                message["body"] = b""
            await send(message)

        if {name for name, _ in scope["headers"]} >= {b"content-length", b"transfer-encoding"}:
            refused = problems.problem("malformed", "a body has a length or comes in chunks", {"Connection": "close"})
            await refused(scope, receive, careful)
            return
        own = {"method": "GET" if is_head else scope["method"], "is_head": is_head}
        await _with_last_answer(self._app, {**scope, **own, **_encoded_paths(scope)}, receive, careful)


async def _with_last_answer(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Calls the app, and answers if the server, as it ends, no longer waits for it: a body may never arrive."""
    begun = False

    async def noting(message: Message) -> None:
        nonlocal begun
        begun = True
        await send(message)

    try:
        await app(scope, receive, noting)
    except asyncio.CancelledError:
        if begun or not scope["app"].state.streamdq.stopping.is_set():
            raise
        detail = "it ended first; a change may have been made, so repeat the request with the same id"
        answer = problems.problem("stopping", detail, {"Connection": "close"})
        await send({"type": "http.response.start", "status": answer.status_code, "headers": answer.raw_headers})
        await send({"type": "http.response.body", "body": answer.body})


_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


_SAFE = "/:@!$&'()*+,;=~-._"


def _encoded_paths(scope: Scope) -> dict[str, str]:
    """The path, and the part of it below which this app is mounted, both encoded: one begins with the other."""
    path, root = _encoded_path(scope), scope.get("root_path", "")
    encoded_root = quote(root, safe=_SAFE)
    segments, above = path.split("/"), root.count("/") + 1
    if unquote("/".join(segments[:above])) == root:  # otherwise the server left it out of the path
        path = "/".join([encoded_root, *segments[above:]])
    return {"path": path, "root_path": encoded_root}


def _encoded_path(scope: Scope) -> str:
    """The path as it was sent; if the server did not pass that on, the decoded path, encoded again."""
    path: str = scope["path"]
    raw = scope.get("raw_path")
    if raw:
        sent = raw.decode("ascii", "replace").partition("?")[0]
        if unquote(sent) == path:
            return str(sent)
    return quote(path, safe=_SAFE)
