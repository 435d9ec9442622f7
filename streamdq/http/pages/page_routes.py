"""What every page and action shares: routes that answer in HTML, and the session of the signed-in user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse

from ...errors import InvalidInput, ServerError, StreamdqError
from ...process.logs import log
from ..api.route import Needs, Route, backend_of, check_origin, count_failure, declare
from ..auth import Identity, Role
from ..backend import Backend
from ..problems import KINDS, RETRY_AFTER_S, ProblemError, kind_of, on_http
from . import sessions
from .render import HEADERS, base_of, page
from .signed_in import look_up, signed_in_user

FORM = "application/x-www-form-urlencoded"
COOKIE = "streamdq_session"
_MAX_FIELDS = 1000
_SAME = ("same-origin",)


class PageRoute(Route):
    """A page, or the target of a form. Users who must sign in are redirected to the sign-in page."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await inner(request)
            except ProblemError as error:
                if error.kind == "unauthenticated":
                    asked = _whole_path(request) if request.method == "GET" else base_of(request) + "/"
                    return _to_sign_in(request, f"{base_of(request)}/login?next={quote(asked, safe='/')}")
                return _problem_page(request, error.kind, str(error.detail), error.headers)
            except RequestValidationError as error:
                return _problem_page(request, "invalid-input", str(error.errors()[0]["msg"]))
            except StreamdqError as error:
                if isinstance(error, ServerError):
                    log.warning("redis failed a request", error=str(error))
                    return _problem_page(request, kind_of(error), "The server's log says more.")
                return _problem_page(request, kind_of(error), str(error))

        return handle

    async def let_in(self, request: Request, needs: Needs) -> None:
        if request.method == "POST" and not _is_own(request):
            raise ProblemError("forbidden", "a form of another site is refused")
        await look_up(request, backend_of(request).user_of)
        await super().let_in(request, needs)

    def refused(self, request: Request, error: ProblemError) -> ProblemError:
        if error.kind == "unauthenticated" and request.method != "POST" and COOKIE not in request.cookies:
            return error  # it redirects to the sign-in page, and has cost nothing
        return super().refused(request, error)

    async def identify(self, request: Request, backend: Backend) -> Identity:
        who = await session_of(request, backend)
        if who is None:
            raise ProblemError("unauthenticated", "sign in")
        return who


def _whole_path(request: Request) -> str:
    """The page that was asked for, with its query."""
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


def _to_sign_in(request: Request, login: str) -> Response:
    """Redirects to the sign-in page: the user, or the script that polled for news when the session had ended."""
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={**HEADERS, "HX-Redirect": login})
    return redirect(login)


def _is_own(request: Request) -> bool:
    """Whether a form comes from a page of this app. Browsers say so; a request that doesn't is refused."""
    return "origin" in request.headers or request.headers.get("sec-fetch-site") in _SAME


def _problem_page(request: Request, kind: str, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    status, title = KINDS[kind]
    # A form is not resent automatically: its action may have been carried out.
    retry = status == HTTPStatus.SERVICE_UNAVAILABLE and request.method == "GET"
    answer = page(request, "problem.html", status, title=title, detail=detail, retry=retry)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        answer.headers["Retry-After"] = str(RETRY_AFTER_S)
    answer.headers.update(headers or {})
    return answer


async def on_missing(request: Request, error: Exception) -> Response:
    """The answer to a path that is none: to a browser a page, unless the path is one of the API."""
    path = request.url.path.removeprefix(base_of(request))
    is_asked_for = "text/html" in request.headers.get("accept", "") and not path.startswith("/v1/")
    if isinstance(error, ProblemError) or not is_asked_for:
        return on_http(request, error)
    try:
        check_origin(request, backend_of(request))
    except ProblemError as refused:
        return on_http(request, refused)
    return _problem_page(request, "not-found", "No page has this address.")


def redirect(to: str) -> RedirectResponse:
    """A redirect with status 303, so that a reload does not send the form again."""
    return RedirectResponse(to, 303, HEADERS)


async def form_of(request: Request) -> dict[str, list[str]]:
    """The fields of a form.

    Raises:
        InvalidInput: the form can't be read.
    """
    try:
        text = (await request.body()).decode()
        return parse_qs(
            text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=_MAX_FIELDS
        )
    except ValueError:
        raise InvalidInput("the form can't be read") from None


def get(
    router: APIRouter, path: str, *, open: bool = False, sifts: bool = False, every_group: bool = False
) -> Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Any]]]:
    """Declares a page: viewers may see it, or with ``open`` everyone."""

    def declared(endpoint: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        roles = None if open else frozenset({Role.VIEWER})
        declare(endpoint, Needs(roles, sifts=sifts, every_group=every_group))
        router.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False, response_model=None)
        return endpoint

    return declared


def post(
    router: APIRouter, path: str, role: Role | None = Role.ADMIN, *, every_group: bool = False, sifts: bool = False
) -> Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Any]]]:
    """Declares the target of a form, and who may send it."""

    def declared(endpoint: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        roles = None if role is None else frozenset({role})
        declare(endpoint, Needs(roles, FORM, notable=True, every_group=every_group, sifts=sifts))
        router.add_api_route(path, endpoint, methods=["POST"], include_in_schema=False, response_model=None)
        return endpoint

    return declared


# -- sessions


async def session_of(request: Request, backend: Backend) -> Identity | None:
    if (user := signed_in_user(request)) is not None:
        return user.identity
    return await sessions.holder(backend, request.cookies.get(COOKIE, ""))


async def sign_in(request: Request, response: Response, token: str) -> None:
    """Sets the cookie for the token's holder; ends this browser's earlier session."""
    backend = backend_of(request)
    await sessions.end(backend, request.cookies.get(COOKIE, ""))
    # A TLS proxy sets this header. A caller who sets it falsely only keeps its own cookie from coming back.
    safe = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))
    response.set_cookie(
        COOKIE, await sessions.begin(backend, token), max_age=sessions.LENGTH_S, path=base_of(request) or "/",
        secure=safe, httponly=True, samesite="strict",
    )  # fmt: skip


async def sign_out(request: Request, response: Response) -> None:
    """Ends the session; its cookie becomes invalid everywhere. A cookie of no session is counted like a wrong token.

    Raises:
        ProblemError: too many such.
    """
    cookie = request.cookies.get(COOKIE, "")
    if cookie and not await sessions.end(backend_of(request), cookie):
        count_failure(request)
    response.delete_cookie(COOKIE, path=base_of(request) or "/")
