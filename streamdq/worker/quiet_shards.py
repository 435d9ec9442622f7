"""The shards of a Cluster that a consumer waits for: it is notified when one may have a job (mover/watch.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial

from ..keys import ShardKeys
from ..mover.watch import Watch
from ..store.blocking import Entries, with_news
from .member import Member

Look = Coroutine[None, None, dict[ShardKeys, Entries]]


class QuietShards:
    """``ready`` is called with a shard that should be claimed from at once. ``stirred`` is set when a shard has to be
    claimed from or looked at.

    All idle consumers are notified of a job, and one of them gets it. So a consumer that was too late the last time
    looks first, which costs Redis two commands; a claim costs several times as many.
    """

    def __init__(self, member: Member, ready: Callable[[ShardKeys], None]) -> None:
        self._session = member.session
        self._group = member.group
        self._ready = ready
        self._watch = Watch(member.link, self._changed)
        self._shards: dict[str, ShardKeys] = {}  # by the names of both ready streams
        self._late: set[ShardKeys] = set()  # the last claim found nothing
        self.stirred = asyncio.Event()

    def serve(self, shards: Sequence[ShardKeys]) -> None:
        """Knows these shards only."""
        gone, self._shards = self._shards, {name: shard for shard in shards for name in self._streams(shard)}
        self._watch.forget(gone.keys() - self._shards.keys())
        self._late &= set(shards)

    def _streams(self, shard: ShardKeys) -> tuple[str, str]:
        return shard.ready, shard.ready_of(self._group)

    def looks(self, shards: Iterable[ShardKeys]) -> Iterator[tuple[Look, tuple[ShardKeys, ...]]]:
        """Looks at those of the shards that may have changed since the last one, one for each node; each returns the
        shards that have a job, without entries.
        """
        for streams in self._watch.due(name for shard in shards for name in self._streams(shard)).values():
            yield self._look(streams), tuple(dict.fromkeys(self._shards[name] for name in streams))

    async def _look(self, streams: list[str]) -> dict[ShardKeys, Entries]:
        found = await self._watch.look(streams, partial(with_news, self._session, self._group))
        return {self._shards[name]: [] for name in found if name in self._shards}

    def _changed(self, stream: str) -> None:
        shard = self._shards.get(stream)
        if shard is not None and shard not in self._late:
            self._ready(shard)
        self.stirred.set()

    def claimed(self, shard: ShardKeys, anything: bool) -> None:
        """A claim has found something, or nothing."""
        (self._late.discard if anything else self._late.add)(shard)
