"""Claims ready jobs for one consumer of one group: one script call when busy, one blocked read when idle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from . import tally
from .claims import Held, held_of
from .clock import RedisTime
from .config import MAX_CLAIM
from .connection import AsyncLink, Command
from .errors import GroupMissing, TooManyCalls
from .keys import ShardKeys
from .loop import wait
from .scripts import Claimed, Scripts
from .session import Op, Session, arun, checked
from .topics import Topics

BLOCK_S = 10.0
_BLOCK_GRACE_S = 3.0
_REFRESH_S = 10.0
_SWEEP_S = 0.01  # how often a busy consumer looks at its quiet topics
_LEAVE_LIMIT = 100
_REPAIR_S = 0.05  # between repairs, should another client go on breaking things
_PAUSED_S = 1.0  # how often it looks at paused ones
_SHOW_S = 60.0
_END = "18446744073709551615-0"

Entries = list[bytes | str]  # stream 'm' or 'g', entry, member, in turn


def read_streams(
    session: Session, group: str, consumer: str, shards: Sequence[ShardKeys], count: int, block_ms: int | None
) -> Op[dict[ShardKeys, Entries]]:
    """XREADGROUP over the shards' streams: what each has, or nothing when ``block_ms`` passed. On Cluster, one shard.

    What it returns is pending, but not claimed yet: the claim script makes it so, or drops it.
    """
    streams = {
        name: (shard, kind) for shard in shards for kind, name in (("g", shard.ready_of(group)), ("m", shard.ready))
    }
    block = () if block_ms is None else ("BLOCK", max(1, block_ms))
    args = (
        "XREADGROUP",
        "GROUP",
        group,
        consumer,
        "COUNT",
        count,
        *block,
        "STREAMS",
        *streams,
        *[">"] * len(streams),
    )
    timeout_s = None if block_ms is None else block_ms / 1000 + _BLOCK_GRACE_S
    try:
        replies = yield from session.call([Command(shards[0].ready, args)], timeout_s=timeout_s, repeatable=False)
    except TooManyCalls:
        if block_ms is None:
            raise
        return {}  # it has waited in line instead, for as long
    found: dict[ShardKeys, Entries] = {}
    for name, entries in checked(replies[0]) or []:
        shard, kind = streams[name.decode()]
        for entry, fields in entries:
            if fields is not None:
                found.setdefault(shard, []).extend((kind, entry, fields[1]))
    return found


class Consumer:
    """Where a worker gets its jobs from. ``next`` is called by one task at a time."""

    def __init__(
        self, link: AsyncLink, session: Session, scripts: Scripts, topics: Topics, group: str, name: str
    ) -> None:
        self.group = group
        self.name = name
        self.time = RedisTime()
        self._link = link
        self._session = session
        self._scripts = scripts
        self._topics = topics
        self._served: set[str] = set()
        self._shards: list[ShardKeys] = []
        self._active: list[ShardKeys] = []  # believed to have more; in turn
        self._paused: dict[ShardKeys, float] = {}
        self._readers: dict[ShardKeys, asyncio.Task[dict[ShardKeys, Entries]]] = {}
        self._found: dict[ShardKeys, Entries] = {}
        self._refreshed = 0.0
        self._swept = 0.0
        self._changed = asyncio.Event()  # what it serves

    def now_ms(self) -> int:
        """Redis's time, or the injected one."""
        return int(self._session.clock.argument() or self.time.now_ms())

    def serve(self, topics: Sequence[str]) -> None:
        """Which topics to claim from; they and the group exist (Topics.ensure). A ``next`` that waits returns, as its
        limits are out of date.
        """
        self._served = set(topics)
        known = self._topics.known
        steps = {name: len(known[name].retry_of(self.group).steps_ms) for name in sorted(topics)}
        tally.expect(self._session.keys.namespace, steps, self.group)
        self._find_shards()
        self._changed.set()

    async def join(self) -> None:
        """Makes this consumer known to its groups: a blocked read alone does not, before Redis 7.2."""
        streams = [(shard, name) for shard in self._shards for name in (shard.ready, shard.ready_of(self.group))]
        await arun(
            self._link,
            self._session.call(
                [Command(s.ready, ("XGROUP", "CREATECONSUMER", name, self.group, self.name)) for s, name in streams]
            ),
        )

    def _find_shards(self) -> None:
        shards = [shard for topic in sorted(self._served) for shard in self._topics.shards(topic)]
        if shards != self._shards:
            self._shards = shards
            self._active = list(shards)

    async def next(self, limits: dict[str, int], wait_s: float = BLOCK_S) -> list[Held]:
        """Claimed jobs of one shard, at most ``limits[topic]``; waits for some, and returns none after about
        ``wait_s``. A topic without a limit above 0 is left alone.
        """
        give_up = time.monotonic() + wait_s
        while True:
            try:
                await self._refresh()
                held = await self._claim_some(limits)
                if held or self._changed.is_set() or time.monotonic() >= give_up:
                    self._changed.clear()
                    return held
                if not self._active:
                    await self._wait(limits, give_up - time.monotonic())
            except GroupMissing:
                for topic in self._served:
                    await arun(self._link, self._topics.repair(topic))
                self._active = list(self._shards)
                await asyncio.sleep(_REPAIR_S)

    async def _refresh(self) -> None:
        now = time.monotonic()
        for shard in [shard for shard, until in self._paused.items() if until <= now]:
            del self._paused[shard]
            self._active.append(shard)
        if now - self._refreshed < _REFRESH_S:
            return
        await arun(self._link, self._topics.refresh())
        self._refreshed = now
        self._find_shards()

    async def _claim_some(self, limits: dict[str, int]) -> list[Held]:
        self._harvest()
        if self._active and time.monotonic() - self._swept > _SWEEP_S:
            await self._sweep(limits)
        while self._found:
            shard, entries = self._found.popitem()
            if held := await self._claim(shard, limits.get(shard.topic, 0), entries):
                return held
        for _ in range(len(self._active)):
            shard = self._active.pop(0)
            limit = limits.get(shard.topic, 0)
            if limit <= 0:
                self._active.append(shard)
            elif held := await self._claim(shard, limit, []):
                return held
        return []

    async def _claim(self, shard: ShardKeys, count: int, read: Entries) -> list[Held]:
        count = min(count, MAX_CLAIM)
        ttr_ms = self._topics.known[shard.topic].ttr_of(self.group)
        asked = time.monotonic()
        claimed: Claimed = await arun(
            self._link, self._scripts.claim(shard, self.group, self.name, count, ttr_ms, read)
        )
        arrived = time.monotonic()
        self.time.observe(claimed.now_ms, arrived)
        if claimed.paused:
            self._paused[shard] = arrived + _PAUSED_S
        elif count > 0 and (claimed.unread > 0 or len(claimed.rows) >= count) and shard not in self._active:
            self._active.append(shard)
        return [held_of(shard, self.group, row, claimed, asked) for row in claimed.rows]

    def _quiet(self, limits: dict[str, int]) -> list[ShardKeys]:
        """Shards that nothing is known to wait in, and whose topics have room."""
        busy = {*self._active, *self._paused, *self._found}
        return [shard for shard in self._shards if shard not in busy and limits.get(shard.topic, 0) > 0]

    def _reading_groups(self, shards: list[ShardKeys]) -> list[list[ShardKeys]]:
        """Which shards one read can cover: on Cluster each its own, else all."""
        if self._link.is_cluster:
            return [[shard] for shard in shards]
        return [shards] if shards else []

    def _read(
        self, shards: list[ShardKeys], limits: dict[str, int], block_ms: int | None
    ) -> Op[dict[ShardKeys, Entries]]:
        room = min(limits[shard.topic] for shard in shards)
        count = max(1, room // (2 * len(shards)))
        return read_streams(self._session, self.group, self.name, shards, min(count, MAX_CLAIM), block_ms)

    async def _sweep(self, limits: dict[str, int]) -> None:
        """While busy with some topics: has anything come in the others?"""
        self._swept = time.monotonic()
        for shards in self._reading_groups([shard for shard in self._quiet(limits) if shard not in self._readers]):
            self._keep(await arun(self._link, self._read(shards, limits, None)))

    async def _wait(self, limits: dict[str, int], wait_s: float) -> None:
        """Blocks until something comes, a paused topic wants a look, or ``wait_s`` has passed."""
        soonest = min(self._paused.values(), default=float("inf")) - time.monotonic()
        timeout_s = max(0.001, min(wait_s, soonest, BLOCK_S))
        quiet = self._quiet(limits)
        for shards in self._reading_groups([shard for shard in quiet if shard not in self._readers]):
            block_ms = int(timeout_s * 1000) if not self._link.is_cluster else int(BLOCK_S * 1000)
            self._readers[shards[0]] = asyncio.create_task(arun(self._link, self._read(shards, limits, block_ms)))
        if not self._readers:
            await wait(self._changed, timeout_s)
            return
        changed = asyncio.create_task(self._changed.wait())
        try:
            awaited = (changed, *self._readers.values())
            await asyncio.wait(awaited, timeout=timeout_s + 1, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()

    def _harvest(self) -> None:
        for shard in [shard for shard, task in self._readers.items() if task.done()]:
            self._keep(self._readers.pop(shard).result())

    def _keep(self, found: dict[ShardKeys, Entries]) -> None:
        """What was read waits for its claim. Two reads may bring entries of one shard before that."""
        for shard, entries in found.items():
            self._found.setdefault(shard, []).extend(entries)

    async def show(self) -> None:
        """A loop's body: tells Redis every minute that this consumer is alive. A blocked read does not, nor does one
        that waits for a free slot: it would be counted, and then cleared away, as gone.
        """
        while True:
            await asyncio.sleep(_SHOW_S)
            for shards in self._reading_groups(self._shards):
                streams = [shard.ready for shard in shards]
                # Asks for what it has pending behind the last possible entry: nothing, which changes nothing.
                args = ("XREADGROUP", "GROUP", self.group, self.name, "STREAMS", *streams, *[_END] * len(streams))
                await arun(self._link, self._session.call([Command(streams[0], args)]))

    async def leave(self) -> None:
        """Hands back what was read and not claimed, and takes this consumer out of the group."""
        for task in self._readers.values():
            task.cancel()
        await asyncio.gather(*self._readers.values(), return_exceptions=True)
        self._readers.clear()
        for shard in self._shards:
            while not await arun(self._link, self._scripts.leave(shard, self.group, self.name, _LEAVE_LIMIT)):
                pass
