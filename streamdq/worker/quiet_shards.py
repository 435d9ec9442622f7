"""How a consumer learns of jobs in quiet shards, where it knows of none: by blocked reads; or on a Cluster, where such
a read covers one slot only, by notifications and looks (mover/watch.py). Both classes have the same methods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial

from ..config import MAX_CLAIM
from ..keys import ShardKeys
from ..link.session import arun
from ..mover.watch import Watch
from ..store.blocking import Entries, read_streams, with_news
from .member import Member
from .topic_scheduler import Limit

TOGETHER = 50  # shards in one blocked read: Redis goes through all of them when one has a job

Read = Coroutine[None, None, dict[ShardKeys, Entries]]
"""Returns what is ready, by shard. A shard without entries may have jobs, and has to be claimed from."""


class BlockedReads:
    """The jobs that a read returns are this consumer's."""

    late_s = 1.0  # Redis ends a read late
    events: tuple[asyncio.Event, ...] = ()

    def __init__(self, member: Member) -> None:
        self._member = member

    def serve(self, shards: Sequence[ShardKeys]) -> None:
        """Knows these shards only."""

    def reads(
        self, shards: Sequence[ShardKeys], limits: Mapping[str, Limit], block_s: float
    ) -> Iterator[tuple[Read, tuple[ShardKeys, ...]]]:
        """Reads, each with its shards. ``limits``: how many jobs there is room for, by topic."""
        block_ms, member = max(1, int(block_s * 1000)), self._member
        for begin in range(0, len(shards), TOGETHER):
            together = tuple(shards[begin : begin + TOGETHER])
            room = min(limits[shard.topic].most for shard in together)
            count = min(max(1, room // (2 * len(together))), MAX_CLAIM)
            read = read_streams(member.session, member.group, member.consumer, together, count, block_ms)
            yield arun(member.link, read), together

    def claimed(self, shard: ShardKeys, anything: bool) -> None:
        """A claim has found something, or nothing."""


class ClusterLooks:
    """``ready`` is called with a shard that should be claimed from at once. The event is set when a shard has to be
    claimed from or looked at.

    All idle consumers are notified of a job, and one of them gets it. So a consumer that was too late the last time
    looks first, which costs Redis two commands; a claim costs several times as many.
    """

    late_s = 0.0

    def __init__(self, member: Member, ready: Callable[[ShardKeys], None]) -> None:
        self._session = member.session
        self._group = member.group
        self._ready = ready
        self._watch = Watch(member.link, self._changed)
        self._shards: dict[str, ShardKeys] = {}  # by the names of both ready streams
        self._late: set[ShardKeys] = set()  # the last claim found nothing
        self._stirred = asyncio.Event()
        self.events = (self._stirred,)

    def serve(self, shards: Sequence[ShardKeys]) -> None:
        """Knows these shards only."""
        gone, self._shards = self._shards, {name: shard for shard in shards for name in self._streams(shard)}
        self._watch.forget(gone.keys() - self._shards.keys())
        self._late &= set(shards)

    def _streams(self, shard: ShardKeys) -> tuple[str, str]:
        return shard.ready, shard.ready_of(self._group)

    def reads(
        self, shards: Sequence[ShardKeys], _limits: Mapping[str, Limit], _block_s: float
    ) -> Iterator[tuple[Read, tuple[ShardKeys, ...]]]:
        """Looks at those of the shards that may have changed since the last one, one for each node."""
        for streams in self._watch.due(name for shard in shards for name in self._streams(shard)).values():
            yield self._look(streams), tuple(dict.fromkeys(self._shards[name] for name in streams))

    async def _look(self, streams: list[str]) -> dict[ShardKeys, Entries]:
        found = await self._watch.look(streams, partial(with_news, self._session, self._group))
        return {self._shards[name]: [] for name in found if name in self._shards}

    def _changed(self, stream: str) -> None:
        shard = self._shards.get(stream)
        if shard is not None and shard not in self._late:
            self._ready(shard)
        self._stirred.set()

    def claimed(self, shard: ShardKeys, anything: bool) -> None:
        """A claim has found something, or nothing."""
        (self._late.discard if anything else self._late.add)(shard)
