"""Several movers may be at work: each has a place, with a lease of its own, and moves a part of the shards. Rendezvous
hashing over the places that are held decides which part.

A process moves the shards that are its own by the places that it knows of. If another one knows of others, no harm is
done: the place that a shard has by all that are held, it also has by any of them that include it. So whoever is there
moves it, and perhaps others do as well, who only find less to do. A shard is without a mover only while a place is
believed to be held whose process is dead: a second at most.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Sequence
from functools import lru_cache
from hashlib import blake2b

from ..link.connection import AsyncLink
from ..link.session import Session, arun
from ..store import namespace

_LET_GO_S = 2.0
"""For so long a mover still moves what another one has just taken over, as that one may have to look at many shards."""


@lru_cache(maxsize=131_072)
def _weight(place: int, name: str) -> bytes:
    return blake2b(f"{place} {name}".encode(), digest_size=8).digest()


def place_of(name: str, places: Collection[int]) -> int:
    """Which of the places has what is named so; the same in all processes and versions."""
    return max(places, key=lambda place: (_weight(place, name), place))


class Places:
    """Which places are held, as the process that has one of them (``mine``) saw them last. Place 1 is always held, or
    soon will be.
    """

    def __init__(self, link: AsyncLink, session: Session) -> None:
        self._link = link
        self._session = session
        self.begin(1)

    def begin(self, mine: int) -> None:
        """This process has a place, and knows of no other yet."""
        self.mine = mine
        self.held = frozenset([mine])
        self._before: tuple[int, frozenset[int]] | None = None
        self._let_go_at = 0.0
        self._new = True

    @property
    def part(self) -> Hashable:
        """What ``is_mine`` depends on."""
        return self.mine, self.held, self._before

    def is_mine(self, name: str) -> bool:
        """Whether this process moves what is named so."""
        if len(self.held) == 1:
            return True
        if self._before is not None and place_of(name, self._before[1]) == self._before[0]:
            return True
        return place_of(name, self.held) == self.mine

    @property
    def neighbour(self) -> int | None:
        """The place whose lease this process watches: the next one that is held, or the first."""
        others = sorted(self.held - {self.mine})
        return next((place for place in others if place > self.mine), others[0]) if others else None

    def saw(self, mine: int, held: Collection[int]) -> None:
        """Which places are held, and which one this process has now."""
        seen = frozenset(held) | {mine}
        if (mine, seen) == (self.mine, self.held):
            self.let_go()
        else:
            if not self._new:
                self._before, self._let_go_at = (self.mine, self.held), time.monotonic() + _LET_GO_S
            self.mine, self.held = mine, seen
        self._new = False

    @property
    def lets_go_in_s(self) -> float:
        """When to call ``let_go``; infinite if there is nothing to forget."""
        return float("inf") if self._before is None else max(0.0, self._let_go_at - time.monotonic())

    def let_go(self) -> None:
        """Forgets, after a while, what was this process's part before."""
        if time.monotonic() >= self._let_go_at:
            self._before = None

    async def left_ms(self, most: int) -> dict[int, int]:
        """For how long those are held that are held of the first ``most`` places and of those that were seen before,
        and of one more, as a process with another setting may have it.
        """
        return await self.left_ms_of(range(1, max(most, *self.held) + 2))

    async def left_ms_of(self, places: Sequence[int]) -> dict[int, int]:
        """The same for any places, in one call."""
        keys = [self._session.keys.mover_at(place) for place in places]
        found = await arun(self._link, namespace.leases_left_ms(self._session, keys))
        return {place: left_ms for place, left_ms in zip(places, found, strict=True) if left_ms > 0}
