"""Where commands go: one node, Sentinel, Cluster, the embedded server, or fakeredis; sync and async."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import socket
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

import redis
import redis.asyncio
from redis.backoff import NoBackoff

from ..errors import InvalidInput, WrongLoop
from ..forks import call_in_child
from ..threads import HandlerThreads
from .address import Target, parse_url
from .cluster import Slots, learned, routed
from .command import Command
from .credentials import InThread, Login, credentials_of
from .deadline import timed
from .failures import LinkError
from .node import AsyncConnections, Begun, ConnectionLimits, Connections
from .primary import Asking, AsyncSentinel, Epoch, PrimaryWatch, Sentinel
from .session import Op, Request, arun
from .tracking import Changed, Tracking

__all__ = ["AsyncLink", "ConnectionLimits", "Link", "LinkError", "forget_memory"]

T = TypeVar("T")
_WORK_THREADS = 16


class _Flavour(NamedTuple):
    """redis-py's classes for one way of calling."""

    pool: Any
    secured: Any  # connections by TLS
    sentinel: Any
    retry: Any
    fake: str
    connections: Any
    connection: Callable[[type], Any]  # adds the deadline; asynchronous calls have a time-out around them instead
    fake_connection: Callable[[type], Any]


def _as_it_is(connection_class: type) -> Any:
    return connection_class


class _ReadingAside(redis.asyncio.SSLConnection):
    """A connection whose certificates are read in a thread. With those of the system, that takes 40 ms, for which the
    event loop would stand still.
    """

    in_thread: InThread | None = None

    async def _connect(self) -> None:
        if self.in_thread is not None:
            await self.in_thread(self.ssl_context.get)
        await super()._connect()  # type: ignore[no-untyped-call]  # redis-py does not say


@cache
def _reading_aside(connection_class: type) -> Any:
    """The same class of connections; those by TLS read their certificates in a thread."""
    if not issubclass(connection_class, redis.asyncio.SSLConnection):
        return connection_class
    return type(f"ReadingAside{connection_class.__name__}", (_ReadingAside, connection_class), {})


def _ending_reads(connection_class: Any) -> Any:
    """The same class of fakeredis's connections, but a blocked read ends with its connection, as on a server. fakeredis
    lets it go on, and take an entry that nobody will ever claim.
    """

    class Ending(connection_class):  # type: ignore[misc]
        async def disconnect(self, *args: Any, **kwargs: Any) -> None:
            sock = self._sock
            if sock is not None and sock._blocked:
                with sock._server.lock:
                    sock._unblock_reason = b"timeout"
                    sock._db.notify_watch(b"")
            await super().disconnect(*args, **kwargs)

    return Ending


_SYNC = _Flavour(
    redis.ConnectionPool, redis.SSLConnection, Sentinel, redis.retry.Retry, "FakeRedis", Connections,
    timed, _as_it_is,
)  # fmt: skip
_ASYNC = _Flavour(
    redis.asyncio.ConnectionPool, redis.asyncio.SSLConnection, AsyncSentinel,
    redis.asyncio.retry.Retry, "FakeAsyncRedis", AsyncConnections, _reading_aside, _ending_reads,
)  # fmt: skip
# No limits of redis-py's pools: node.py has its own.
_OPTIONS = {"protocol": 2, "socket_timeout": None, "max_connections": 2**31}
# The system asks whether a connection's other end is still there, so a blocked read that gets no answer ends after
# ten seconds. (TCP_KEEPALIVE is what macOS calls TCP_KEEPIDLE.)
_KEEPALIVE = {"TCP_KEEPIDLE": 2, "TCP_KEEPALIVE": 2, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 4}
_OVER_TCP = {
    "socket_keepalive": True,
    "socket_keepalive_options": {
        getattr(socket, name): value for name, value in _KEEPALIVE.items() if hasattr(socket, name)
    },
}
# Don't send redis-py's name and version to Redis: this saves two round trips. Versions differ in the arguments' names.
# Given to it, not taken from it later: redis-py 8 looks up its version in the installed package's files for each
# connection that is to send it, which takes longer than to connect.
_UNNAMED: dict[str, Any] = (
    {"driver_info": None}
    if "driver_info" in inspect.signature(redis.connection.AbstractConnection).parameters
    else {"lib_name": None, "lib_version": None}
)

_fake_servers: dict[str, Any] = {}


def forget_memory(url: str) -> None:
    """Deletes the data of a ``memory://`` server: the next link to this URL finds an empty one."""
    _fake_servers.pop(url, None)


def _renew_fake_servers() -> None:
    """A thread of the parent, such as its mover's, may have been in the middle of a command."""
    for server in _fake_servers.values():
        server.lock._at_fork_reinit()  # as Python's own modules do; its databases share the lock


call_in_child(_renew_fake_servers)


class _Routes:
    """Which connections a command uses; shared by Link and AsyncLink."""

    def __init__(
        self, url: str, timeout_s: float, limits: ConnectionLimits, flavour: _Flavour, credential_provider: Any
    ) -> None:
        """``credential_provider``: of redis-py, or where it is (credentials.py); without one, the URL's login."""
        self.target: Target = parse_url(url)
        self._credentials = credentials_of(credential_provider) if self.target.takes_logins else None
        if self._credentials and self.target.has_login:
            raise InvalidInput("url: has a user or a password, and there is a credential provider as well; remove one")
        self._flavour = flavour
        self._limits = limits
        over_tcp = {} if self.target.url.startswith("unix") else _OVER_TCP
        again = {"retry": flavour.retry(NoBackoff(), 0)}
        self._options = {**_OPTIONS, **over_tcp, **again, "socket_connect_timeout": timeout_s}
        self._timeout_s = timeout_s
        self._nodes: dict[str, Any] = {}
        self._sentinels: list[Any] = []
        self._watch: PrimaryWatch | None = None
        self._slots = Slots(self.target.hosts, self._slots_changed)
        if self.target.kind == "node":
            pool = flavour.pool.from_url(self.target.url, **self._options)
            if "path" in pool.connection_kwargs:  # redis-py takes any for UTF-8
                pool.connection_kwargs["path"] = os.fsdecode(unquote_to_bytes(urlsplit(self.target.url).path))
            self._nodes[""] = self._connections(pool)
        elif self.target.kind == "sentinel":
            epoch = Epoch()
            watched = self._sentinels_of(_SYNC, epoch)
            self._watch = PrimaryWatch(
                partial(watched.discover_master, self.target.service),
                lambda: [sentinel.close() for sentinel in watched.sentinels],
            )
            self._nodes[""] = self._connections(self._sentinel_pool(epoch), self._watch.has_left)
        elif self.target.kind == "memory":
            pool = self._fake_pool()
            fake = flavour.fake_connection(pool.connection_class)
            self._nodes[""] = flavour.connections(
                lambda: fake(**{**pool.connection_kwargs, **_UNNAMED}), limits, packed=False
            )

    @property
    def is_cluster(self) -> bool:
        return self.target.kind == "cluster"

    def node_of(self, key: str) -> str:
        """The name of the Cluster node that serves the key; '' if it is not known now, or without a Cluster."""
        return (self._slots.node_of(key) or "") if self.is_cluster else ""

    def last_node_of(self, key: str) -> str:
        """Like ``node_of``, but also names a node that has just failed. To tell shards of one node from another's:
        several nodes may have just failed, and what is sent for all of their shards at once fails with the first.
        """
        return (self._slots.last_node_of(key) or "") if self.is_cluster else ""

    def _connections(self, pool: Any, has_left: Callable[[Any], bool] | None = None) -> Any:
        """Uses only the pool's class and arguments of connections; the pool itself would count them."""
        connection_class = self._flavour.connection(pool.connection_class)
        credentials = self._credentials

        def make() -> Any:
            login = {"credential_provider": Login(credentials, self._log_in)} if credentials else {}
            connection = connection_class(**{**pool.connection_kwargs, **_UNNAMED, **login})
            if isinstance(connection, _ReadingAside):
                connection.in_thread = self._log_in
            return connection

        def is_over(connection: Any) -> bool:
            return connection.credential_provider.is_old or (has_left is not None and has_left(connection))

        return self._flavour.connections(make, self._limits, has_left=is_over if credentials else has_left)

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Calls a function that blocks."""
        return function(*args)

    async def _log_in(self, function: Callable[..., T]) -> T:
        """The same for what asks a credential provider, or reads certificates."""
        return function()

    def _sentinels_of(self, flavour: _Flavour, epoch: Epoch) -> Any:
        """Asks one sentinel after the other for the primary, each only briefly: a sentinel that hangs must not use up
        the call's time. Sentinels have a password of their own, that of the nodes or, most often, none.
        """
        hosts, logins = self.target.hosts, self.target.sentinel_logins
        secured = {"ssl": True, **self.target.tls_options} if self.target.tls else {}
        options = {**self._options, "retry": flavour.retry(NoBackoff(), 0)}
        brief_s = min(1.0, self._timeout_s / (len(hosts) * len(logins) + 1))
        brief = {**options, "socket_timeout": brief_s, "socket_connect_timeout": brief_s}
        nodes = {**options, **secured, **self.target.options}
        found = [flavour.sentinel(hosts, sentinel_kwargs={**brief, **secured, **login}, **nodes) for login in logins]
        first = found[0]
        first.asking = Asking([each.sentinels for each in found], epoch)
        first.sentinels = [sentinel for each in found for sentinel in each.sentinels]
        return first

    def _sentinel_pool(self, epoch: Epoch) -> Any:
        first = self._sentinels_of(self._flavour, epoch)
        for client in first.sentinels:
            pool = client.connection_pool
            pool.connection_class = self._flavour.connection(pool.connection_class)
        self._sentinels = first.sentinels
        return first.master_for(self.target.service).connection_pool

    def _close_watched(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def _fake_pool(self) -> Any:
        try:
            import fakeredis
        except ImportError:
            raise InvalidInput("url: memory:// needs fakeredis: pip install 'streamdq[memory]'") from None
        if self.target.url not in _fake_servers:
            _fake_servers[self.target.url] = fakeredis.FakeServer(server_type="redis", version=(7, 0))
        client = getattr(fakeredis, self._flavour.fake)
        # No socket time-out: redis-py implements it with wait_for, which may swallow a cancellation on Python 3.11.
        return client(server=_fake_servers[self.target.url], protocol=2, socket_timeout=None).connection_pool

    def _node(self, name: str) -> Any:
        """The connections to a Cluster node, ``host:port``."""
        node = self._nodes.get(name)
        if node is None:
            host, _, port = name.rpartition(":")
            secured = {"connection_class": self._flavour.secured} if self.target.tls else {}
            options = {**self._options, **self.target.options, **secured}
            pool = self._flavour.pool(host=host, port=int(port), **options)
            node = self._nodes.setdefault(name, self._connections(pool))  # another thread may have been faster
        return node

    def _slots_changed(self) -> None:
        """Closes connections to nodes that serve no slot any more."""
        for name in set(self._nodes) - self._slots.names:
            if (gone := self._nodes.pop(name, None)) is not None:  # another thread may have been faster
                gone.close()

    def route(self, request: Request) -> Op[list[Any]]:
        """On Cluster: the replies of the nodes that serve the keys.

        Raises:
            LinkError: there was no reply.
        """
        return routed(self._slots, request)


class Link(_Routes):
    """Where commands go, for synchronous callers."""

    def __init__(self, url: str, timeout_s: float, limits: ConnectionLimits, credential_provider: Any = None) -> None:
        super().__init__(url, timeout_s, limits, _SYNC, credential_provider)

    def send(self, commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        """The replies of a server that is no Cluster, including error replies, within ``timeout_s``.

        Raises:
            LinkError: there was no reply.
        """
        replies: list[Any] = self._nodes[""].send(commands, timeout_s, blocking)
        return replies

    def at(self, node: str) -> Connections:
        """The same for a Cluster's node."""
        connections: Connections = self._node(node)
        return connections

    def close(self) -> None:
        """Lets calls under way end normally; their connections are closed after that."""
        for node in (*self._nodes.values(), *self._sentinels):
            node.close()
        self._close_watched()
        if self.target.embedded:
            self.target.embedded.close()


class AsyncLink(_Routes):
    """Where commands go, for asynchronous callers in one event loop."""

    def __init__(self, url: str, timeout_s: float, limits: ConnectionLimits, credential_provider: Any = None) -> None:
        super().__init__(url, timeout_s, limits, _ASYNC, credential_provider)
        self._tracking: dict[str, Tracking] = {}  # by the name of the Cluster's node
        self._choosing: dict[str, Tracking] = {}  # the same
        self._threads = HandlerThreads(_WORK_THREADS)
        self._login_threads = HandlerThreads(_WORK_THREADS)
        self._loop: asyncio.AbstractEventLoop | None = None

    def stay(self) -> None:
        """Remembers the event loop of the first call.

        Raises:
            WrongLoop: it is another one now; its tasks would wait for connections of the first for ever.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise WrongLoop(
                "this AsyncQueue belongs to the event loop in which it was first used, and another one runs here: make "
                "one in each loop (async with AsyncQueue() as queue:), or share a Queue between threads"
            )

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Calls a function that blocks. Its threads are not those of the event loop, which also look up host names, nor
        those of logins: a storage that hangs must not keep anybody from Redis.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    async def _log_in(self, function: Callable[..., T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._login_threads, function)

    async def send(self, commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        """Like Link.send."""
        self.stay()
        replies: list[Any] = await self._nodes[""].send(commands, timeout_s, blocking)
        return replies

    def at(self, node: str) -> AsyncConnections:
        """Like Link.at."""
        self.stay()
        connections: AsyncConnections = self._node(node)
        return connections

    def begin(self, commands: Sequence[Command], timeout_s: float) -> Begun | None:
        """Sends commands now, before anything else runs in the event loop; what is returned waits for the replies, as
        ``send`` does. None: nothing was sent, as no connection is open for that, or this is a Cluster.
        """
        begun: Begun | None = None if self.is_cluster else self._nodes[""].begin(commands, timeout_s)
        return begun

    def drop_begun(self) -> None:
        """Closes the connection of calls that were begun, as their callers were cancelled."""
        if not self.is_cluster:
            self._nodes[""].drop_begun()

    async def look(
        self, node: str, commands: Sequence[Command], timeout_s: float, changed: Changed, chosen: bool = False
    ) -> list[Any]:
        """Like ``send``, for commands that read keys of a node. ``changed`` is called when one of the keys changes
        after its reply, once for each, and also when that can't be known any more. ``chosen``: only those keys that a
        command reads right behind ``CLIENT CACHING YES``.
        """
        self.stay()
        return await self._tracking_at(node, chosen).look(commands, timeout_s, changed)

    def _tracking_at(self, name: str, chosen: bool = False) -> Tracking:
        known = self._choosing if chosen else self._tracking
        if name not in known:
            node = self._node(name) if name else self._nodes[""]
            known[name] = Tracking(node.make, chosen, node.has_left)
        return known[name]

    def forget_looks(self, key: str, changed: Changed) -> None:
        """``changed``, which is called for chosen keys, is no longer called for this key."""
        for tracking in self._choosing.values():
            tracking.drop(key, changed)

    def _slots_changed(self) -> None:
        """Callers that wait for a change of a key must look at the node that has it now."""
        super()._slots_changed()
        for known in (self._tracking, self._choosing):
            for name in known.keys() - self._slots.names:
                known.pop(name).close()
            for name, tracking in known.items():
                tracking.forget(partial(self._is_at, name))

    def _is_at(self, name: str, key: str) -> bool:
        return self._slots.node_of(key) == name

    async def check_looks(self) -> None:
        """Whether this user may wait for changes of keys (``look``) on a Cluster's nodes, as far as these answer.

        Raises:
            LinkError: no node has ever told which slots there are.
            AuthenticationFailed: it may not.
        """
        if not self._slots.names:
            await self.learn_slots()
        for name in sorted(self._slots.names):
            with contextlib.suppress(LinkError):
                await self._tracking_at(name).look((), self._timeout_s, None)

    async def learn_slots(self, unless_within_s: float = 0.0) -> None:
        """Asks a Cluster which node has which slot, unless it has answered lately. Callers that wait for a change of a
        key that has moved are notified.

        Raises:
            LinkError: no node has ever answered.
        """
        if time.monotonic() - self._slots.learned_at >= unless_within_s:
            await arun(self, learned(self._slots, self._timeout_s))

    async def close(self) -> None:
        """Like Link.close."""
        self._threads.shutdown()
        self._login_threads.shutdown()
        for tracking in (*self._tracking.values(), *self._choosing.values()):
            tracking.close()
        for node in list(self._nodes.values()):
            node.close()
            await node.closed()
        for sentinel in self._sentinels:
            await sentinel.aclose()
        self._close_watched()
        if self.target.embedded:
            self.target.embedded.close()
