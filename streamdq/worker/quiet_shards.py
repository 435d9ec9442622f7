"""The shards of a Cluster that a consumer waits for: it is told when one may have a job (mover/watch.py)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b

from ..errors import ServerError
from ..keys import ShardKeys
from ..link.connection import AsyncLink
from ..link.session import Session, arun
from ..mover.watch import Watch
from ..store.blocking import Entries, with_news
from ..store.namespace import take_turn

_TURN_MS = 55_000  # a little less than the minute between two tries of the same consumer

Look = Coroutine[None, None, dict[ShardKeys, Entries]]


class QuietShards:
    """``ready`` is called with a shard that should be claimed from at once. ``stirred`` is set when a shard has to be
    claimed from or looked at.

    All idle consumers are told of a job, and one of them gets it. So whoever was too late the last time looks first,
    which costs Redis two commands; a claim costs several times as many.

    Once a minute one of those that serve the same topics and have room looks at all quiet shards (``look_for_all``).
    Nothing is known to need that; it bounds what is not known.
    """

    def __init__(self, link: AsyncLink, session: Session, group: str, ready: Callable[[ShardKeys], None]) -> None:
        self._link = link
        self._session = session
        self._group = group
        self._ready = ready
        self._watch = Watch(link, self._changed, float("inf"))
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

    async def look_for_all(self, name: str) -> None:
        """Looks at all shards again, unless another consumer of the group that serves the same ones has done so within
        a minute. ``name``: this consumer.
        """
        if not self._shards:
            return
        topics = sorted({shard.topic for shard in self._shards.values()})
        digest = blake2b("|".join((self._group, *topics)).encode(), digest_size=8).hexdigest()
        with contextlib.suppress(ServerError):  # if nobody can tell, each looks by itself
            if not await arun(self._link, take_turn(self._session, self._session.keys.looks(digest), name, _TURN_MS)):
                return
        self._watch.forget(self._shards)
        self.stirred.set()

    def _changed(self, stream: str) -> None:
        shard = self._shards.get(stream)
        if shard is not None and shard not in self._late:
            self._ready(shard)
        self.stirred.set()

    def claimed(self, shard: ShardKeys, anything: bool) -> None:
        """A claim has found something, or nothing."""
        (self._late.discard if anything else self._late.add)(shard)
