"""The mover's work for the shards of one Redis node: moves due jobs, takes over claims, and checks for missed wakeups.
On a Cluster each node has its own NodeMover, so a node that does not answer does not hold up the others. Neither does a
failing shard.

A wakeup can be lost only if its entry is deleted before it was read, or if Redis no longer gives out higher ids. So
when a wakeup has come, and once more after the last wakeup, the NodeMover goes through the heads of its buckets, up to
64 in one round trip, about one a second; in every tenth of these passes, after trouble, and after the registry has
changed, also through their counters and versions. While no wakeup comes, it looks at a few shards every now and then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import compress, count

from ..config import MAX_BATCH, TopicSettings
from ..keys import ShardKeys
from ..link.connection import AsyncLink
from ..link.session import arun
from ..metrics import recorded
from ..process.cancellations import uncancelled
from ..process.loop import Failures, wait
from ..store.redis_store import RedisStore
from ..store.replies import RATED, Moved
from ..store.topics import shard_state
from ..store.topics.topics import changing
from ..times.clock import RedisTime
from .alive.dead_workers import Holders
from .rate import is_rated
from .reclaim import Reclaimer
from .shard_timers import NEVER, ShardTimers

_TRIES = 5
_FIRST_BATCH, _GROWTH = 8, 4  # of many jobs that are due at once, the first start before the others are moved
_BEAT_S = 1.15  # after this time the blocked read that returned with a wakeup is under way again
_HEADS = 64  # per beat: a round trip of some 100 µs; with this many shards a missed job waits a second or two
_COUNTERS_EVERY = 10  # passes
_QUIET_S = 20.0  # between looks while no wakeup comes
_QUIET_SHARDS = 5  # in one such look, however many there are: two commands for each
_VERSIONS_EVERY = 5  # passes of such looks
_MISSED_S = 0.1  # a head that is earlier than expected by more than this means a missed wakeup


class NodeMover:
    """Shards are added with ``look_at``. ``missed`` is called with a shard whose wakeup did not arrive, ``rated`` with
    a shard that has jobs to move in a topic with a rate, ``hold`` with a shard and the consumers that hold jobs of it.
    """

    def __init__(
        self,
        link: AsyncLink,
        store: RedisStore,
        missed: Callable[[ShardKeys], None],
        rated: Callable[[ShardKeys], None],
        hold: Callable[[ShardKeys, Holders], None],
    ) -> None:
        self._link, self._session = link, store.session
        self._scripts, self._topics = store.scripts, store.topics
        self._missed = missed
        self._rated = rated
        self._time = RedisTime()
        self._timers = ShardTimers()
        self._batches: dict[ShardKeys, int] = {}  # the next batch of shards that have more due jobs
        self._failures = Failures("mover", store.session.keys.namespace)
        self._reclaimer = Reclaimer(link, store, hold)
        self._woken = asyncio.Event()  # since the current pass over the shards began
        self._changed = False  # the registry, since then
        self._quiet_passes, self._looked_at = 0, 0  # and how many shards the current one has looked at

    def __contains__(self, shard: ShardKeys) -> bool:
        return shard in self._timers

    def look_at(self, shard: ShardKeys, when: float = 0.0) -> None:
        self._timers.at(shard, when)

    def look_everywhere(self) -> None:
        self._timers.everywhere()
        self._reclaimer.look_now()

    def on_wakeup(self, shard: ShardKeys) -> None:
        """Something earlier arrived there."""
        self.look_at(shard)
        self._woken.set()

    def check_versions(self) -> None:
        """Begins a thorough pass over the shards: the registry has changed, and who changed it may have been killed
        before all shards knew; or Redis may have lost its last writes.
        """
        self._changed = True
        self._woken.set()

    def keep(self, shards: set[ShardKeys]) -> None:
        """Drops all other shards."""
        gone = [shard for shard in self._timers.shards if shard not in shards]
        self._timers.drop(gone)
        for shard in gone:
            self._batches.pop(shard, None)
            self._reclaimer.drop(shard)

    async def run(self) -> None:
        self.look_everywhere()
        async with asyncio.TaskGroup() as tasks:
            for loop in (self._work, self._walk, self._reclaimer.run):
                tasks.create_task(uncancelled(loop))

    # -- moving

    async def _work(self) -> None:
        """Moves each shard when its time has come."""
        while True:
            for shard in self._timers.take_due():
                if shard in self._timers:  # otherwise it was dropped while those before it were moved
                    await self._try(shard)
            await self._timers.wait()

    async def _try(self, shard: ShardKeys) -> None:
        try:
            when = await self._move(shard)
        except Exception as error:
            self._timers.failed(shard, time.monotonic() + self._failures.pause_after(shard, error))
        else:
            self._failures.worked(shard)
            self._timers.looked(shard, when)

    async def _move(self, shard: ShardKeys) -> float:
        """Moves one batch; returns when to look at the shard again, on the monotonic clock."""
        topic = self._topics.known.get(shard.topic)
        if topic is None:
            return NEVER
        if is_rated(topic):
            self._rated(shard)
            return NEVER
        limit = self._batches.pop(shard, _FIRST_BATCH)
        reply = await self._move_some(shard, limit, permitted=False)
        if reply is None:
            return NEVER
        if reply.moved == limit:
            self._batches[shard] = min(_GROWTH * limit, MAX_BATCH)
        return self._next_look(reply)

    async def move_permitted(self, shard: ShardKeys, count: int) -> None:
        """Moves at most ``count`` jobs of a topic with a rate; the caller has permits for them."""
        while count > 0:
            reply = await self._move_some(shard, count, permitted=True)
            if reply is None or reply.moved <= 0 or not 0 <= reply.next_due_ms <= reply.now_ms:
                return
            count -= reply.moved  # with priorities, a call moves fewer of many groups or large jobs

    async def _move_some(self, shard: ShardKeys, limit: int, permitted: bool) -> Moved | None:
        called = time.monotonic()
        reply = await self._call_move(shard, limit, permitted)
        if reply is None:
            return None
        arrived = time.monotonic()
        self._time.observe(reply.now_ms, arrived)
        if reply.moved > 0:
            recorded.moved(shard.namespace, shard.topic, reply.moved, arrived - called)
        if reply.open > 0 and shard in self._timers:  # otherwise it was dropped meanwhile
            self._reclaimer.watch(shard)
        return reply

    def _next_look(self, reply: Moved) -> float:
        arrived = time.monotonic()
        if reply.next_due_ms < 0:
            return NEVER
        if reply.next_due_ms <= reply.now_ms:
            return 0.0
        if self._session.clock.manual:
            return NEVER
        # Wait at least as long as the reply says, less the millisecond it is rounded to: after Redis's clock was set
        # back, the estimate alone would lead to asking again and again.
        soonest = arrived + (reply.next_due_ms - reply.now_ms - 1) / 1000
        return max(self._time.to_monotonic(reply.next_due_ms), soonest)

    async def _call_move(self, shard: ShardKeys, limit: int, permitted: bool) -> Moved | None:
        """Returns None if the topic was deleted or has got a rate."""
        groups: Sequence[str] = self._topics.settings_of(shard.topic).group_names
        for _ in range(_TRIES):
            ranked = self._topics.settings_of(shard.topic).prioritized
            reply = await arun(self._link, self._scripts.move(shard, groups, limit, permitted, ranked))
            if reply.moved >= 0:
                return reply
            if reply.moved == RATED:
                settings = await self._settings_by(shard)
                if settings is None:
                    return None
                if is_rated(settings):
                    self._rated(shard)
                    return None
            elif reply.groups:
                groups = reply.groups  # as they are just being changed
            else:  # Redis lost the shard, or the topic was deleted
                settings = await arun(self._link, self._topics.mend(shard.topic))
                if settings is None or shard not in self._topics.shards(shard.topic):
                    return None
                groups = settings.group_names
        raise changing(shard.topic)  # the caller tries this shard again later

    async def _settings_by(self, shard: ShardKeys) -> TopicSettings | None:
        """The topic's settings, where the shard has a rate. If the registry differs, the process that changed it was
        killed before it updated the shards; they are updated now. None: the topic was deleted.
        """
        known = await arun(self._link, self._topics.get(shard.topic, anew=True))
        return known if is_rated(known) else await arun(self._link, self._topics.mend(shard.topic))

    # -- missed wakeups

    async def _walk(self) -> None:
        self._woken.set()  # before the first wakeup, the listener must have begun to read
        passes = count(1)
        while True:
            if await wait(self._woken, _QUIET_S):
                await self._pass(next(passes))
            else:
                shards = self._next_few()
                await self._beat(shards, counters=True, versions=self._quiet_passes % _VERSIONS_EVERY == 0)

    async def _pass(self, number: int) -> None:
        """Looks at all shards. Each wakeup is followed by a look that begins a beat after it."""
        thorough, self._changed = self._changed or number % _COUNTERS_EVERY == 0, False
        self._woken.clear()
        shards = self._timers.shards
        for begin in range(0, max(1, len(shards)), _HEADS):
            await asyncio.sleep(_BEAT_S)
            await self._beat(shards[begin : begin + _HEADS], counters=thorough, versions=thorough)

    def _next_few(self) -> list[ShardKeys]:
        shards, begin = self._timers.shards, self._looked_at
        if begin >= len(shards):
            self._quiet_passes, begin = self._quiet_passes + 1, 0
        self._looked_at = begin + _QUIET_SHARDS
        return shards[begin : self._looked_at]

    async def _beat(self, shards: list[ShardKeys], counters: bool, versions: bool) -> None:
        if self._session.clock.manual:
            return
        try:
            await self._look_for_missed(shards, counters)
            if versions and shards:
                await self.reconcile(shards)
        except Exception as error:
            self._changed = True
            self._woken.set()
            await asyncio.sleep(self._failures.pause_after("heads", error))
        else:
            self._failures.worked("heads")

    def _is_awake(self, shard: ShardKeys) -> bool:
        topic = self._topics.known.get(shard.topic)
        return topic is not None and not topic.paused

    async def _look_for_missed(self, shards: list[ShardKeys], counters: bool) -> None:
        shards = [shard for shard in shards if self._is_awake(shard)]
        if not shards:
            return
        # The counters come with Redis's time, in case its clock was set forward, and with the number of open jobs, in
        # case nothing watches their TTR.
        groups = [self._topics.settings_of(k.topic).group_names for k in shards] if counters else None
        seen = await arun(self._link, shard_state.watch(self._session, shards, groups))
        if seen.now_ms is not None:
            self._observe(seen.now_ms, time.monotonic())
        for shard, due_ms in zip(shards, seen.due_ms, strict=True):
            if due_ms is not None:
                self._saw_head(shard, due_ms)
        for shard in compress(shards, seen.open):  # empty without counters
            if shard in self._timers:
                self._reclaimer.notice(shard)

    def _observe(self, now_ms: int, arrived: float) -> None:
        """If Redis's clock was set forward, each bucket's head is due earlier than was reckoned."""
        if self._time.to_monotonic(now_ms) - arrived > _MISSED_S:
            self.check_versions()
        self._time.observe(now_ms, arrived)

    def _saw_head(self, shard: ShardKeys, due_ms: int) -> None:
        if shard not in self._timers:  # it was dropped meanwhile
            return
        if self._timers.is_uncertain(shard):  # the look under way finds this; after a failure it waits
            return
        sooner_s = self._timers.at(shard, self._time.to_monotonic(due_ms))
        if sooner_s > _MISSED_S and not self._topics.settings_of(shard.topic).rate:
            self._missed(shard)

    async def reconcile(self, shards: list[ShardKeys]) -> None:
        """Repairs shards whose version differs from the registry's: a shard may have lost a change with the end of an
        append-only file.
        """
        found = await arun(self._link, shard_state.versions(self._session, shards))
        versions = {(shard.topic, version) for shard, version in zip(shards, found, strict=True)}
        known = {(topic, settings.version) for topic, settings in self._topics.known.items()}
        for topic in {topic for topic, _ in versions - known}:
            await arun(self._link, self._topics.mend(topic))
