"""Limits the server's connections: by the system's limit of open files, and which one is closed when it is full."""

from __future__ import annotations

import contextlib
import resource
from typing import Protocol

from starlette.types import Receive, Scope, Send

from ..config import HttpSettings
from ..errors import InvalidInput
from .problems import problem

_RESERVE = 128  # files for other uses: connections to Redis of requests that don't wait, logs, modules
_FEWEST_FILES = 256
_FRESH_S = 1.0  # how long a connection may be silent even if there is no room
_STANDING = 64  # how many connections beyond those served get the answer that there is no room


def fitted(settings: HttpSettings) -> HttpSettings:
    """The settings, with the numbers of connections and waiting requests reduced to what this process's limit of open
    files allows. First raises that limit as far as needed and possible.

    A request that waits for a job takes two files, its caller's connection and one to Redis. If not all fit, waiting
    requests get two fifths, so that there is always room for others.

    Raises:
        InvalidInput: there is no room for a server.
    """
    wanted = settings.max_connections + settings.max_takes + _RESERVE + _STANDING
    files = _allowed(wanted)
    if files >= wanted:
        return settings
    if files < _FEWEST_FILES:
        raise InvalidInput(
            f"a server needs {_FEWEST_FILES} open files, and this process may have {files}: raise it with ulimit -n"
        )
    room = files - _RESERVE - _STANDING
    takes = min(settings.max_takes, room * 2 // 5)
    connections = min(settings.max_connections, room - takes)
    return settings.model_copy(update={"max_takes": takes, "max_connections": connections})


def _allowed(wanted: int) -> int:
    """How many files this process may open, after its limit was raised to ``wanted`` if possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY < soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    return wanted if soft == resource.RLIM_INFINITY else soft


class Connection(Protocol):
    """The part of a transport that the limiter needs."""

    def get_write_buffer_size(self) -> int: ...

    def abort(self) -> None: ...


class ConnectionLimiter:
    """The connections of one server, at most ``most``. If there is no room, a new one replaces the one that has been
    silent for longest; if none is silent, the new one gets 503 and is closed. When little room is left,
    each connection is closed after its answer.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[Connection] = set()
        self._silent: dict[Connection, float] = {}  # connections without a request, the longest silent first

    @property
    def near_limit(self) -> bool:
        """Whether so little room is left that connections should be closed after their answer."""
        return len(self._open) * 4 > self._most * 3

    def enter(self, transport: Connection, now: float) -> bool:
        """Adds a new connection; returns False if it is one too many."""
        self._open.add(transport)
        welcome = len(self._open) <= self._most or self._make_room(now)
        if not welcome and len(self._open) > self._most + _STANDING:
            transport.abort()
        self._silent[transport] = now
        return welcome

    def _make_room(self, now: float) -> bool:
        for transport, since in self._silent.items():
            if now - since < _FRESH_S:
                break
            if transport.get_write_buffer_size() == 0:  # otherwise it has yet to read its last answer
                self.speaks(transport)
                transport.abort()  # at once: a regular close may take long
                return True
        return False

    def speaks(self, transport: Connection) -> None:
        """Notes that the connection's request has arrived."""
        self._silent.pop(transport, None)

    def waits(self, transport: Connection, now: float) -> None:
        """Notes that the connection has its answer."""
        self._silent[transport] = now

    def leave(self, transport: Connection) -> None:
        self._open.discard(transport)
        self._silent.pop(transport, None)


async def no_room(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a caller whose connection is one too many."""
    answer = problem("too-busy", "too many connections; try again", {"Connection": "close"})
    await answer(scope, receive, send)
