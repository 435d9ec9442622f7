"""Takes over the claims of workers that died, whatever their TTR. The active mover runs it.

A worker that holds claims sends a heartbeat every second. It is dead when the mover has seen the same last heartbeat
for two seconds, and that heartbeat is older than ``STREAMDQ_WORKER_TIMEOUT_S`` by Redis's clock. Redis's clock alone
proves nothing, as it may have jumped; nor does what the mover saw, if it or Redis stood still meanwhile: then it begins
again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from ...config import HEARTBEAT_S
from ...keys import ShardKeys
from ...link.connection import AsyncLink
from ...link.session import arun
from ...metrics import recorded
from ...process.logs import log
from ...process.loop import Failures
from ...store.redis_store import RedisStore

_SEEN_S = 2 * HEARTBEAT_S  # a live worker's heartbeat changes within this time, even if the next one is somewhat late
_TROUBLE_S = 1.0  # and so much later after trouble with Redis: a worker may have to connect again first
_PROMPT_S = 0.5  # a slower answer is trouble
_GAP_S = 2.0  # between looks; a longer one is trouble: this process stood still
_TICK_S = 0.5
_AGAIN_S = 0.1  # while a dead worker has claims that are not old enough, or may have read what was taken from it
_SHORTEST_S = 0.01
_CALL_S = 1.0
_NAMES = 500  # in one call
_LIMIT = 100
_CALLS = 200  # at most, for one dead worker in one look at a group of a shard

Holders = Mapping[str, Sequence[str]]
"""For each group of a shard, the consumers with pending entries."""


class Silence:
    """Decides which workers are dead, from their heartbeats alone. Times in ms are Redis's, others the monotonic
    clock's.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._seen: dict[str, tuple[int, float]] = {}  # the last heartbeat of each, and since when it is known
        self._looked_at: float | None = None
        self._earliest = 0.0  # nothing counts as seen before
        self.next = 0.0  # when the next worker is dead, if none sends a heartbeat

    def begin(self) -> None:
        """Nobody looked for a while, as there was nobody to look for."""
        self._seen, self._looked_at = {}, None

    def trouble(self, now: float) -> None:
        """A look has failed, or was slow."""
        self.begin()
        self._earliest = now + _TROUBLE_S

    def dead(self, asked: float, arrived: float, now_ms: int, heartbeats: Mapping[str, int]) -> set[str]:
        """Those that are dead. Their ``heartbeats`` were read in a call from ``asked`` to ``arrived``."""
        if arrived - asked > _PROMPT_S or (self._looked_at is not None and asked - self._looked_at > _GAP_S):
            self.trouble(arrived)
        self._looked_at = arrived
        before, self._seen, dies_at = self._seen, {}, {}
        for name, heartbeat in heartbeats.items():
            known = before.get(name)
            since = known[1] if known and known[0] == heartbeat else max(arrived, self._earliest)
            self._seen[name] = heartbeat, since
            # A heartbeat from the future, as the clock was set back since, tells nothing: then only what was seen
            # counts.
            silent_from = min(since, arrived - (now_ms - heartbeat) / 1000)
            dies_at[name] = max(since + _SEEN_S, silent_from + self._timeout_s)
        dead = {name for name, at in dies_at.items() if at <= asked}
        self.next = min((at for name, at in dies_at.items() if name not in dead), default=float("inf"))
        return dead


class DeadWorkers:
    """Looks at the heartbeats of those workers that have pending entries (``hold``), twice a second; while there are
    none, it does nothing.

    Consumers without any heartbeat are left to the TTR: they belong to clients that take jobs themselves.
    """

    def __init__(self, link: AsyncLink, store: RedisStore) -> None:
        session = store.session
        self._link, self._scripts, self._topics = link, store.scripts, store.topics
        self._timeout_s = session.settings.worker_timeout_s
        self._on = self._timeout_s > 0 and not session.clock.manual
        self._silence = Silence(self._timeout_s)
        self._holders: dict[ShardKeys, Holders] = {}
        self._some = asyncio.Event()
        self._looking = False
        self._failures = Failures("heartbeats", session.keys.namespace)

    def hold(self, shard: ShardKeys, holders: Holders) -> None:
        """These have pending entries of the shard now; those noted before are forgotten."""
        if self._on and any(holders.values()):
            self._holders[shard] = holders
            self._some.set()
        else:
            self._holders.pop(shard, None)

    async def run(self) -> None:
        """Never returns."""
        self._holders.clear()
        while True:
            if not self._holders:
                self._silence.begin()
                self._some.clear()
                await self._some.wait()
            await asyncio.sleep(await self._round())

    async def _round(self) -> float:
        """One look, and what follows from it. Returns after how many seconds the next should be."""
        try:
            dead = await self._look()
        except Exception as error:
            self._silence.trouble(time.monotonic())
            return min(_TICK_S, self._failures.pause_after("heartbeats", error))
        self._failures.worked("heartbeats")
        kept = await asyncio.gather(
            *(self._try(shard, holders, dead) for shard, holders in list(self._holders.items()) if dead)
        )
        if any(kept):
            return _AGAIN_S
        return max(_SHORTEST_S, min(_TICK_S, self._silence.next - time.monotonic()))

    async def _look(self) -> set[str]:
        """The workers that are dead."""
        if self._looking:  # the last look was broken off, with the mover
            self._silence.trouble(time.monotonic())
        self._looking = True
        names = sorted({name for holders in self._holders.values() for group in holders.values() for name in group})
        heartbeats: dict[str, int] = {}
        now_ms, asked = 0, time.monotonic()
        for start in range(0, len(names), _NAMES):
            part = names[start : start + _NAMES]
            now_ms, found = await arun(self._link, self._scripts.read_heartbeats(part, _CALL_S))
            heartbeats |= {
                name: heartbeat for name, heartbeat in zip(part, found, strict=True) if heartbeat is not None
            }
        dead = self._silence.dead(asked, time.monotonic(), now_ms, heartbeats)
        self._looking = False
        return dead

    async def _try(self, shard: ShardKeys, holders: Holders, dead: set[str]) -> bool:
        """Returns whether dead workers keep entries of the shard for now, or may have got others."""
        kept = False
        try:
            for group, names in holders.items():
                for name in dead.intersection(names):
                    kept |= await self._take_over(shard, group, name)
        except Exception as error:
            self._failures.pause_after(shard, error)  # the next look tries again
        else:
            self._failures.worked(shard)
        return kept

    async def _take_over(self, shard: ShardKeys, group: str, name: str) -> bool:
        topic, silent_ms = self._topics.settings_of(shard.topic), int(self._timeout_s * 1000)
        taken = 0
        for _ in range(_CALLS):
            call = self._scripts.take_over(shard, group, topic, name, silent_ms, _LIMIT, _CALL_S)
            reply = await arun(self._link, call)
            taken += reply.taken
            recorded.reclaimed(shard.namespace, shard.topic, group, silent=reply.taken)
            if reply.lost:
                log.error("jobs lost: Redis no longer has them", topic=shard.topic, group=group, jobs=reply.lost)
            if not reply.more:
                break
        if taken:
            log.warning("claims taken over, worker silent", topic=shard.topic, group=group, worker=name, jobs=taken)
        return bool(taken or reply.more or reply.kept)
