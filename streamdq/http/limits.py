"""Limits the server's connections: by the system's limit of open files, and which one is closed when it is full."""

from __future__ import annotations

import contextlib
import resource
from typing import Protocol

from starlette.types import Receive, Scope, Send

from ..config import HttpSettings
from ..errors import InvalidInput
from .problems import problem

_RESERVE = 128  # files that belong to no caller: the connections to Redis of requests that don't wait, logs, modules
_FEWEST_FILES = 256
_FRESH_S = 1.0  # so long a connection may be silent, even when there is no room
_STANDING = 64  # beyond the connections that are served: so many are told that there is no room


def fitted(settings: HttpSettings) -> HttpSettings:
    """The settings, with as many connections and waiting requests as this process may open files for; raises its limit
    as far as the system allows and they need.

    A request that waits for a job takes two files, its caller's connection and one to Redis. Where not all fit, those
    who wait get two fifths, so that there is always room for others beside them.

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
    """How many files this process may open, with its own limit raised to ``wanted`` where that can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY < soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    return wanted if soft == resource.RLIM_INFINITY else soft


class Connection(Protocol):
    """What the crowd needs to know of a transport."""

    def get_write_buffer_size(self) -> int: ...

    def abort(self) -> None: ...


class Crowd:
    """The connections of one server, no more than ``most``. A new one takes the place of the one that has been silent
    for longest; where none has, it is told to come back later, and closed. When it gets dense, each connection is
    closed with its answer.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[Connection] = set()
        self._silent: dict[Connection, float] = {}  # those that owe a request, the longest silent first

    @property
    def dense(self) -> bool:
        """Is there so little room left that an answered connection had better be closed?"""
        return len(self._open) * 4 > self._most * 3

    def enter(self, transport: Connection, now: float) -> bool:
        """A connection was made; False: it is one too many."""
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
            if transport.get_write_buffer_size() == 0:  # else it has yet to read its last answer
                self.speaks(transport)
                transport.abort()  # at once: what is closed in peace may take its time
                return True
        return False

    def speaks(self, transport: Connection) -> None:
        """Its request has arrived."""
        self._silent.pop(transport, None)

    def waits(self, transport: Connection, now: float) -> None:
        """It has its answer."""
        self._silent[transport] = now

    def leave(self, transport: Connection) -> None:
        self._open.discard(transport)
        self._silent.pop(transport, None)


async def no_room(scope: Scope, receive: Receive, send: Send) -> None:
    """What a caller is told whose connection is one too many."""
    answer = problem("too-busy", "too many connections; try again", {"Connection": "close"})
    await answer(scope, receive, send)
