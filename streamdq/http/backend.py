"""What all requests of a server share: the queue with its connections, the signing of claims, and its heartbeat."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from ..config import HttpSettings, Settings
from ..exporter.gauges import Reader
from ..link.session import Op
from ..metrics.declared import TopicLabels
from ..operations.topics.stats import Stats, died_lately
from ..operations.topics.workers import Workers, workers
from ..process.loop import cancel_and_wait
from ..queue import AsyncQueue, carry_out_async, store_of
from ..store import namespace
from ..store.redis_store import RedisStore
from ..store.topics import registry
from .activity import Recent
from .audit_log import AuditLog
from .auth import Tokens
from .followed import Pages
from .problems import ProblemError
from .rate_limits import Rates
from .refusals import Refusals
from .signing_secrets import Signing
from .topic_cache import TopicCache, Watch
from .write_probe import WriteProbe

if TYPE_CHECKING:
    from .pages.signed_in import UserOf
    from .prometheus import Prometheus

T = TypeVar("T")
TICK_S = 0.5
_PROBE_MS = 10_000
_LONGEST_TURN_S = 10.0  # how long a search waits for others
_KNOWN_FOR_S = 10.0  # how long not to check the data's format again, as that reads all topics' settings


@dataclass(slots=True)
class Backend:
    """The shared parts of one server. The queue is opened with the server, or by the first request if there is no
    lifespan (in an app that is mounted in another one). A queue that was passed in is closed by its owner.
    """

    url: str | None
    namespace: str
    settings: Settings | None
    http: HttpSettings
    tokens: Tokens
    hosts: frozenset[str] | None = None
    given: AsyncQueue | None = None
    user_of: UserOf | None = None  # who uses the page, if somebody else signs users in
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    ticked: float | None = None  # None: there is no heartbeat, as there is no lifespan
    taking: set[asyncio.Task[Any]] = field(default_factory=set)
    waits: int = 0  # how many requests wait for a result, or follow a topic
    refusals: Refusals = field(default_factory=Refusals)
    audit: AuditLog = field(default_factory=AuditLog)
    rates: Rates = field(init=False)
    _opened: AsyncQueue | None = None
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    probe: WriteProbe = field(init=False)
    claims: Signing = field(init=False)
    topic_cache: TopicCache = field(init=False)
    recent: Recent = field(init=False)
    followed: Pages = field(init=False)
    workers: Watch[Workers] = field(init=False)
    prometheus: Prometheus | None = None
    _known_until: float = 0.0
    _searches: asyncio.Semaphore = field(init=False)
    _reader: Reader | None = None
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.probe = WriteProbe(self._write_probe)
        self.claims = Signing("claim", self.store, self.do)
        self.rates = Rates(self.http)
        self._searches = asyncio.Semaphore(self.http.max_searches)
        self.workers = Watch("workers", self._all_workers)
        self.recent = Recent(self.store, self.do)
        self.followed = Pages(self.store, self.do)
        if self.http.prometheus_url:
            from .prometheus import Prometheus

            self.prometheus = Prometheus(self.http.prometheus_url, self.namespace)
        self.topic_cache = TopicCache(self._all_stats, self._died_lately)

    async def queue(self) -> AsyncQueue:
        if self.given is not None:
            return self.given
        async with self._opening:
            if self._opened is None:
                # In a thread: the embedded server takes its time to start.
                self._opened = await asyncio.to_thread(AsyncQueue, self.url, self.namespace, settings=self.settings)
            return self._opened

    async def search(self, request: Request, look: Callable[[], Awaitable[T]]) -> T:
        """Looks through jobs for this request, if its caller stays for the answer. Only a few requests do so at a time,
        because they slow down all others.

        Raises:
            ProblemError: it waited too long for its turn.
            ClientDisconnect: the caller has left.
        """
        searching, leaving = asyncio.create_task(self._in_turn(look)), asyncio.create_task(left(request))
        try:
            await asyncio.wait([searching, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not searching.done():
                raise ClientDisconnect
            return searching.result()
        finally:
            await cancel_and_wait([searching, leaving])

    async def _in_turn(self, look: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(_LONGEST_TURN_S):
                await self._searches.acquire()
        except TimeoutError:
            most = self.http.max_searches
            raise ProblemError("too-busy", f"{most} searches are under way, and others wait; try again") from None
        try:
            return await look()
        finally:
            self._searches.release()

    async def store(self) -> RedisStore:
        return store_of(await self.queue())

    async def do(self, operation: Op[T]) -> T:
        """Runs an operation on the store."""
        return await carry_out_async(await self.queue(), operation)

    @property
    def takes(self) -> int:
        """How many requests wait for a job, including those whose caller has just left."""
        return len(self.taking)

    def begin(self, taking: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that waits for a job: it outlives its request, and ends with the server."""
        task = asyncio.create_task(taking)
        self.taking.add(task)
        task.add_done_callback(self._taken)
        return task

    def _taken(self, task: asyncio.Task[Any]) -> None:
        self.taking.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as seen; the request gets it, if there still is one

    async def _all_stats(self) -> Stats:
        return await (await self.queue()).stats()

    async def _died_lately(self, stats: Stats) -> dict[tuple[str, str], int]:
        return await self.do(died_lately(await self.store(), stats.topics))

    async def _all_workers(self, _: float) -> Workers:
        store = await self.store()
        return await self.do(workers(store, await self.do(store.topics.registry())))

    async def _write_probe(self) -> None:
        session, now = (await self.store()).session, time.monotonic()
        if now >= self._known_until:
            await self.do(registry.check_formats(session))
            self._known_until = now + _KNOWN_FOR_S
        await self.do(namespace.write_probe(session, _PROBE_MS))

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[Reader]:
        """The reader of Redis's metrics, for one scrape at a time."""
        if self._reader is None:
            session = (await self.store()).session
            self._reader = Reader(session.keys.namespace, TopicLabels(session.settings.metrics_topics))
        async with self._reading:
            yield self._reader

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the server runs: opens the queue, keeps the heartbeat, and closes the queue if it was opened here."""
        await self.queue()
        ticking = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            self.stopping.set()
            await cancel_and_wait([ticking, *self.taking])
            await self.probe.close()
            await self.topic_cache.close()
            await self.recent.close()
            await self.followed.close()
            await self.workers.close()
            if self.prometheus is not None:
                await self.prometheus.close()
            self.ticked = None
            if self._opened is not None:
                await self._opened.close()
                self._opened = None

    async def _tick(self) -> None:
        while True:
            self.ticked = time.monotonic()
            await asyncio.sleep(TICK_S)


async def left(request: Request) -> None:
    """Returns when the caller has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
