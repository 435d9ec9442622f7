"""Connections to one node: up to a limit, each used by one call at a time.

redis-py only opens and authenticates connections, and reads the replies of asynchronous calls. Its retries repeat calls
that must not run twice, its time-outs add up (measured: 595 s at ``socket_timeout=1``), and its pools keep counting a
connection that was never given back. Here a call is a single attempt; ``session.py`` decides which calls are repeated,
and until when.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple

import redis
from redis.exceptions import ReadOnlyError, RedisError, ResponseError
from redis.sentinel import SentinelManagedConnection

from ..forks import renew_in_child
from .command import Command, packed
from .deadline import POLLIN, new_poll, set_deadline
from .error_replies import Meaning, meaning_of
from .failures import PoolExhausted, count_reply, translate
from .fair_semaphore import FairSemaphore

KEPT = 4
"""How many idle connections stay open."""
_OPEN_S = 5.0
IDLE_S = 10.0
"""How long other idle connections stay open."""

# RuntimeError: uvloop raises it for a closed transport, asyncio for a transport of a closed loop.
FAILURES = (RedisError, OSError, EOFError, RuntimeError)


class ConnectionLimits(NamedTuple):
    """How many calls may be at one node at a time. Blocked reads are counted separately: they last for seconds, and
    must not keep other calls waiting.
    """

    connections: int
    blocked_reads: int


class _Idle:
    """Open connections that no call uses. The most recently used one is taken first, so that connections left over from
    a burst grow old, and later calls close them.
    """

    def __init__(
        self,
        close: Callable[[Any], None],
        has_ended: Callable[[Any], bool],
        has_left: Callable[[Any], bool] | None = None,
    ) -> None:
        self._close = close
        self._has_ended = has_ended if has_left is None else lambda each: has_left(each) or has_ended(each)
        self._since: deque[tuple[float, Any]] = deque()
        self.is_closed = False  # those in use are closed when their call has ended

    def drop(self) -> None:
        self._since.clear()

    def take(self) -> Any:
        """A connection that the server has not closed, or None."""
        while (connection := self._last()) is not None and self._has_ended(connection):
            self._close(connection)
        return connection

    def _last(self) -> Any:
        try:
            return self._since.pop()[1]
        except IndexError:
            return None

    def put(self, connection: Any, replies: Sequence[Any]) -> None:
        self._since.append((time.monotonic(), connection))
        if self.is_closed or _is_replicas(replies):
            self.close()
        elif len(self._since) > KEPT:
            self._close_old()

    def _close_old(self) -> None:
        """Closes those that were unused for long, as long as there are more than ``KEPT``."""
        too_long = time.monotonic() - IDLE_S
        while len(self._since) > KEPT:
            try:
                since, connection = self._since.popleft()
            except IndexError:  # other threads took them meanwhile
                return
            if since > too_long:
                self._since.appendleft((since, connection))
                return
            self._close(connection)

    def close(self) -> None:
        while (connection := self._last()) is not None:
            self._close(connection)


def _never(_connection: Any) -> bool:
    """Fakeredis never closes a connection."""
    return False


def _is_replicas(replies: Sequence[Any]) -> bool:
    """Whether a reply says that the server is a replica. It may have been the primary before, and its address may lead
    to the new primary by now; only new connections get there.
    """
    for reply in replies:  # noqa: SIM110 - runs for each call, and is twice as fast as any()
        if isinstance(reply, ResponseError) and meaning_of(reply) is Meaning.REPLICA:
            return True
    return False


# -- synchronous


class Connections:
    """Sync connections to one node. ``make`` creates one that is not connected yet. ``packed``: real, not
    fakeredis's. ``has_left``: whether a connection's server is not that node any more, or its login is old.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        limits: ConnectionLimits,
        packed: bool = True,
        has_left: Callable[[Any], bool] | None = None,
    ) -> None:
        self._make = make
        self._limits = limits
        self._packed = packed
        self._has_left = has_left
        self._start()
        renew_in_child(self)

    def _start(self) -> None:
        self._line = FairSemaphore(self._limits.connections)
        self._blocked = FairSemaphore(self._limits.blocked_reads)
        self._idle = _Idle(methodcaller("disconnect"), _has_ended if self._packed else _never, self._has_left)

    def after_fork(self) -> None:
        """A forked child must not use its parent's sockets or wait for its parent's threads."""
        self._idle.drop()
        self._start()

    def send(self, commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        """The replies, including error replies, within ``timeout_s``. With ``blocking``, the wait in line before that
        may take as long again.

        Raises:
            LinkError: the connection failed; it is closed.
            PoolExhausted: no connection became free in time.
            AuthenticationFailed, UnsupportedServer: from the handshake.
        """
        deadline = time.monotonic() + timeout_s
        line = self._blocked if blocking else self._line
        place = line.enter(timeout_s)
        try:
            if place is None:
                raise PoolExhausted(self._limits[blocking], blocking)
            set_deadline(time.monotonic() + timeout_s if blocking else deadline)
            return self._call(commands)
        finally:
            place = None
            line.wake()

    def _call(self, commands: Sequence[Command]) -> list[Any]:
        connection, sent = self._idle.take(), False
        try:
            if connection is None:
                connection = self._make()
                connection.connect()
                if self._packed:
                    connection._sock.read_replies(connection._parser.parse_error)
            sent = True
            replies = self._exchange(connection, commands)
        except BaseException as error:
            if connection is not None:
                connection.disconnect()
            if isinstance(error, FAILURES):
                raise translate(error, sent, connection) from error
            raise
        self._idle.put(connection, replies)
        return replies

    def _exchange(self, connection: Any, commands: Sequence[Command]) -> list[Any]:
        if not self._packed:  # fakeredis takes one command at a time
            replies = []
            for command in commands:
                connection.send_command(*command.args)
                replies.append(_read(connection))
            return replies
        sock = connection._sock
        if len(commands) == 1:
            sock.sendall(packed(commands[0]))
            return [_reply(connection)]
        sock.sendall(b"".join([packed(command) for command in commands]))  # one system call
        return [_reply(connection) for _ in commands]

    def close(self) -> None:
        """Closes idle connections now, and those in use when their call has ended."""
        self._idle.is_closed = True
        self._idle.close()


def _has_ended(connection: Any) -> bool:
    return connection._sock is None or connection._sock.has_something()


def _reply(connection: Any) -> Any:
    """The next reply; that of redis-py, but that it returns error replies."""
    reply = connection._sock.reply()
    if not isinstance(reply, RedisError):
        return reply
    if isinstance(reply, ReadOnlyError) and isinstance(connection, SentinelManagedConnection):
        raise redis.ConnectionError("this was the primary, and is a replica now")  # a sentinel names the new one
    return _checked(reply)


def _checked(error: RedisError) -> RedisError:
    """The error reply, if it answers the command.

    Raises:
        RedisError: this, if it is about the connection, or the server.
    """
    # FULL: no reply to this command, and the connection is closed
    if not isinstance(error, ResponseError) or meaning_of(error) is Meaning.FULL:
        raise error
    count_reply(error)
    return error


def _read(connection: Any) -> Any:
    """The same from redis-py, which raises every error reply."""
    try:
        return connection.read_response()
    except ResponseError as error:
        return _checked(error)


# -- asynchronous


class _SharedConnection:
    """A connection on which calls are sent one after another, without waiting for replies."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.last: asyncio.Future[None] | None = None  # is done when the last call on it has its replies
        self.has_failed = False
        # uvloop would write only when all that is ready in the loop has run.
        connection._writer.transport.set_write_buffer_limits(high=0)


Begun = Callable[[], Awaitable[list[Any]]]
"""Waits for the replies to a call that was sent."""


class AsyncConnections:
    """Async connections to one node, used in one event loop; otherwise like Connections."""

    def __init__(
        self,
        make: Callable[[], Any],
        limits: ConnectionLimits,
        packed: bool = True,
        has_left: Callable[[Any], bool] | None = None,
    ) -> None:
        self.make = make
        self._limits = limits
        self._packed = packed
        self.has_left = has_left
        self._line = asyncio.Semaphore(limits.connections)
        self._blocked = asyncio.Semaphore(limits.blocked_reads)
        self._idle = _Idle(_close_async, _has_ended_async if packed else _never, has_left)
        self._shared: _SharedConnection | None = None
        self._opening: asyncio.Task[None] | None = None

    def begin(self, commands: Sequence[Command], timeout_s: float) -> Begun | None:
        """Sends commands now, before anything else runs in the loop. None: there is no open connection for that, and
        nothing was sent; the next time there may be one.
        """
        if (shared := self._open_shared()) is None:
            return None
        writer = shared.connection._writer
        if writer is None or writer.is_closing():
            return None
        writer.writelines([packed(command) for command in commands])
        before, shared.last = shared.last, asyncio.get_running_loop().create_future()
        return partial(self._replies, shared, before, shared.last, len(commands), timeout_s)

    def _open_shared(self) -> _SharedConnection | None:
        """The one of this moment. None: no connection is open for it."""
        if self.has_left and self._shared and self.has_left(self._shared.connection):
            self._shared = None  # the calls that were sent end there
        if self._shared is None and self._packed and not self._idle.is_closed:
            if (connection := self._idle.take()) is not None:
                self._shared = _SharedConnection(connection)
            elif self._opening is None or self._opening.done():
                self._opening = asyncio.create_task(self._open())
        return self._shared

    def drop_begun(self) -> None:
        """Closes the connection of the calls that were begun and have not ended. A task that is cancelled before its
        first step reads no reply, and closes nothing; calls after it would wait for it forever.
        """
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.has_failed = True
            shared.connection._close()

    async def _open(self) -> None:
        """One more connection."""
        connection = self.make()
        try:
            async with asyncio.timeout(_OPEN_S):
                await _connect(connection)
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if not isinstance(error, FAILURES):
                raise
            return  # the caller that needs it gets the error
        self._idle.put(connection, ())

    async def _replies(
        self,
        shared: _SharedConnection,
        before: asyncio.Future[None] | None,
        done: asyncio.Future[None],
        count: int,
        timeout_s: float,
    ) -> list[Any]:
        """The replies to a call that was sent ``before`` others; the next one waits until this is ``done``."""
        connection = shared.connection
        try:
            async with asyncio.timeout(timeout_s):
                if before is not None:
                    await asyncio.shield(before)
                if shared.has_failed:
                    raise ConnectionError("the connection was closed")
                replies = [await _aread(connection) for _ in range(count)]
        except BaseException as error:
            shared.has_failed = True
            if self._shared is shared:
                self._shared = None
            await connection.disconnect(nowait=True)
            if isinstance(error, FAILURES):
                raise translate(error, True, connection) from error
            raise
        finally:
            done.set_result(None)
        if shared.last is done:
            if self._shared is shared:
                self._shared = None
            self._idle.put(connection, replies)
        return replies

    async def send(self, commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        """Like Connections.send."""
        line = self._blocked if blocking else self._line
        connection, entered, sent = None, False, False
        try:
            async with asyncio.timeout(timeout_s) as limit:
                await line.acquire()
                entered = True
                if blocking:
                    limit.reschedule(asyncio.get_running_loop().time() + timeout_s)
                connection = self._idle.take()
                if connection is None:
                    connection = self.make()
                    await _connect(connection)
                sent = True
                replies = await self._exchange(connection, commands)
            self._idle.put(connection, replies)
            return replies
        except BaseException as error:
            if connection is not None:
                await connection.disconnect(nowait=True)
            if isinstance(error, TimeoutError) and not entered:
                raise PoolExhausted(self._limits[blocking], blocking) from None
            if isinstance(error, FAILURES):
                raise translate(error, sent, connection) from error
            raise
        finally:
            if entered:
                line.release()

    async def _exchange(self, connection: Any, commands: Sequence[Command]) -> list[Any]:
        if not self._packed:
            replies = []
            for command in commands:
                await connection.send_command(*command.args)
                replies.append(await _aread(connection))
            return replies
        await connection.send_packed_command([packed(command) for command in commands], check_health=False)
        return [await _aread(connection) for _ in commands]

    def close(self) -> None:
        """Closes idle connections now, and those in use when their call has ended."""
        self._idle.is_closed = True
        self._idle.close()
        self.drop_begun()
        if self._opening is not None:
            self._opening.cancel()

    async def closed(self) -> None:
        """Waits until none is being opened any more."""
        if self._opening is not None:
            await asyncio.wait([self._opening])


async def _connect(connection: Any) -> None:
    """redis-py asks sentinels with ``asyncio.wait_for``, which may swallow a cancellation on Python 3.11. The task
    would then wait for its reply, and its canceller for the task.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    await connection.connect()
    if task.cancelling() > before:
        raise asyncio.CancelledError


def _close_async(connection: Any) -> None:
    writer = getattr(connection, "_writer", None)
    connection._close()
    if isinstance(writer, asyncio.StreamWriter):
        writer.transport.abort()  # a TLS shutdown would need the loop, which may end now


def _has_ended_async(connection: Any) -> bool:
    """Whether the server has closed it, also if the event loop has not seen that yet; or something came along with the
    last reply, which would be taken for the next one.
    """
    writer, parser, look = connection._writer, connection._parser, new_poll()
    if writer is None or writer.is_closing() or (sock := writer.get_extra_info("socket")) is None:
        return True
    try:
        look.register(sock.fileno(), POLLIN)
    except (OSError, ValueError):  # it has no descriptor any more
        return True
    return bool(look.poll(0)) or parser._reader.has_data() or bool(parser._stream._buffer)


async def _aread(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return _checked(error)
