"""Logs refused requests, at most about one line per second."""

from __future__ import annotations

import ipaddress
import time

from fastapi import Request

from ..process.logs import log
from .problems import ProblemError

_KINDS = frozenset({"unauthenticated", "forbidden", "rate-limited"})
_PER_S, _BURST = 1.0, 60.0
_SHOWN_PATH_CHARS = 200


def peer_of(request: Request) -> str:
    """The address that a request came from; '' if the server does not know it."""
    return unmapped(request.client.host) if request.client is not None else ""


def unmapped(address: str) -> str:
    """The address without its IPv6 mapping: a socket for both families reports IPv4 callers as ::ffff:192.0.2.7."""
    try:
        inner = ipaddress.IPv6Address(address.partition("%")[0]).ipv4_mapped
    except ValueError:
        return address
    return address if inner is None else str(inner)


class Refusals:
    """The refusals of one server. Lines beyond the limit are counted; the next line says how many there were."""

    def __init__(self) -> None:
        self._room = _BURST
        self._since = time.monotonic()
        self._skipped = 0

    def tell(self, request: Request, error: ProblemError) -> bool:
        """Logs the refusal if it concerns who asks; returns False if there are too many lines."""
        if error.kind not in _KINDS:
            return True
        who = getattr(request.state, "who", None)
        more = {"who": who.name} if who is not None else {}
        return self._line(
            why=error.kind, detail=str(error.detail), peer=peer_of(request), method=request.method,
            path=request.url.path[:_SHOWN_PATH_CHARS], **more,
        )  # fmt: skip

    def unreadable(self, peer: str, detail: str) -> None:
        """Logs that somebody sent something that is not a request."""
        self._line(why="malformed", detail=detail, peer=peer)

    def _line(self, **fields: str) -> bool:
        now = time.monotonic()
        self._room = min(_BURST, self._room + (now - self._since) * _PER_S)
        self._since = now
        if self._room < 1:
            self._skipped += 1
            return False
        self._room -= 1
        more = {"skipped": self._skipped} if self._skipped else {}
        self._skipped = 0
        log.warning("refused", **fields, **more)
        return True
