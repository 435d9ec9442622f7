"""The mover: moves jobs from the buckets to the ready streams the moment they are due.

Every worker process has one; one of them is elected to work for the whole namespace (alive/election.py). It runs a
NodeMover for each Redis node (node_mover.py) and listens to the shards' ``wake`` streams for jobs with an earlier due
time (wakeups.py). The election only saves work; correctness does not depend on it: each script is atomic, so two movers
would only find less to do.

On an idle Redis, a BLOCK timeout ends up to one server tick late (80 ms measured). So no blocking read times a due job;
the mover sleeps on its own timer until the next due time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from itertools import count
from typing import Any

from ..errors import NewerFormat, ServerUnavailable
from ..keys import ShardKeys
from ..link.connection import AsyncLink, LinkError
from ..link.link_thread import LinkThread
from ..link.opening import may_wait
from ..link.session import Session, arun
from ..process.logs import log
from ..process.loop import Failures, cancel_and_wait, supervise
from ..store.redis_store import RedisStore
from .alive.dead_workers import DeadWorkers, Holders
from .alive.election import Election
from .cleanup import Cleanup
from .endings import Endings
from .firing import Firing
from .flows import Flows
from .node_mover import NodeMover
from .rate import RatedTopic
from .resharding import Resharding
from .wakeups import Listener

_CLEANUP_S = 60.0
_SHARDS_S = 10.0
_REFRESH_EVERY = 3
_SLOTS_S, _EACH_SLOTS_S = 60.0, 1.0


class Mover:
    """One process's mover. ``run`` is a supervised loop's body."""

    def __init__(
        self,
        link: AsyncLink,
        store: RedisStore,
        name: str,
        stopping: asyncio.Event,
    ) -> None:
        self._link, self._store, self._session = link, store, store.session
        self._scripts, self._topics = store.scripts, store.topics
        self._name = name
        self._stopping = stopping
        self.election = Election(link, store, name, stopping)
        self._listener = self._new_listener()
        self._node_movers: dict[str, NodeMover] = {}
        self._moving: dict[str, asyncio.Task[None]] = {}  # by the same nodes
        self._rated: dict[str, tuple[RatedTopic, asyncio.Task[None]]] = {}
        self._node_of: dict[ShardKeys, str] = {}
        self._shard_by_wake: dict[str, ShardKeys] = {}  # by the name of the stream
        self._running: set[asyncio.Task[None]] = set()
        self._broken: asyncio.Future[None]  # gets the error of a task in _running that failed
        self._failures = Failures("cleanup", store.session.keys.namespace)
        self._cleanup = Cleanup(link, store)
        self._dead_workers = DeadWorkers(link, store)
        flows = Flows(link, store, self._look_at)
        endings = Endings(link, store, self._look_at, flows.look_at)
        self._shard_loops = [Firing(link, store, self._look_at), endings, flows]
        self._resharding = Resharding(link, store)
        self.leading = False

    async def run(self) -> None:
        """Waits until it is elected, then works until the lease is lost or the process stops."""
        loop = asyncio.get_running_loop()
        forget = self._session.clock.on_change(partial(loop.call_soon_threadsafe, self._look_everywhere))
        following: list[asyncio.Task[None]] = []
        if self._link.is_cluster:
            slots = supervise("slots", self._follow_slots, self._stopping, self._session.keys.namespace)
            following.append(asyncio.create_task(slots))
        try:
            while not self._stopping.is_set():
                await self._check()
                if await self.election.win():
                    try:
                        await self._lead()
                    except NewerFormat:  # so that a mover that knows the format can take over at once
                        await self.election.give_up()
                        raise
        finally:
            forget()
            await cancel_and_wait(following)

    async def _follow_slots(self) -> None:
        """On Cluster, learns now and then which node has which slot: where a shard without any wakeup has moved, nobody
        tells of its first wakeup.
        """
        while True:
            await asyncio.sleep(self.election.apart_s(_SLOTS_S, _EACH_SLOTS_S))
            with contextlib.suppress(LinkError):  # the table that it has may still be correct
                await self._link.learn_slots(unless_within_s=_SLOTS_S / 2)

    async def _check(self) -> None:
        """A process that may receive no wakeups, or may not run scripts, must not have the lease."""
        with contextlib.suppress(ServerUnavailable):  # see Election.win
            await may_wait(self._link, self._session)
            await arun(self._link, self._scripts.check_rights([self._session.keys.mover]))

    async def _lead(self) -> None:
        try:
            await arun(self._link, self._topics.refresh())
        except ServerUnavailable:  # the registry is on the same node as the lease: see Election.win
            if not self._link.is_cluster or not self._topics.known:
                raise
        log.debug("mover elected", mover=self._name)
        self._node_movers, self._moving, self._rated, self._running = {}, {}, {}, set()
        self._listener = self._new_listener()
        self._broken = asyncio.get_running_loop().create_future()
        self._look_for_shards()
        parts = (
            self.election.keep,
            self._listener.run,
            self._clean_up,
            self._refresh,
            self._dead_workers.run,
            self._resharding.run,
            *(loop.run for loop in self._shard_loops),
        )
        tasks = [asyncio.create_task(part()) for part in parts]
        stop = asyncio.create_task(self._stopping.wait())
        self.leading = True
        try:
            ends: list[asyncio.Future[Any]] = [*tasks, stop, self._broken]
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            self.leading = False
            await cancel_and_wait([*tasks, stop, self._broken, *self._running])
        if self._stopping.is_set():
            await self.election.give_up()

    # -- shards and their nodes

    def _known_shards(self) -> list[ShardKeys]:
        return [shard for topic in self._topics.known for shard in self._topics.shards(topic)]

    def _look_at(self, shard: ShardKeys) -> None:
        if shard in self._node_of:
            self._node_movers[self._node_of[shard]].look_at(shard)

    def _look_everywhere(self) -> None:
        for loop in self._shard_loops:
            loop.look_everywhere()
        for node_mover in self._node_movers.values():
            node_mover.look_everywhere()

    def _look_for_shards(self) -> None:
        """Gives each shard to its node's mover, which looks at new ones and drops those that left its node."""
        nodes, before = self._shards_by_node(), self._node_of
        self._node_of = {shard: node for node, shards in nodes.items() for shard in shards}
        self._shard_by_wake = {shard.wake: shard for shard in self._node_of}
        for node, shards in nodes.items():
            node_mover = self._node_mover(node)
            for shard in shards:
                if shard not in node_mover:
                    node_mover.look_at(shard)
        if nodes:  # those that have left a Cluster may never come back
            self._end_parts(self._node_movers.keys() - nodes.keys())
        for node, node_mover in self._node_movers.items():
            node_mover.keep(nodes.get(node, set()))
        self._drop(before.keys() - self._node_of.keys())
        self._listener.look_again()
        for loop in self._shard_loops:
            loop.look_for_shards()

    def _end_parts(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            del self._node_movers[node]
            self._moving.pop(node).cancel()

    def _drop(self, shards: Iterable[ShardKeys]) -> None:
        for shard in shards:
            self._dead_workers.hold(shard, {})
        for topic in self._rated.keys() - {shard.topic for shard in self._node_of}:
            self._rated.pop(topic)[1].cancel()

    def _shards_by_node(self) -> dict[str, set[ShardKeys]]:
        nodes: dict[str, set[ShardKeys]] = {}
        for shard in self._known_shards():
            # While the Cluster's topology is not known, a shard stays where it was.
            node = self._link.node_of(shard.bucket) or self._node_of.get(shard, "")
            nodes.setdefault(node, set()).add(shard)
        return nodes

    def _node_mover(self, node: str) -> NodeMover:
        if node not in self._node_movers:
            node_mover = NodeMover(self._link, self._store, self._missed, self._want, self._hold)
            self._node_movers[node] = node_mover
            self._moving[node] = self._supervise("mover", node_mover.run)
        return self._node_movers[node]

    def _hold(self, shard: ShardKeys, holders: Holders) -> None:
        if shard in self._node_of:
            self._dead_workers.hold(shard, holders)

    def _supervise(self, name: str, body: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Runs the body beside the mover's own loops; if it ends with an error, so does the mover."""
        task = asyncio.create_task(supervise(name, body, self._stopping, self._session.keys.namespace))
        task.add_done_callback(self._ended)
        self._running.add(task)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._broken.done():
            self._broken.set_exception(error)

    # -- topics with a rate

    def _want(self, shard: ShardKeys) -> None:
        if shard not in self._node_of:
            return
        if shard.topic not in self._rated:
            rated = RatedTopic(self._link, self._store, shard.topic, self._move_permitted, self._later)
            self._rated[shard.topic] = rated, self._supervise("rate", rated.run)
        self._rated[shard.topic][0].want(shard)

    async def _move_permitted(self, shard: ShardKeys, count: int) -> None:
        if shard in self._node_of:
            await self._node_movers[self._node_of[shard]].move_permitted(shard, count)

    def _later(self, shard: ShardKeys, when: float) -> None:
        if shard in self._node_of:
            self._node_movers[self._node_of[shard]].look_at(shard, when)

    # -- wakeups

    def _new_listener(self) -> Listener:
        return Listener(self._link, self._session, self._streams, self._on_wakeup, self._on_reconnect)

    def _streams(self) -> list[str]:
        return [self._session.keys.wake, *(shard.wake for shard in self._node_of)]

    async def _on_wakeup(self, woken: Collection[str]) -> None:
        if self._session.keys.wake in woken:
            await arun(self._link, self._topics.refresh())
            self._look_for_shards()
            for node_mover in self._node_movers.values():
                node_mover.check_versions()
        for name in woken:
            shard = self._shard_by_wake.get(name)
            if shard in self._node_of:
                self._node_movers[self._node_of[shard]].on_wakeup(shard)
                for loop in self._shard_loops:
                    loop.look_at(shard)

    def _on_reconnect(self) -> None:
        """No wakeup was read for a while, and Redis may have lost its last writes."""
        for node_mover in self._node_movers.values():
            node_mover.check_versions()

    def _missed(self, shard: ShardKeys) -> None:
        log.debug("wakeup missed", topic=shard.topic, shard=shard.shard)
        self._listener.mistrust(shard.wake)

    # -- housekeeping

    async def _clean_up(self) -> None:
        for beat in count():
            await self._end_changes()
            await asyncio.sleep(_CLEANUP_S)
            if shards := list(self._node_of):
                shard = shards[beat % len(shards)]
                try:
                    await self._cleanup.remove_idle(shard)
                    await self._cleanup.trim(shard)
                    await self._cleanup.trim_dead(shard)
                except Exception as error:
                    await asyncio.sleep(self._failures.pause_after(shard, error))
                else:
                    self._failures.worked(shard)

    async def _end_changes(self) -> None:
        """Completes changes of topology whose process died before they were complete."""
        try:
            await arun(self._link, self._topics.end_changes())
        except Exception as error:
            await asyncio.sleep(self._failures.pause_after("changes", error))
        else:
            self._failures.worked("changes")

    async def _refresh(self) -> None:
        """Reads the registry now and then, as the namespace's wakeup may be lost; announces what has changed
        without.
        """
        for beat in count(1):
            await asyncio.sleep(_SHARDS_S)
            try:
                if beat % _REFRESH_EVERY == 0:
                    await arun(self._link, self._topics.refresh())
                    await arun(self._link, self._topics.notify_missed())
            except Exception as error:
                await asyncio.sleep(self._failures.pause_after("registry", error))
            else:
                self._failures.worked("registry")
            self._look_for_shards()


class MoverThread(LinkThread):
    """A mover for a process without a worker. ``stop`` gives up its lease."""

    NAME = "streamdq-mover"

    def _begin(self, link: AsyncLink, session: Session) -> Callable[[], Awaitable[None]]:
        mover = Mover(link, RedisStore(session), session.consumer, self._stopping)
        return partial(self._move, mover, session.keys.namespace)

    async def _move(self, mover: Mover, namespace: str) -> None:
        try:
            await supervise("mover", mover.run, self._stopping, namespace)
        except NewerFormat as error:  # calls of this process raise it, too
            log.error("mover ended", error=str(error))

    @property
    def has_ended(self) -> bool:
        """Whether it has given up, as the data has a newer format."""
        return not self._thread.is_alive()
