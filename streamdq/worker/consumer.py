"""Claims ready jobs for one consumer of one group: one script call when busy, one blocked read when idle.

On a Cluster each shard has its own failures: a slow call goes on while others are sent, and a shard whose call failed
is left alone for a moment. Elsewhere all shards share one server, and a failure is raised.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from math import ceil
from typing import Any, TypeVar

from ..config import MAX_CLAIM
from ..errors import GroupMissing, ServerError
from ..keys import ShardKeys
from ..link.session import arun
from ..operations.attempts import measured
from ..operations.attempts.claimed import ClaimedJob, held_in
from ..process.loop import Failures, cancel_and_wait
from ..store import blocking
from ..store.blocking import Entries
from ..store.replies import Claimed
from ..store.topics import shard_state
from ..times.clock import RedisTime
from .member import Member
from .quiet_shards import TOGETHER, BlockedReads, ClusterLooks
from .running_job import RunningJob
from .topic_scheduler import Limit, TopicScheduler

T = TypeVar("T")
BLOCK_S = 15.0  # for so long, if there are few processes, Redis may give jobs to one that was stopped
_EACH_BLOCK_S = 2.0
_SWEEP_S = 0.01  # how often a busy consumer looks at its quiet topics
_PATIENCE_S, _SHORT_PATIENCE_S = 0.05, 0.005  # how long to wait for a claim; the short one while another is late
_FAILING_S = 0.2
_LEAVE_LIMIT = 100
_REPAIR_S = 0.05  # between repairs, in case another client keeps breaking things
_PAUSED_S = 1.0  # how often it looks at paused topics


_NONE = Limit(0, 0)
Limits = Mapping[str, Limit]


class Consumer:
    """Claims a worker's jobs. Only one task at a time may call ``next`` or ``hand_back``."""

    def __init__(
        self,
        member: Member,
        failing: Collection[ShardKeys] = (),
        scheduler: TopicScheduler | None = None,
        apart_s: Callable[[float, float], float] = max,
    ) -> None:
        """``failing``: shards to which outcomes can't be sent now; no more jobs are claimed from them. ``scheduler``:
        which topic is next. ``apart_s``: see Election.apart_s.
        """
        self.group = member.group
        self.name = member.consumer
        self.time = RedisTime()
        self._link = member.link
        self._session = member.session
        self._scripts = member.scripts
        self._topics = member.topics
        self._served: set[str] = set()
        self._shards: list[ShardKeys] = []
        self._seen: list[ShardKeys] = []  # where Redis may know this consumer: also shards that it serves no more
        self._telling: set[asyncio.Task[None]] = set()  # calls under way that make it known
        self._has_left = False
        self._active: list[ShardKeys] = []  # probably have ready jobs; claimed from in turn
        self._resting: dict[ShardKeys, float] = {}  # paused, or failed: until when
        self._readers: dict[asyncio.Task[dict[ShardKeys, Entries]], tuple[ShardKeys, ...]] = {}
        self._late: dict[asyncio.Task[list[ClaimedJob]], tuple[ShardKeys, Entries]] = {}
        self._found: dict[ShardKeys, Entries] = {}
        self._contended: set[ShardKeys] = set()
        self._failing = failing
        self._scheduler = scheduler or TopicScheduler()
        self._apart_s = apart_s
        self._failures = Failures("claim", member.namespace)
        self._swept = 0.0
        self._waiting = False
        self._changed = asyncio.Event()  # the served topics or shards have changed
        self._quiet = ClusterLooks(member, self._activate) if self._link.is_cluster else BlockedReads(member)

    def now_ms(self) -> int:
        """Redis's time, or the injected one."""
        clock = self._session.clock
        return int(clock.argument()) if clock.manual else int(self.time.now_ms())

    @property
    def contended(self) -> bool:
        """Whether jobs wait that must not be claimed ahead, or a job that is claimed ahead may start before a more
        important one: then claim no more jobs than start at once.
        """
        return bool(self._contended) or self._scheduler.strict

    @property
    def reading(self) -> bool:
        """Whether a read or a claim under way may still return jobs."""
        return bool(self._readers or self._late)

    @property
    def waits(self) -> bool:
        """Whether it waits for jobs to become ready, and no claim is under way."""
        return self._waiting and not self._late

    def serve(self, topics: Sequence[str]) -> bool:
        """Sets the topics to claim from; they and the group must exist (Topics.ensure). Returns whether topics or
        shards have changed; if so, a waiting ``next`` returns, as its limits are out of date.
        """
        shards = [shard for topic in sorted(topics) for shard in self._topics.shards(topic)]
        if set(topics) == self._served and shards == self._shards:
            return False
        settings_of = self._topics.settings_of
        steps = {name: len(settings_of(name).retry_of(self.group).steps_ms) for name in sorted(topics)}
        measured.expect(self._session.keys.namespace, steps, self.group)
        self._served, self._shards, self._active = set(topics), shards, list(shards)
        self._seen = [shard for shard in dict.fromkeys((*self._seen, *shards)) if shard.topic in self._topics.known]
        self._contended.clear()
        for shard in self._found.keys() - set(shards):
            del self._found[shard]
        self._quiet.serve(shards)
        self._changed.set()
        return True

    def look_again(self) -> None:
        """``next`` returns soon if it waits: its limits are out of date."""
        self._changed.set()

    async def join(self) -> None:
        """Makes this consumer known to its groups: before Redis 7.2 a blocked read does not do that."""
        await self._tell(arun(self._link, blocking.join(self._session, self.group, self.name, self._shards)))

    async def next(self, room: Callable[[], Limits], wait_s: float | None = None) -> list[ClaimedJob]:
        """Waits for ready jobs and claims them: jobs of one shard, at most its topic's limit. Returns none after about
        ``wait_s``, or when a blocked read ends, or when there is no room. Claims nothing from topics whose limit is
        missing or 0.

        ``room`` is called again before each round, because slots are freed and taken while this waits.
        """
        longest_s = self._apart_s(BLOCK_S, _EACH_BLOCK_S * ceil(len(self._shards) / TOGETHER))
        give_up = time.monotonic() + (longest_s if wait_s is None else wait_s)
        while limits := room():
            try:
                held = await self._claim_some(limits)
                if held or self._changed.is_set() or time.monotonic() >= give_up:
                    self._changed.clear()
                    return held
                if not any(limits.get(shard.topic, _NONE).most > 0 for shard in self._active):
                    await self._wait(limits, give_up - time.monotonic())
            except GroupMissing:
                await self._mend(self._served)
                self._active = list(self._shards)
        return []

    async def hand_back(self) -> list[ClaimedJob]:
        """For the time without room: hands back at once the entries that reads under way return. Returns only when a
        late claim has claimed jobs.
        """
        while True:
            try:
                self._harvest()
                while found := [shard for shard in self._found if shard not in self._resting]:
                    await self._try(found[0], _NONE)
                if held := self._late_ones():
                    return held
            except GroupMissing:
                await self._mend(self._served)
            if not self.reading:
                await asyncio.Event().wait()
            await asyncio.wait((*self._readers, *self._late), return_when=asyncio.FIRST_COMPLETED)

    # -- claiming

    async def _claim_some(self, limits: Limits) -> list[ClaimedJob]:
        self._wake_up()
        self._harvest()
        if held := self._late_ones():
            return held
        if self._active and (self._scheduler.strict or time.monotonic() - self._swept > _SWEEP_S):
            await self._sweep(limits)
        found = [shard for shard in self._found if shard not in self._resting]
        self._scheduler.compete({shard.topic for shard in (*found, *self._active)})
        for shard in self._scheduler.order(found):
            if self._scheduler.is_behind(shard.topic):
                await self._try(shard, _NONE)  # other workers may have room for it
            elif held := await self._try(shard, self._limit(shard, limits, len(self._found.get(shard, ())) // 3)):
                return held
        return await self._claim_active(limits)

    def _limit(self, shard: ShardKeys, limits: Limits, read: int = 0) -> Limit:
        """``read``: so many it has read already; they are not handed back for the sake of another topic's share."""
        limit = limits.get(shard.topic, _NONE)
        if limit.most <= 0:
            return limit
        most = min(limit.most, max(read, self._scheduler.share(shard.topic, limit.most)))
        return Limit(most, min(most, limit.at_once))

    async def _claim_active(self, limits: Limits) -> list[ClaimedJob]:
        """Claims from the first active shard that has a job."""
        for shard in self._scheduler.order(self._active):
            if shard not in self._active:  # another call has found out meanwhile that it rests
                continue
            self._active.remove(shard)
            limit = self._limit(shard, limits)
            if shard in self._failing:
                self._rest(shard, time.monotonic() + _FAILING_S)
            elif limit.most <= 0:
                self._active.append(shard)
            elif held := await self._try(shard, limit):
                return held
        return []

    def _wake_up(self) -> None:
        now = time.monotonic()
        for shard in [shard for shard, until in self._resting.items() if until <= now]:
            del self._resting[shard]
            self._activate(shard)

    def _activate(self, shard: ShardKeys) -> None:
        if shard not in self._active and shard not in self._resting and shard in self._shards:
            self._active.append(shard)

    async def _try(self, shard: ShardKeys, limit: Limit) -> list[ClaimedJob]:
        """Claims from one shard. On Cluster, a claim that takes long goes on in the background (``_late``). So does one
        that only hands entries back, as ``hand_back`` is cancelled when there is room: if Redis ran it only later, it
        would take back what the next claim has claimed of the same entries.
        """
        read = self._found.pop(shard, [])
        if not self._link.is_cluster and limit.most > 0:
            try:
                return await self._claim(shard, limit, read)
            except GroupMissing:  # these entries are gone with the group
                raise
            except BaseException:
                self._keep({shard: read} if read else {})
                raise
        task = asyncio.create_task(self._claim_or_repair(shard, limit, read))
        self._late[task] = shard, read
        await asyncio.wait({task}, timeout=_SHORT_PATIENCE_S if len(self._late) > 1 else _PATIENCE_S)
        if task.done():
            return self._outcome(task)
        self._rest(shard, float("inf"))
        return []

    async def _claim_or_repair(self, shard: ShardKeys, limit: Limit, read: Entries) -> list[ClaimedJob]:
        try:
            return await self._claim(shard, limit, read)
        except GroupMissing:
            await self._mend([shard.topic])
            self._activate(shard)
            return []

    async def _mend(self, topics: Collection[str]) -> None:
        """Makes groups that Redis has lost again. Serves no more what has no such group now, or was deleted: a handler
        for every topic brings no topic back.
        """
        gone = set()
        for topic in sorted(topics):
            settings = await arun(self._link, self._topics.mend(topic))
            if settings is None or self.group not in settings.groups:
                gone.add(topic)
        self.serve(sorted(self._served - gone))
        await self.join()
        await asyncio.sleep(_REPAIR_S)

    def _late_ones(self) -> list[ClaimedJob]:
        for task in [task for task in self._late if task.done()]:
            if held := self._outcome(task):
                return held
        return []

    def _outcome(self, task: asyncio.Task[list[ClaimedJob]]) -> list[ClaimedJob]:
        """The result of a claim in the background that has ended."""
        shard, read = self._late.pop(task)
        if self._resting.get(shard) == float("inf"):
            del self._resting[shard]
            self._activate(shard)
        error = task.exception()
        if error is None:
            self._failures.worked(shard.prefix)
            return task.result()
        self._keep({shard: read} if read else {})
        self._failed(shard, error)
        return []

    def _failed(self, shard: ShardKeys, error: BaseException) -> None:
        if not self._link.is_cluster or not isinstance(error, ServerError):
            raise error
        if isinstance(error, GroupMissing):
            self._activate(shard)  # its next claim repairs the group
        else:
            self._rest(shard, time.monotonic() + self._failures.pause_after(shard.prefix, error))

    def _rest(self, shard: ShardKeys, until: float) -> None:
        self._resting[shard] = until
        self._contended.discard(shard)
        if shard in self._active:
            self._active.remove(shard)

    async def _claim(self, shard: ShardKeys, limit: Limit, read: Entries) -> list[ClaimedJob]:
        count = min(limit.most, MAX_CLAIM)
        settings = self._topics.settings_of(shard.topic)
        ttr_ms, ranked = settings.ttr_of(self.group), settings.prioritized
        asked = time.monotonic()
        claimed: Claimed = await arun(
            self._link, self._scripts.claim(shard, self.group, self.name, count, ttr_ms, read, limit.at_once, ranked)
        )
        arrived = time.monotonic()
        self.time.observe(claimed.now_ms, arrived)
        if claimed.unlooked:
            self._keep({shard: list(read[-3 * claimed.unlooked :])})
        if claimed.paused:
            self._rest(shard, arrived + _PAUSED_S)
        elif count > 0 and (claimed.unread > 0 or len(claimed.rows) >= count):
            self._activate(shard)
        if claimed.rows:
            self._scheduler.took(shard.topic, len(claimed.rows))
        self._quiet.claimed(shard, bool(claimed.rows))
        held = held_in(shard, self.group, claimed, asked, self._session.bodies, RunningJob)
        if count > 0:
            self._note_contention(shard, claimed, held, min(count, limit.at_once))
        return held

    def _note_contention(self, shard: ShardKeys, claimed: Claimed, held: list[ClaimedJob], at_once: int) -> None:
        """Notes whether the shard has more jobs that were lost with a consumer than may start at once."""
        again = sum(1 for one in held if one.entry)
        if claimed.refused or (shard in self._contended and again >= at_once > 0):
            self._contended.add(shard)
        else:
            self._contended.discard(shard)

    # -- reading

    def _quiet_shards(self, limits: Limits) -> list[ShardKeys]:
        """Shards without known jobs and without a read under way, whose topics have room."""
        busy = {
            *self._active,
            *self._resting,
            *self._found,
            *(shard for read in self._readers.values() for shard in read),
        }
        return [shard for shard in self._shards if shard not in busy and limits.get(shard.topic, _NONE).most > 0]

    async def _sweep(self, limits: Limits) -> None:
        """While some topics keep this consumer busy, looks whether jobs have become ready in the others. It only looks,
        because jobs that it took might have to be handed back.
        """
        self._swept = time.monotonic()
        quiet = self._quiet_shards(limits)
        if self._link.is_cluster:
            self._read(quiet, limits, BLOCK_S)
        elif quiet:
            ready = await arun(self._link, shard_state.ready_counts(self._session, quiet, self.group))
            for shard, count in zip(quiet, ready, strict=True):
                if count > 0:
                    self._activate(shard)

    def _read(self, shards: list[ShardKeys], limits: Limits, block_s: float) -> None:
        for read, together in self._quiet.reads(shards, limits, block_s):
            self._readers[asyncio.create_task(read)] = together

    async def _wait(self, limits: Limits, wait_s: float) -> None:
        """Blocks until a read returns, a shard has rested, or ``wait_s`` has passed."""
        soonest = min(self._resting.values(), default=float("inf")) - time.monotonic()
        timeout_s = max(0.001, min(wait_s, soonest))
        for event in self._quiet.events:
            event.clear()
        self._waiting = True
        self._read(self._quiet_shards(limits), limits, timeout_s)
        waits = [asyncio.create_task(event.wait()) for event in (self._changed, *self._quiet.events)]
        try:
            awaited = (*waits, *self._readers, *self._late)
            await asyncio.wait(awaited, timeout=timeout_s + self._quiet.late_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting = False
            for task in waits:
                task.cancel()

    def _harvest(self) -> None:
        for task in [task for task in self._readers if task.done()]:
            shards = self._readers.pop(task)
            if (error := task.exception()) is None:
                self._keep(task.result())
                continue
            for shard in shards:
                self._failed(shard, error)

    def _keep(self, found: dict[ShardKeys, Entries]) -> None:
        """Keeps entries that were read until they are claimed. Two reads may return entries of one shard before
        that. A look finds shards without reading their entries.
        """
        for shard, entries in found.items():
            if entries:
                self._found.setdefault(shard, []).extend(entries)
            else:
                self._activate(shard)

    # -- leaving

    async def _tell(self, call: Coroutine[Any, Any, None]) -> None:
        """Makes a call that would make this consumer known again after it has left: then it does not make it."""
        if self._has_left:
            call.close()
            return
        task = asyncio.create_task(call)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)
        await task

    async def leave(self) -> None:
        """Hands back entries that were read but not claimed, and removes this consumer from the group, in each shard
        that it has served. Nothing makes it known there again: a call under way that may do so is waited for.
        """
        self._has_left = True
        under_way: list[asyncio.Task[Any]] = [*self._readers, *self._late]
        self._readers.clear()
        self._late.clear()
        await cancel_and_wait(under_way)
        telling = list(self._telling)
        await self._everywhere(self._left, self._seen)
        if telling:  # the jobs are back by now, however long these take
            await asyncio.wait(telling)
            await self._everywhere(self._left, self._seen)

    async def _left(self, shard: ShardKeys) -> None:
        while not await arun(self._link, self._scripts.remove_consumer(shard, self.group, self.name, _LEAVE_LIMIT)):
            pass

    async def _everywhere(self, call: Callable[[T], Coroutine[Any, Any, None]], parts: Sequence[T]) -> None:
        """Makes a call for each part, on Cluster at the same time; then raises the first failure."""
        if not self._link.is_cluster:
            for part in parts:
                await call(part)
            return
        for error in await asyncio.gather(*map(call, parts), return_exceptions=True):
            if error is not None:
                raise error
