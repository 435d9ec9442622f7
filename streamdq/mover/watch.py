"""Which streams of a Cluster have to be looked at: those that may have changed since the last look (link/tracking.py).

On a Cluster a blocked read covers one slot only, so it would take a connection for each shard. A watch takes one for
each node. The mover's listener and the worker's consumer have one each, over the same connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ..link.connection import AsyncLink
from ..link.session import Op, arun

T = TypeVar("T")


class Watch:
    """``changed`` is called with a stream that was looked at and has changed since, or may have."""

    def __init__(self, link: AsyncLink, changed: Callable[[str], None]) -> None:
        self._link = link
        self._changed = changed
        self._looked = set[str]()  # streams that need no look before they change

    def due(self, streams: Iterable[str]) -> dict[str, list[str]]:
        """Those that need a look, by node."""
        found: dict[str, list[str]] = {}
        for stream in streams:
            if stream not in self._looked:
                found.setdefault(self._link.node_of(stream), []).append(stream)
        return found

    async def look(self, streams: Sequence[str], look: Callable[[Sequence[str], Callable[[str], None]], Op[T]]) -> T:
        """Runs ``look``, which has to look at all of these streams and is given what to call when one changes."""
        self._looked.update(streams)  # beforehand, as they may change before this has the result
        try:
            return await arun(self._link, look(streams, self._tell))
        except BaseException:
            self.forget(streams)
            raise

    def forget(self, streams: Iterable[str]) -> None:
        """They need a look, if they are still wanted."""
        self._looked.difference_update(streams)

    def _tell(self, stream: str) -> None:
        if stream in self._looked:
            self._looked.remove(stream)
            self._changed(stream)
