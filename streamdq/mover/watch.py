"""Which streams of a Cluster have to be looked at: those that may have changed since the last look (link/tracking.py).

On a Cluster a blocked read covers one slot only, so it would take a connection for each shard. A watch takes one for
each node. The mover's listener and the worker's consumer have one each, over the same connections.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ..link.connection import AsyncLink
from ..link.session import Op, arun

T = TypeVar("T")


class Watch:
    """``changed`` is called with a stream that was looked at and has changed since, or may have. ``again_s``: how often
    a quiet stream is looked at. Nothing is known to need that.
    """

    def __init__(self, link: AsyncLink, changed: Callable[[str], None], again_s: float) -> None:
        self._link = link
        self._again_s = again_s
        self._changed = changed
        self._until: dict[str, float] = {}  # when streams need a look, if they don't change before

    def due(self, streams: Iterable[str]) -> dict[str, list[str]]:
        """Those that need a look, by node."""
        now, found = time.monotonic(), dict[str, list[str]]()
        for stream in streams:
            if self._until.get(stream, 0.0) <= now:
                found.setdefault(self._link.node_of(stream), []).append(stream)
        return found

    async def look(self, streams: Sequence[str], look: Callable[[Sequence[str], Callable[[str], None]], Op[T]]) -> T:
        """Runs ``look``, which has to look at all of these streams and is given what to call when one changes."""
        # Beforehand, as they may change before this has the result.
        until = time.monotonic() + self._again_s * random.uniform(0.9, 1)  # noqa: S311 - no secret
        self._until.update(dict.fromkeys(streams, until))
        try:
            return await arun(self._link, look(streams, self._tell))
        except BaseException:
            self.forget(streams)
            raise

    def forget(self, streams: Iterable[str]) -> None:
        """They need a look, if they are still wanted."""
        for stream in list(streams):
            self._until.pop(stream, None)

    def _tell(self, stream: str) -> None:
        if self._until.pop(stream, None) is not None:
            self._changed(stream)
