"""Listens to ``wake`` streams. A shard's has an entry when the mover has to look there sooner than it knows of
(lua/lib/notify_mover.lua says when), the namespace's when the registry has changed. Such an entry is called a wakeup.

Redis goes through all streams of a blocked read each time that one of them changes. So there are several reads, of a
part of the streams each. On a Cluster, where a read covers only one slot, the streams are watched instead (watch.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import chain

from ..link.connection import AsyncLink
from ..link.session import Session, arun
from ..process.cancellations import uncancelled
from ..process.loop import Failures, cancel_and_wait, wait
from ..store.blocking import listen, newest
from .watch import Watch

_BLOCK_S = 60.0  # a dead connection is noticed before that, as the system asks whether it is alive
_DIVIDE_S = 10.0
_MOST = 100  # streams in one blocked read: at each wakeup Redis goes through all of them, which takes it 2 us each


class Listener:
    """Calls ``on_wakeup`` with the streams that have a new wakeup; with none if a read ended without one.

    A wakeup stays in its stream, so one that comes while nobody reads is found by the next read. When a read fails,
    the listener forgets what it has seen, because the next ids may come from another primary, and calls
    ``on_reconnect``; then each stream that has an entry is reported again.
    """

    def __init__(
        self,
        link: AsyncLink,
        session: Session,
        streams: Callable[[], Sequence[str]],
        on_wakeup: Callable[[Collection[str]], Awaitable[None]],
        on_reconnect: Callable[[], None],
    ) -> None:
        self._link = link
        self._session = session
        self._streams = streams
        self._on_wakeup = on_wakeup
        self._on_reconnect = on_reconnect
        self._seen: dict[str, bytes] = {}
        self._mistrusted: set[str] = set()
        self._failures = Failures("wakeups", session.keys.namespace)
        self._changed = asyncio.Event()
        self._watch = Watch(link, lambda _: self._changed.set())

    def mistrust(self, stream: str) -> None:
        """Reads the stream anew from its beginning: the id seen last may be ahead of those that Redis issues now, or
        the connection of the read that waits for it may be dead.
        """
        self._mistrusted.add(stream)
        self._changed.set()

    def look_again(self) -> None:
        """Asks again which streams to listen to, and forgets the others."""
        self._seen = {name: self._seen[name] for name in self._streams() if name in self._seen}
        self._changed.set()

    async def run(self) -> None:
        """Never returns."""
        parts: dict[asyncio.Task[None], list[str]] = {}
        try:
            while True:
                self._changed.clear()
                if self._link.is_cluster:
                    self._look(parts)
                else:
                    await self._divide(parts)
                await wait(self._changed, _DIVIDE_S)
        finally:
            await cancel_and_wait(parts)

    # -- on a Cluster

    def _look(self, under_way: dict[asyncio.Task[None], list[str]]) -> None:
        """Looks at the streams that may have changed, at the same time on all nodes."""
        self._forget(self._mistrusted)
        self._watch.forget(self._mistrusted)
        self._mistrusted = set()
        busy = set(chain(*under_way.values()))
        for node, streams in self._watch.due(name for name in self._streams() if name not in busy).items():
            task = asyncio.create_task(self._look_at(node, streams))
            under_way[task] = streams
            task.add_done_callback(partial(self._looked, under_way))

    def _looked(self, under_way: dict[asyncio.Task[None], list[str]], task: asyncio.Task[None]) -> None:
        under_way.pop(task, None)
        self._changed.set()

    async def _look_at(self, node: str, names: list[str]) -> None:
        try:
            await uncancelled(partial(self._look_once, names))
        except Exception as error:
            self._watch.forget(names)
            await self._failed(names, node, error)
        else:
            self._failures.worked(node)

    async def _look_once(self, names: list[str]) -> None:
        found = await self._watch.look(names, partial(newest, self._session))
        woken = {name: entry for name, entry in found.items() if self._seen.get(name) != entry}
        await self._on_wakeup(woken)
        self._seen.update(woken)

    # -- elsewhere

    async def _divide(self, parts: dict[asyncio.Task[None], list[str]]) -> None:
        """Gives each part of the streams its own blocked read. Whole parts stay as they are; of the others, new parts
        are made when streams have come or gone, or are mistrusted.
        """
        wanted = dict.fromkeys(self._streams())
        mistrusted, self._mistrusted = self._mistrusted, set()
        if not mistrusted and wanted.keys() == set(chain(*parts.values())):
            return
        for task, part in list(parts.items()):
            if len(part) < _MOST or not wanted.keys() - mistrusted >= set(part):
                del parts[task]
                await cancel_and_wait([task])
        self._forget(mistrusted)
        kept = set(chain(*parts.values()))
        left = [name for name in wanted if name not in kept]
        for begin in range(0, len(left), _MOST):
            part = left[begin : begin + _MOST]
            parts[asyncio.create_task(self._listen(part))] = part

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._seen.pop(name, None)

    async def _listen(self, names: Sequence[str]) -> None:
        while True:
            try:
                await uncancelled(partial(self._listen_once, names))
            except Exception as error:
                await self._failed(names, names[0], error)
            else:
                self._failures.worked(names[0])

    async def _listen_once(self, names: Sequence[str]) -> None:
        woken = await arun(self._link, listen(self._session, names, self._seen, _BLOCK_S))
        await self._on_wakeup(woken)
        self._seen.update(woken)  # not before: a task that is ended meanwhile must hear them again

    async def _failed(self, names: Sequence[str], what: str, error: Exception) -> None:
        self._forget(names)
        self._on_reconnect()
        await asyncio.sleep(self._failures.pause_after(what, error))
