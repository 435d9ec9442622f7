"""Waits for changes of any number of keys over one connection: Redis's client-side caching (CLIENT TRACKING).

A command that reads a key, sent over such a connection, makes Redis remember the key, even one that does not exist.
When it changes next, Redis says so once, and forgets it. So to look at a key and to ask for its next change is one
command, and no change can come between. When a connection ends, all keys that were looked at over it count as changed.

Messages come between replies, which needs RESP3 (HELLO 3). redis-py only opens and authenticates the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import hiredis
from redis.exceptions import InvalidResponse, ResponseError

from ..errors import AuthenticationFailed, StreamdqError
from .command import Command, packed
from .error_replies import Meaning, as_streamdq, meaning_of
from .failures import count_reply, translate
from .node import FAILURES

Changed = Callable[[str], None]
"""Is called once with a key that was looked at: it has changed, or may have."""

CHOOSE = ("CLIENT", "CACHING", "YES")
"""Of a connection that tells of chosen keys alone, before a command that reads one."""

_BEGIN = (Command("", ("HELLO", "3")), Command("", ("CLIENT", "TRACKING", "ON")))
_BEGIN_CHOOSING = (_BEGIN[0], Command("", ("CLIENT", "TRACKING", "ON", "OPTIN")))
_READ_BYTES = 65536


@dataclass(slots=True, eq=False)
class _Call:
    """A call under way. ``changed`` is None for a call that looks at no keys."""

    commands: Sequence[Command]
    changed: Changed | None
    replies: list[Any] = field(default_factory=list)
    done: asyncio.Future[list[Any]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Tracking:
    """The connection to one node, which is opened when it is needed. ``make`` creates one that is not connected yet.
    ``chosen``: Redis remembers only those keys that a command reads right behind ``CLIENT CACHING YES``. ``is_over``:
    whether a connection has to be replaced by another one.
    """

    def __init__(
        self, make: Callable[[], Any], chosen: bool = False, is_over: Callable[[Any], bool] | None = None
    ) -> None:
        self._make = make
        self._is_over = is_over or (lambda _: False)
        self._tried: Any = None  # the last connection that was to be opened
        self._chosen = chosen
        self._opening = asyncio.Lock()
        self._connection: Any = None
        self._reading: asyncio.Task[None] | None = None
        self._calls: deque[_Call] = deque()
        self._watchers: dict[str, set[Changed]] = {}  # whom to tell of each key's next change

    async def look(self, commands: Sequence[Command], timeout_s: float, changed: Changed | None) -> list[Any]:
        """The replies, including error replies. From each key's reply on, ``changed`` is called when it changes.
        Without commands, it only opens the connection.

        Raises:
            LinkError: the connection failed; it is closed.
            AuthenticationFailed, UnsupportedServer: from the handshake.
        """
        sent = False
        try:
            async with asyncio.timeout(timeout_s):
                async with self._opening:
                    if self._connection is not None and self._is_over(self._connection) and not self._calls:
                        self.close()
                    if self._connection is None:
                        await self._open()
                if not commands:
                    return []
                sent = True
                return await self._send(commands, changed)
        except FAILURES as error:
            if isinstance(error, TimeoutError):
                self.close()
            raise translate(error, sent, self._tried) from error

    async def _open(self) -> None:
        connection = self._tried = self._make()
        try:
            await connection.connect()
            parser = hiredis.Reader(protocolError=InvalidResponse, replyError=connection._parser.parse_error)
            self._connection = connection
            self._reading = asyncio.create_task(self._read(connection, parser))
            begin = _BEGIN_CHOOSING if self._chosen else _BEGIN
            for command, reply in zip(begin, await self._send(begin, None), strict=True):
                if isinstance(reply, ResponseError):
                    raise _refused(command, reply) from reply
        except BaseException:
            self.close()
            await connection.disconnect(nowait=True)
            raise

    async def _send(self, commands: Sequence[Command], changed: Changed | None) -> list[Any]:
        if self._connection is None:  # it has ended meanwhile
            raise ConnectionError("the connection was closed")
        call = _Call(commands, changed)
        self._calls.append(call)
        self._connection._writer.writelines([packed(command) for command in commands])
        return await asyncio.shield(call.done)

    async def _read(self, connection: Any, parser: Any) -> None:
        error: BaseException = ConnectionError("the server closed the connection")
        try:
            while data := await connection._reader.read(_READ_BYTES):
                parser.feed(data)
                while (reply := parser.gets()) is not False:
                    self._take(reply)
        except FAILURES as failure:
            error = failure
        if self._connection is connection:
            self._end(error)

    def _take(self, message: Any) -> None:
        if not isinstance(message, hiredis.PushNotification):
            self._take_reply(message)
        elif message[0] == b"invalidate":  # None: all keys
            self._tell(list(self._watchers) if message[1] is None else [key.decode() for key in message[1]])

    def _take_reply(self, reply: Any) -> None:
        call = self._calls[0]
        key = self._key_to_watch(call.commands, len(call.replies))
        if isinstance(reply, ResponseError):
            count_reply(reply)
        # Redis remembers a key of which it can only say that it is missing as well.
        if call.changed is not None and key:
            self._watchers.setdefault(key, set()).add(call.changed)
        call.replies.append(reply)
        if len(call.replies) == len(call.commands):
            self._calls.popleft()
            if not call.done.done():
                call.done.set_result(call.replies)

    def _key_to_watch(self, commands: Sequence[Command], i: int) -> str:
        """The key of which Redis tells after the i-th command; "" if it tells nothing."""
        is_chosen = not self._chosen or (i > 0 and commands[i - 1].args == CHOOSE)
        return commands[i].key if is_chosen else ""

    def _tell(self, keys: Sequence[str]) -> None:
        for key in keys:
            for changed in self._watchers.pop(key, ()):
                changed(key)

    def drop(self, key: str, changed: Changed) -> None:
        """``changed`` no longer waits for the key."""
        if (waiting := self._watchers.get(key)) is not None:
            waiting.discard(changed)
            if not waiting:
                del self._watchers[key]

    def forget(self, is_here: Callable[[str], bool]) -> None:
        """Tells of keys that another node has now."""
        self._tell([key for key in self._watchers if not is_here(key)])

    def _end(self, error: BaseException) -> None:
        connection, self._connection = self._connection, None
        calls, self._calls = self._calls, deque()
        if connection is not None:
            connection._close()
        for call in calls:
            if not call.done.done():
                call.done.set_exception(error)
                call.done.exception()  # its caller may have given up
        self._tell(list(self._watchers))

    def close(self) -> None:
        """Ends the connection; the next call opens another one."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._end(ConnectionError("the connection was closed"))


def _refused(command: Command, reply: ResponseError) -> StreamdqError:
    """Before 7.0, Redis does not say of a command's first two words which one the user may not run."""
    if meaning_of(reply) is not Meaning.RIGHTS:
        return as_streamdq(reply)
    what = "|".join(map(str.lower, command.args[:2])) if command.args[0] == "CLIENT" else command.args[0].lower()
    return AuthenticationFailed(
        f"Redis does not allow this user +{what}, without which nothing can wait for changes of keys: {reply}; "
        "`streamdq doctor --acl` prints the rights that it needs"
    )
