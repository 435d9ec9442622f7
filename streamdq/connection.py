"""Connections to Redis: one node, Sentinel, Cluster, the embedded server, or fakeredis; sync and async.

redis-py opens, authenticates and parses; what it adds on top is left out on purpose. Its retries repeat calls that
must not run twice, and their time-outs add up (measured: 595 s at ``socket_timeout=1``). Here a call is one attempt;
what may be repeated, and until when, is decided in one place (``session.py``).
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel
from hiredis import pack_command
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    InvalidResponse,
    RedisClusterException,
    RedisError,
    ResponseError,
)

from .address import Target, parse_url
from .errors import AuthenticationFailed, InvalidInput, UnsupportedServer
from .failures import count_call, count_reply

_IDLE_CHECK_S = 1.0
_NO_TOPOLOGY = (RedisError, RedisClusterException)  # the second is no RedisError: no node answers, a slot has none
_MOVED = ("MovedError", "AskError", "ClusterDownError", "TryAgainError")


class Command(NamedTuple):
    """One Redis command, and a key that tells which Cluster node it goes to."""

    key: str
    args: tuple[Any, ...]


class LinkError(Exception):
    """No reply. ``sent`` False: Redis can't have run it."""

    def __init__(self, cause: BaseException, sent: bool) -> None:
        super().__init__(str(cause).rstrip(".") or type(cause).__name__)
        self.sent = sent


def _translate(error: BaseException, sent: bool) -> Exception:
    """What the call raises; counted."""
    translated = _as_ours(error, sent)
    count_call(error, translated)
    return translated


def _as_ours(error: BaseException, sent: bool) -> Exception:
    if isinstance(error, RedisClusterException) and error.__cause__ is not None:
        error = error.__cause__  # what the last node that was asked said
    if isinstance(error, AuthenticationError) or "WRONGPASS" in str(error) or "NOAUTH" in str(error):
        return AuthenticationFailed(f"Redis refused the login ({error}); check user name and password in the URL")
    if isinstance(error, InvalidResponse) or type(error).__name__ == "ProtocolError":
        return UnsupportedServer(f"what answers does not speak Redis's protocol ({error}); check host and port")
    if type(error).__name__ == "MasterNotFoundError":  # its text describes every sentinel's connection at length
        why = "no sentinel names a primary: check their addresses, the service's name, and the password"
        return LinkError(ConnectionError(why), sent=False)
    # A Redis that still loads its data has run nothing.
    return LinkError(error, sent and not isinstance(error, BusyLoadingError))


# -- one node


class Connections:
    """Sync connections to one node, as many as are used at once; each is used by one call at a time."""

    def __init__(self, pool: Any, packed: bool = True) -> None:
        self._pool = pool
        self._packed = packed
        self._idle: deque[tuple[float, Any]] = deque()
        self._pid = os.getpid()

    def _take(self) -> Any:
        """An idle connection, if there is a sound one."""
        if self._pid != os.getpid():  # a forked child must not speak on its parent's sockets
            self._idle.clear()
            self._pid = os.getpid()
        while self._idle:
            since, connection = self._idle.pop()
            if time.monotonic() - since < _IDLE_CHECK_S or not _is_readable(connection):
                return connection
            connection.disconnect()
        return None

    def send(self, commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        """The replies, error replies among them.

        Raises:
            LinkError: the connection failed; it is closed.
            AuthenticationFailed, UnsupportedServer: from the handshake.
        """
        connection, sent = self._take(), False
        try:
            if connection is None:
                connection = self._pool.make_connection()
                connection.connect()
            sent = True
            replies = self._exchange(connection, commands, timeout_s if blocking else None)
        except BaseException as error:
            if connection is not None:
                connection.disconnect()
            if isinstance(error, RedisError | OSError):
                raise _translate(error, sent) from error
            raise
        self._idle.append((time.monotonic(), connection))
        return replies

    def _exchange(self, connection: Any, commands: Sequence[Command], timeout_s: float | None) -> list[Any]:
        if not self._packed:  # fakeredis takes one at a time
            replies = []
            for command in commands:
                connection.send_command(*command.args)
                replies.append(_read(connection, None))
            return replies
        connection.send_packed_command([pack_command(command.args) for command in commands], check_health=False)
        return [_read(connection, timeout_s) for _ in commands]

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].disconnect()


def _is_readable(connection: Any) -> bool:
    """An idle connection with something to read was closed by the server."""
    sock = getattr(connection, "_sock", None)
    return sock is not None and bool(select.select([sock], [], [], 0)[0])


def _read(connection: Any, timeout_s: float | None) -> Any:
    try:
        return connection.read_response() if timeout_s is None else connection.read_response(timeout=timeout_s)
    except AuthenticationError:
        raise
    except ResponseError as error:
        count_reply(error)
        return error


class AsyncConnections:
    """Async connections to one node; each is used by one call at a time."""

    def __init__(self, pool: Any, packed: bool = True) -> None:
        self._pool = pool
        self._packed = packed
        self._idle: deque[Any] = deque()

    async def send(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        """The replies, error replies among them; raises as Connections.send does."""
        connection = self._idle.pop() if self._idle else self._pool.make_connection()
        sent = False
        try:
            async with asyncio.timeout(timeout_s):
                await connection.connect()
                sent = True
                replies = await self._exchange(connection, commands)
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if isinstance(error, RedisError | OSError | EOFError):
                raise _translate(error, sent) from error
            raise
        self._idle.append(connection)
        return replies

    async def _exchange(self, connection: Any, commands: Sequence[Command]) -> list[Any]:
        if not self._packed:
            replies = []
            for command in commands:
                await connection.send_command(*command.args)
                replies.append(await _aread(connection))
            return replies
        await connection.send_packed_command([pack_command(command.args) for command in commands], check_health=False)
        return [await _aread(connection) for _ in commands]

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)


async def _aread(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except AuthenticationError:
        raise
    except ResponseError as error:
        count_reply(error)
        return error


# -- wherever the URL points


class _Flavour(NamedTuple):
    """redis-py's classes for one way of calling."""

    pool: Any
    sentinel: Any
    cluster: Any
    node: Any
    retry: Any
    fake: str
    connections: Any
    socket_timeout: bool  # asynchronous calls have their deadline around them


_SYNC = _Flavour(
    redis.ConnectionPool, redis.sentinel.Sentinel, redis.cluster.RedisCluster, redis.cluster.ClusterNode,
    redis.retry.Retry, "FakeRedis", Connections, True,
)  # fmt: skip
_ASYNC = _Flavour(
    redis.asyncio.ConnectionPool, redis.asyncio.sentinel.Sentinel, redis.asyncio.cluster.RedisCluster,
    redis.asyncio.cluster.ClusterNode, redis.asyncio.retry.Retry, "FakeAsyncRedis", AsyncConnections, False,
)  # fmt: skip

_fake_servers: dict[str, Any] = {}


def forget_memory(url: str) -> None:
    """The data of a ``memory://`` server is gone; whoever opens the URL next finds an empty one."""
    _fake_servers.pop(url, None)


class _Routes:
    """Which connections a command travels on: what Link and AsyncLink share."""

    def __init__(self, url: str, timeout_s: float, flavour: _Flavour) -> None:
        self.target: Target = parse_url(url)
        self._flavour = flavour
        self._options = {
            "protocol": 2,
            "retry": flavour.retry(NoBackoff(), 0),
            "driver_info": None,
            "socket_timeout": timeout_s if flavour.socket_timeout else None,
            "socket_connect_timeout": timeout_s,
        }
        self._timeout_s = timeout_s
        self._nodes: dict[str, Any] = {}
        self._topology: Any = None
        self._sentinels: list[Any] = []
        if self.target.kind == "node":
            self._nodes[""] = flavour.connections(flavour.pool.from_url(self.target.url, **self._options))
        elif self.target.kind == "sentinel":
            self._nodes[""] = flavour.connections(self._sentinel_pool())
        elif self.target.kind == "memory":
            self._nodes[""] = flavour.connections(self._fake_pool(), packed=False)

    @property
    def is_cluster(self) -> bool:
        return self.target.kind == "cluster"

    def _sentinel_pool(self) -> Any:
        """Asks one sentinel after the other for the primary, each of them briefly: one that hangs must not use up the
        time of the whole call. They have the nodes' password or, more often, none.
        """
        logins = [self.target.options, {}] if self.target.options else [{}]
        hosts = self.target.hosts
        brief_s = min(1.0, self._timeout_s / (len(hosts) * len(logins) + 1))
        brief = {**self._options, "socket_timeout": brief_s, "socket_connect_timeout": brief_s}
        nodes = {**self._options, **self.target.options}
        first, *others = (
            self._flavour.sentinel(hosts, sentinel_kwargs={**brief, **login}, **nodes) for login in logins
        )
        for other in others:
            first.sentinels += other.sentinels
        # A copy: calls at the same time that swap places in redis-py's list may drop one from it, and all are closed.
        self._sentinels = list(first.sentinels)
        return first.master_for(self.target.service).connection_pool

    def _fake_pool(self) -> Any:
        try:
            import fakeredis
        except ImportError:
            raise InvalidInput("url: memory:// needs fakeredis: pip install 'streamdq[memory]'") from None
        if self.target.url not in _fake_servers:
            _fake_servers[self.target.url] = fakeredis.FakeServer(server_type="redis", version=(7, 0))
        client = getattr(fakeredis, self._flavour.fake)
        # No socket time-out: redis-py keeps it with wait_for, which on Python 3.11 may swallow a cancellation.
        return client(server=_fake_servers[self.target.url], protocol=2, socket_timeout=None).connection_pool

    def _new_topology(self) -> Any:
        nodes = [self._flavour.node(host, port) for host, port in self.target.hosts]
        options = {"socket_timeout": self._timeout_s, "socket_connect_timeout": self._timeout_s, "protocol": 2}
        try:
            return self._flavour.cluster(startup_nodes=nodes, **options, **self.target.options)
        except _NO_TOPOLOGY as error:
            raise _translate(error, sent=False) from error

    def _connections_for(self, topology: Any, key: str) -> str:
        """The name of the Cluster node that serves the key."""
        try:
            node = topology.get_node_from_key(key)
        except _NO_TOPOLOGY as error:
            raise LinkError(error, sent=False) from error
        if node is None:
            raise LinkError(ConnectionError(f"no Cluster node serves {key}"), sent=False)
        if node.name not in self._nodes:
            pool = self._flavour.pool(host=node.host, port=node.port, **self._options, **self.target.options)
            self._nodes[node.name] = self._flavour.connections(pool)
        return str(node.name)

    def _spread(
        self, topology: Any, commands: Sequence[Command]
    ) -> Generator[tuple[Any, list[Command]], list[Any], list[Any]]:
        """Yields each node's connections with its commands, is sent their replies, and returns all in order."""
        names = [self._connections_for(topology, command.key) for command in commands]
        replies: list[Any] = [None] * len(commands)
        ran = False
        for name in dict.fromkeys(names):
            indexes = [i for i, other in enumerate(names) if other == name]
            got = yield self._nodes[name], [commands[i] for i in indexes]
            for i, reply in zip(indexes, got, strict=True):
                if type(reply).__name__ in _MOVED:
                    raise LinkError(reply, sent=ran)
                replies[i] = reply
            ran = True
        return replies


class Link(_Routes):
    """Where commands go, for synchronous callers."""

    def __init__(self, url: str, timeout_s: float) -> None:
        super().__init__(url, timeout_s, _SYNC)
        self._learning = threading.Lock()

    def send(self, commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        if not self.is_cluster:
            return self._nodes[""].send(commands, timeout_s, blocking)  # type: ignore[no-any-return]
        topology = self._learn_topology()
        parts = self._spread(topology, commands)
        try:
            connections, part = next(parts)
            while True:
                connections, part = parts.send(connections.send(part, timeout_s, blocking))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        except LinkError:  # perhaps the node is gone: ask the others who serves what
            self._forget_topology(topology)
            raise

    def _learn_topology(self) -> Any:
        with self._learning:  # many threads may miss it at once: one asks
            if self._topology is None:
                self._topology = self._new_topology()
            return self._topology

    def _forget_topology(self, topology: Any) -> None:
        if topology is not None and self._topology is topology:
            self._topology = None
            topology.close()

    def close(self) -> None:
        for node in (*self._nodes.values(), *self._sentinels):
            node.close()
        self._forget_topology(self._topology)
        if self.target.embedded:
            self.target.embedded.close()


class AsyncLink(_Routes):
    """Where commands go, for asynchronous callers; one event loop's."""

    def __init__(self, url: str, timeout_s: float) -> None:
        super().__init__(url, timeout_s, _ASYNC)
        self._learning = asyncio.Lock()

    async def send(
        self,
        commands: Sequence[Command],
        timeout_s: float,
        blocking: bool = False,  # noqa: ARG002  (as Link.send)
    ) -> list[Any]:
        if not self.is_cluster:
            return await self._nodes[""].send(commands, timeout_s)  # type: ignore[no-any-return]
        topology = self._topology or await self._learn_topology()
        parts = self._spread(topology, commands)
        try:
            connections, part = next(parts)
            while True:
                connections, part = parts.send(await connections.send(part, timeout_s))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        except LinkError:
            await self._forget_topology(topology)
            raise

    async def _learn_topology(self) -> Any:
        async with self._learning:  # many tasks may miss it at once: one asks
            if self._topology is None:
                topology = self._new_topology()
                try:
                    await topology.initialize()
                except BaseException as error:
                    await topology.aclose()
                    if isinstance(error, (*_NO_TOPOLOGY, OSError)):
                        raise _translate(error, sent=False) from error
                    raise
                self._topology = topology
            return self._topology

    def node_of(self, key: str) -> str:
        """The name of the Cluster node that serves the key; '' when that is not known now, and everywhere else."""
        if not self.is_cluster or self._topology is None:
            return ""
        try:
            return self._connections_for(self._topology, key)
        except LinkError:
            return ""

    async def _forget_topology(self, topology: Any) -> None:
        if topology is not None and self._topology is topology:
            self._topology = None
            await topology.aclose()

    async def close(self) -> None:
        for node in self._nodes.values():
            await node.close()
        for sentinel in self._sentinels:
            await sentinel.aclose()
        await self._forget_topology(self._topology)
        if self.target.embedded:
            self.target.embedded.close()
