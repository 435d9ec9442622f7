"""Rate limits: at most ``rate`` jobs of a topic become ready per second, over all its shards. The active mover asks
for permits, which one state in Redis issues, and then moves that many jobs, the longest due first.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from ..config import TopicSettings
from ..keys import ShardKeys
from ..link.connection import AsyncLink
from ..link.session import Session, arun
from ..process.loop import Failures, wait
from ..store.jobs import ordered
from ..store.redis_store import RedisStore

_LOOKED_AT = 8  # how many jobs of each shard to compare, at least
_DueJobs = list[tuple[int, ShardKeys]]  # due_ms, and the job's shard


class RatedTopic:
    """Moves the jobs of one topic with a rate. Node movers hand it shards with due jobs (``want``). When a shard has no
    more due jobs, it goes back to its node mover, with the time on the monotonic clock to look at it next (``later``).
    """

    def __init__(
        self,
        link: AsyncLink,
        store: RedisStore,
        topic: str,
        move: Callable[[ShardKeys, int], Awaitable[None]],
        later: Callable[[ShardKeys, float], None],
    ) -> None:
        self._link, self._session = link, store.session
        self._scripts, self._topics = store.scripts, store.topics
        self._topic = topic
        self._move = move
        self._later = later
        self._first = store.session.keys.shard(topic, 0)
        self._wanting: set[ShardKeys] = set()
        self._anew: set[ShardKeys] = set()  # handed over again since the current look began
        self._wanted = asyncio.Event()
        self._failures = Failures("rate", store.session.keys.namespace)

    def want(self, shard: ShardKeys) -> None:
        self._wanting.add(shard)
        self._anew.add(shard)
        self._wanted.set()

    async def run(self) -> None:
        while True:
            self._wanted.clear()
            try:
                free_in_s = await self._portion() if self._wanting else None
            except Exception as error:
                await asyncio.sleep(self._failures.pause_after(self._topic, error))
            else:
                self._failures.worked(self._topic)
                await self._wait(free_in_s)

    async def _wait(self, free_in_s: float | None) -> None:
        """Waits until the next portion is free, or the rate is changed. With None, waits until a shard is handed
        over.
        """
        if free_in_s is None or self._session.clock.manual:
            await self._wanted.wait()
            return
        free_at, rate = time.monotonic() + free_in_s, self._rate()
        while (left_s := free_at - time.monotonic()) > 0 and self._rate() == rate:
            self._wanted.clear()
            await wait(self._wanted, left_s)
        self._wanted.set()

    def _rate(self) -> float | None:
        topic = self._topics.known.get(self._topic)
        return topic.rate if topic else None

    async def _portion(self) -> float | None:
        """Moves the jobs that may be moved now. Returns in how many seconds the next may be, or None if none is due."""
        topic = self._topics.known.get(self._topic)
        if topic is None or topic.rate is None or not is_rated(topic):
            self._give_back(self._wanting, 0.0)
            return None
        self._anew.clear()  # before reading the time that decides which jobs are due
        _, now_ms, free_ms = await arun(self._link, self._scripts.permit(self._first, 0))
        if free_ms > now_ms:
            return (free_ms - now_ms) / 1000
        due = await self._due(now_ms, topic.rate)
        if not due:
            return None
        granted, now_ms, free_ms = await arun(self._link, self._scripts.permit(self._first, len(due)))
        chosen = Counter(shard for _, shard in sorted(due, key=lambda job: job[0])[:granted])
        for shard, count in chosen.items():
            await self._try(shard, count)
        return max(0, free_ms - now_ms) / 1000

    async def _try(self, shard: ShardKeys, count: int) -> None:
        try:
            await self._move(shard, count)
        except Exception as error:
            self._give_back([shard], time.monotonic() + self._failures.pause_after(shard, error))
        else:
            self._failures.worked(shard)

    def _give_back(self, shards: Sequence[ShardKeys] | set[ShardKeys], when: float) -> None:
        for shard in list(shards):
            self._wanting.discard(shard)
            self._later(shard, when)

    async def _due(self, now_ms: int, rate: float) -> _DueJobs:
        """The longest due jobs of all shards in hand. Gives back shards without due jobs."""
        most = max(_LOOKED_AT, 4 * int(rate / 20) // len(self._wanting))
        nodes: dict[str, list[ShardKeys]] = {}
        for shard in self._wanting:
            nodes.setdefault(self._link.node_of(shard.bucket), []).append(shard)
        found: _DueJobs = []
        for jobs in await asyncio.gather(*(self._due_in(shards, now_ms, most) for shards in nodes.values())):
            found += jobs
        return found

    async def _due_in(self, shards: list[ShardKeys], now_ms: int, most: int) -> _DueJobs:
        """The same for one node."""
        try:
            heads = await arun(self._link, ordered.by_rank(self._session, [(k.bucket, 0) for k in shards], most))
            found: _DueJobs = []
            for shard, jobs in zip(shards, heads, strict=True):
                dues = [due_ms for due_ms, _ in jobs]
                found += [(due_ms, shard) for due_ms in dues if due_ms <= now_ms]
                if (not dues or dues[0] > now_ms) and shard not in self._anew:
                    self._give_back([shard], time.monotonic() + _wait_s(dues, now_ms, self._session))
        except Exception as error:
            self._give_back(shards, time.monotonic() + self._failures.pause_after(shards[0], error))
            return []
        return found


def is_rated(topic: TopicSettings) -> bool:
    """Whether jobs of the topic move by its rate now: while it is paused, none move at all."""
    return bool(topic.rate) and not topic.paused


def _wait_s(dues: list[int], now_ms: int, session: Session) -> float:
    """Seconds until the first job is due."""
    return (dues[0] - now_ms) / 1000 if dues and not session.clock.manual else float("inf")
