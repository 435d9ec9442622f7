"""Answers requests of Django with the pages of ``streamdq serve``."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from ...forks import ModuleLock
from ...http.app import create_app
from ...http.auth import Role, Tokens
from ...http.in_process import Answer
from ...http.in_process import answer as answer_of
from ...http.pages.signed_in import KEY, SignedInUser

_NOT_PASSED_ON = {"authorization", "connection", "content-length", "cookie", "host", "transfer-encoding"}
_NOT_PASSED_BACK = {"connection", "content-length", "set-cookie"}
_ROLES = {"streamdq.view_queue": Role.VIEWER, "streamdq.produce": Role.PRODUCER, "streamdq.administer": Role.ADMIN}


class Pages:
    """The pages of one namespace. They are asynchronous, and have a thread with an event loop of their own."""

    def __init__(self, url: str | None, namespace: str | None) -> None:
        # No token is known: everybody is who Django says.
        self._app = create_app(url, namespace, tokens=Tokens(required=True))
        self._loop = asyncio.new_event_loop()
        # It ends with the process, as what serves Django does not say when that is.
        threading.Thread(target=self._loop.run_forever, name="streamdq-pages", daemon=True).start()

    def ask(self, scope: dict[str, Any], body: bytes) -> Answer:
        return asyncio.run_coroutine_threadsafe(answer_of(self._app, scope, body), self._loop).result()


_pages: dict[tuple[int, str | None, str | None], Pages] = {}
_making = ModuleLock()


def pages() -> Pages:
    """Those of this process, on the Redis of Django's settings."""
    where = (os.getpid(), getattr(settings, "STREAMDQ_URL", None), getattr(settings, "STREAMDQ_NAMESPACE", None))
    with _making:
        if where not in _pages:
            _pages[where] = Pages(*where[1:])
        return _pages[where]


def answer(request: HttpRequest, base: str, home: str) -> HttpResponse:
    """The page's answer to its user. ``base``: the path below which the pages are; ``home``: that of the admin."""
    user = request.user
    roles = frozenset(role for permission, role in _ROLES.items() if user.has_perm(permission))
    signed_in = SignedInUser(user.get_username(), roles, home, "Admin")
    status, headers, body = pages().ask({**_scope(request, base), KEY: signed_in}, request.body)
    response = HttpResponse(body, status=status)
    for name, value in headers:
        if name not in _NOT_PASSED_BACK:
            response[name] = value
    return response


def _scope(request: HttpRequest, base: str) -> dict[str, Any]:
    passed = {name.lower(): value for name, value in request.headers.items()}
    # Django's settings say which headers of a proxy name the host that the browser asked.
    headers = {name: value for name, value in passed.items() if name not in _NOT_PASSED_ON} | {
        "host": request.get_host(),
        "content-length": str(len(request.body)),
    }
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": request.method,
        "scheme": request.scheme, "path": request.path, "raw_path": _raw_path(request), "root_path": base,
        "query_string": request.META.get("QUERY_STRING", "").encode("latin-1"),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        "client": (request.META.get("REMOTE_ADDR") or "", 0), "server": (request.get_host(), None),
    }  # fmt: skip


def _raw_path(request: HttpRequest) -> bytes:
    """The path as it was sent, where the server tells; only such a server tells a slash within an id from others."""
    target = request.META.get("RAW_URI") or request.META.get("REQUEST_URI") or ""  # gunicorn; uWSGI and mod_wsgi
    sent: bytes = getattr(request, "scope", {}).get("raw_path") or target.encode("latin-1", "replace")
    return sent
