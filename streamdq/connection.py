"""Connections to Redis: one node, Sentinel, Cluster, the embedded server, or fakeredis; sync and async.

redis-py opens, authenticates and parses; what it adds on top is left out on purpose. Its retries repeat calls that
must not run twice, and their time-outs add up (measured: 595 s at ``socket_timeout=1``). Here a call is one attempt;
what may be repeated, and until when, is decided in one place (``session.py``).
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel
from hiredis import pack_command
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, InvalidResponse, RedisError, ResponseError

from .embedded import EmbeddedServer
from .errors import AuthenticationFailed, InvalidInput, UnsupportedServer

SCHEMES = "redis:// rediss:// unix:// redis+cluster:// redis+sentinel:// embedded:// memory://"
_IDLE_CHECK_S = 1.0


class Command(NamedTuple):
    """One Redis command, and a key that tells which Cluster node it goes to."""

    key: str
    args: tuple[Any, ...]


class LinkError(Exception):
    """No reply. ``sent`` False: Redis can't have run it."""

    def __init__(self, cause: BaseException, sent: bool) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        self.sent = sent


class Moved(Exception):
    """Cluster: the slot is served elsewhere now."""


@dataclass
class Target:
    """What a URL says, in redis-py's words."""

    kind: str  # "node", "cluster", "sentinel" or "memory"
    url: str = ""
    hosts: list[tuple[str, int]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    service: str = ""
    embedded: EmbeddedServer | None = None

    def describe(self) -> str:
        """The address without its password."""
        if self.kind in ("cluster", "sentinel"):
            return f"redis+{self.kind}://" + ",".join(f"{host}:{port}" for host, port in self.hosts)
        parts = urlsplit(self.url)
        return self.url.replace(parts.netloc, parts.netloc.rpartition("@")[2]) if "@" in parts.netloc else self.url


def parse_url(url: str) -> Target:
    """Reads the URL; starts the embedded server if it asks for one.

    Raises:
        InvalidInput: the scheme or a host is not understood.
        EmbeddedError: no embedded server can be started.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "memory":
        return Target("memory", url)
    if scheme == "embedded":
        server = EmbeddedServer.open(Path(rest).expanduser() if rest else None)
        return Target("node", f"unix://{quote(str(server.socket_path))}", embedded=server)
    if scheme in ("redis", "rediss", "unix"):
        try:
            redis.ConnectionPool.from_url(url)
        except (ValueError, TypeError) as error:
            raise InvalidInput(f"url: can't read {_hide(url)!r}: {error}") from None
        return Target("node", url)
    if scheme in ("redis+cluster", "redis+sentinel"):
        return _parse_hosts(url, scheme.removeprefix("redis+"))
    raise InvalidInput(f"url: {_hide(url)!r} begins with none of {SCHEMES}")


def _hide(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://…@{tail}" if at else url


def _parse_hosts(url: str, kind: str) -> Target:
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    target = Target(kind, url)
    for item in hosts.split(","):
        host, _, port = item.rpartition(":")
        if not host or not port.isdigit():
            raise InvalidInput(f"url: {item!r} is not host:port; write redis+{kind}://host:port,host:port")
        target.hosts.append((host.strip("[]"), int(port)))
    if credentials:
        user, _, password = credentials.rpartition(":")
        target.options.update({"password": unquote(password), **({"username": unquote(user)} if user else {})})
    if kind == "sentinel":
        target.service = parts.path.strip("/")
        if not target.service:
            raise InvalidInput("url: redis+sentinel:// needs the service's name: redis+sentinel://host:port/NAME")
    return target


def _node_options(timeout_s: float, is_async: bool) -> dict[str, Any]:
    retry = redis.asyncio.retry.Retry if is_async else redis.retry.Retry
    return {
        "protocol": 2,
        "retry": retry(NoBackoff(), 0),
        "driver_info": None,
        # Asynchronous calls have their deadline around them.
        "socket_timeout": None if is_async else timeout_s,
        "socket_connect_timeout": timeout_s,
    }


def _translate(error: BaseException, sent: bool) -> Exception:
    if isinstance(error, AuthenticationError) or "WRONGPASS" in str(error) or "NOAUTH" in str(error):
        return AuthenticationFailed(f"Redis refused the login ({error}); check user name and password in the URL")
    if isinstance(error, InvalidResponse) or type(error).__name__ == "ProtocolError":
        return UnsupportedServer(f"what answers does not speak Redis's protocol ({error}); check host and port")
    return LinkError(error, sent)


def _moved(reply: Any) -> bool:
    return isinstance(reply, ResponseError) and type(reply).__name__ in (
        "MovedError",
        "AskError",
        "ClusterDownError",
    )


class Connections:
    """Sync connections to one node, as many as are used at once; each is used by one call at a time."""

    def __init__(self, pool: redis.ConnectionPool, packed: bool = True) -> None:
        self._pool = pool
        self._packed = packed
        self._idle: deque[tuple[float, Any]] = deque()
        self._pid = os.getpid()

    def _take(self) -> Any:
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
            if self._packed:
                connection.send_packed_command([pack_command(command.args) for command in commands], check_health=False)
                replies = [_read(connection, timeout_s if blocking else None) for _ in commands]
            else:
                replies = []
                for command in commands:
                    connection.send_command(*command.args)
                    replies.append(_read(connection, None))
        except (RedisError, OSError) as error:
            if connection is not None:
                connection.disconnect()
            raise _translate(error, sent) from error
        except BaseException:
            if connection is not None:
                connection.disconnect()
            raise
        self._idle.append((time.monotonic(), connection))
        return replies

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
    except ResponseError as error:
        if isinstance(error, AuthenticationError):
            raise
        return error


class AsyncConnections:
    """Async connections to one node; each is used by one call at a time."""

    def __init__(self, pool: Any, packed: bool = True) -> None:
        self._pool = pool
        self._packed = packed
        self._idle: deque[Any] = deque()

    async def send(self, commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        """The replies, error replies among them; raises as Connections.send does."""
        connection = self._idle.pop() if self._idle else self._pool.make_connection()
        sent = False
        try:
            async with asyncio.timeout(timeout_s):
                await connection.connect()
                sent = True
                if self._packed:
                    await connection.send_packed_command(
                        [pack_command(command.args) for command in commands], check_health=False
                    )
                    replies = [await _aread(connection) for _ in commands]
                else:
                    replies = []
                    for command in commands:
                        await connection.send_command(*command.args)
                        replies.append(await _aread(connection))
        except (RedisError, OSError, TimeoutError, EOFError) as error:
            await connection.disconnect(nowait=True)
            raise _translate(error, sent) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._idle.append(connection)
        return replies

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)


async def _aread(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        if isinstance(error, AuthenticationError):
            raise
        return error


def _fake_server(url: str) -> Any:
    try:
        import fakeredis
    except ImportError:
        raise InvalidInput("url: memory:// needs fakeredis: pip install 'streamdq[memory]'") from None
    return _fake_servers.setdefault(url, fakeredis.FakeServer(server_type="redis", version=(7, 0)))


_fake_servers: dict[str, Any] = {}


class Link:
    """Where commands go, for synchronous callers."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.target = parse_url(url)
        self._timeout_s = timeout_s
        self._nodes: dict[str, Connections] = {}
        self._cluster: redis.cluster.RedisCluster | None = None
        if self.target.kind == "node":
            pool = redis.ConnectionPool.from_url(self.target.url, **_node_options(timeout_s, False))
            self._nodes[""] = Connections(pool)
        elif self.target.kind == "sentinel":
            options = {**_node_options(timeout_s, False), **self.target.options}
            sentinel = redis.sentinel.Sentinel(self.target.hosts, sentinel_kwargs=options, **options)
            self._nodes[""] = Connections(sentinel.master_for(self.target.service).connection_pool)
        elif self.target.kind == "memory":
            import fakeredis

            client = fakeredis.FakeRedis(server=_fake_server(url), protocol=2)
            self._nodes[""] = Connections(client.connection_pool, packed=False)

    def send(self, commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        if self.target.kind != "cluster":
            return self._nodes[""].send(commands, timeout_s, blocking)
        replies: list[Any] = [None] * len(commands)
        for node, indexes in self._spread(commands).items():
            try:
                got = self._nodes[node].send([commands[i] for i in indexes], timeout_s, blocking)
            except LinkError:
                self._forget_topology()
                raise
            for i, reply in zip(indexes, got, strict=True):
                if _moved(reply):
                    self._forget_topology()
                    raise LinkError(reply, sent=False)
                replies[i] = reply
        return replies

    def _spread(self, commands: Sequence[Command]) -> dict[str, list[int]]:
        if self._cluster is None:
            self._cluster = _cluster(redis.cluster, self.target, self._timeout_s, False)
        spread: dict[str, list[int]] = {}
        for i, command in enumerate(commands):
            try:
                node = self._cluster.get_node_from_key(command.key)
            except RedisError as error:
                raise LinkError(error, sent=False) from error
            if node is None:
                raise LinkError(ConnectionError(f"no node serves {command.key}"), sent=False)
            if node.name not in self._nodes:
                options = {**_node_options(self._timeout_s, False), **self.target.options}
                self._nodes[node.name] = Connections(redis.ConnectionPool(host=node.host, port=node.port, **options))
            spread.setdefault(node.name, []).append(i)
        return spread

    def _forget_topology(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def close(self) -> None:
        for node in self._nodes.values():
            node.close()
        self._forget_topology()
        if self.target.embedded:
            self.target.embedded.close()


class AsyncLink:
    """Where commands go, for asynchronous callers; one event loop's."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.target = parse_url(url)
        self._timeout_s = timeout_s
        self._nodes: dict[str, AsyncConnections] = {}
        self._cluster: redis.asyncio.RedisCluster | None = None
        if self.target.kind == "node":
            pool = redis.asyncio.ConnectionPool.from_url(self.target.url, **_node_options(timeout_s, True))
            self._nodes[""] = AsyncConnections(pool)
        elif self.target.kind == "sentinel":
            options = {**_node_options(timeout_s, True), **self.target.options}
            sentinel = redis.asyncio.sentinel.Sentinel(self.target.hosts, sentinel_kwargs=options, **options)
            self._nodes[""] = AsyncConnections(sentinel.master_for(self.target.service).connection_pool)
        elif self.target.kind == "memory":
            import fakeredis

            client = fakeredis.FakeAsyncRedis(server=_fake_server(url), protocol=2)
            self._nodes[""] = AsyncConnections(client.connection_pool, packed=False)

    @property
    def is_cluster(self) -> bool:
        return self.target.kind == "cluster"

    async def send(self, commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        if self.target.kind != "cluster":
            return await self._nodes[""].send(commands, timeout_s, blocking)
        replies: list[Any] = [None] * len(commands)
        for node, indexes in (await self._spread(commands)).items():
            try:
                got = await self._nodes[node].send([commands[i] for i in indexes], timeout_s, blocking)
            except LinkError:
                await self._forget_topology()
                raise
            for i, reply in zip(indexes, got, strict=True):
                if _moved(reply):
                    await self._forget_topology()
                    raise LinkError(reply, sent=False)
                replies[i] = reply
        return replies

    async def _spread(self, commands: Sequence[Command]) -> dict[str, list[int]]:
        if self._cluster is None:
            cluster = _cluster(redis.asyncio.cluster, self.target, self._timeout_s, True)
            try:
                await cluster.initialize()
            except RedisError as error:
                await cluster.aclose()
                raise _translate(error, sent=False) from error
            self._cluster = cluster
        spread: dict[str, list[int]] = {}
        for i, command in enumerate(commands):
            try:
                node = self._cluster.get_node_from_key(command.key)
            except RedisError as error:
                raise LinkError(error, sent=False) from error
            if node is None:
                raise LinkError(ConnectionError(f"no node serves {command.key}"), sent=False)
            if node.name not in self._nodes:
                options = {**_node_options(self._timeout_s, True), **self.target.options}
                self._nodes[node.name] = AsyncConnections(
                    redis.asyncio.ConnectionPool(host=node.host, port=node.port, **options)
                )
            spread.setdefault(node.name, []).append(i)
        return spread

    async def _forget_topology(self) -> None:
        if self._cluster is not None:
            cluster, self._cluster = self._cluster, None
            await cluster.aclose()

    async def close(self) -> None:
        for node in self._nodes.values():
            await node.close()
        await self._forget_topology()
        if self.target.embedded:
            self.target.embedded.close()


def _cluster(module: Any, target: Target, timeout_s: float, is_async: bool) -> Any:
    nodes = [module.ClusterNode(host, port) for host, port in target.hosts]
    options = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "protocol": 2,
        **target.options,
    }
    try:
        return module.RedisCluster(startup_nodes=nodes, **options)
    except RedisError as error:
        raise _translate(error, sent=False) from error
