"""Whether a topic has settled after its number of shards changed while it held jobs: no shard has anything of an id
that is at home in another one by now.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..config import TopicSettings
from ..keys import ShardKeys, shard_of
from ..link.command import Command
from ..link.session import Op, Session
from .commands import one
from .scripts import Scripts

_PAGE = 500
_RUN_ID = re.compile(rb"run_id:(\w+)")


class _Place(NamedTuple):
    """What the walk goes through next. ``life``: of the server that the cursor is of; "" at first."""

    shard: ShardKeys
    kind: str  # jobs or taken
    cursor: bytes = b"0"
    life: str = ""


class Left(NamedTuple):
    """What is not at home. ``exact``: it was counted, not estimated."""

    jobs: int
    taken: int
    exact: bool


class Walk:
    """Goes once through all that the shards have ids of. What is not at home can only become less, as shards refuse
    whoever knows another layout: so one page after the other waits until it has nothing left of that kind, and when
    the last page has nothing, no page has. A server that was restarted, or another one in its place, has another order:
    then the walk through its shard begins anew. Nothing tells to which key an id belonged that is still taken, so where
    there are keys, each of these is waited for.
    """

    def __init__(self, session: Session, scripts: Scripts, topic: str, settings: TopicSettings) -> None:
        self._session = session
        self._scripts = scripts
        self._keyed = settings.keyed
        self.layout = settings.layout
        self.has_keys = False  # some job has
        self.strays = 0  # on the pages that were looked at last
        shards = [session.keys.shard(topic, number) for number in range(self.layout.in_use)]
        self._places = deque(_Place(shard, kind) for shard in shards for kind in ("jobs", "taken"))

    def is_of(self, settings: TopicSettings) -> bool:
        """Whether these are the settings by which it looks."""
        return (self.layout, self._keyed) == (settings.layout, settings.keyed)

    def go_on(self, pages: int) -> Op[bool | None]:
        """Looks at so many pages at most. True: the topic has settled; None: it has another layout by now, or a shard
        has yet to hear of it.
        """
        lives = yield from self._lives(place.shard for place in self._places)
        waiting, done, self.strays = list[_Place](), list[_Place](), 0
        while self._places and pages > 0:
            place = self._places.popleft()
            if place.life != lives[place.shard]:
                place = _Place(place.shard, place.kind, life=lives[place.shard])
            page = yield from self._scripts.list_ids(place.shard, self.layout.text, place.kind, place.cursor, _PAGE)
            if page is None:
                return None
            pages -= 1
            self._sort(place, *page, waiting, done)
        self._places.extend(waiting)
        after = yield from self._lives(place.shard for place in done)
        self._places.extend(_Place(place.shard, place.kind) for place in done if after[place.shard] != place.life)
        return not self._places

    def left(self) -> Op[Left]:
        """How much is not at home, by a page of each shard at most. A shard that has yet to hear of the layout is left
        out.
        """
        found, exact = {"jobs": 0, "taken": 0}, True
        for shard, kind, *_ in self._places:
            page = yield from self._scripts.list_ids(shard, self.layout.text, kind, b"0", _PAGE)
            following, ids = page or (b"0", [])
            strays = self._strays(shard, kind, ids)
            if following != b"0":
                key = shard.jobs if kind == "jobs" else shard.taken
                strays = round(strays * (yield from one(self._session, key, "HLEN", key)) / max(1, len(ids)))
                exact = False
            found[kind] += strays
        return Left(found["jobs"], found["taken"], exact)

    def _sort(
        self, place: _Place, following: bytes, ids: Sequence[tuple[str, str]], waiting: list[_Place], done: list[_Place]
    ) -> None:
        """What to do next with the place, after a page of it."""
        self.has_keys = self.has_keys or any(key for _, key in ids)
        strays = self._strays(place.shard, place.kind, ids)
        self.strays += strays
        if strays:
            waiting.append(place)
        elif following == b"0":
            done.append(place)
        else:
            self._places.appendleft(place._replace(cursor=following))

    def _strays(self, shard: ShardKeys, kind: str, ids: Sequence[tuple[str, str]]) -> int:
        unknown = self._keyed and kind == "taken"  # to which key those belong that have none
        return sum(
            1 for id, key in ids
            if (unknown and not key) or shard_of(id, self.layout.shards, key or None) != shard.shard
        )  # fmt: skip

    def _lives(self, shards: Iterable[ShardKeys]) -> Op[dict[ShardKeys, str]]:
        """Which run of which server has each shard now: one command for each node."""
        nodes = {shard: self._session.node_of(shard.jobs) for shard in shards}
        asked = {node: shard for shard, node in nodes.items()}
        if not asked:
            return {}
        replies = yield from self._session.call([Command(shard.jobs, ("INFO", "server")) for shard in asked.values()])
        runs = {node: _run_in(reply) for node, reply in zip(asked, replies, strict=True)}
        return {shard: f"{node} {runs[node]}" for shard, node in nodes.items()}


def _run_in(reply: object) -> str:
    """A server in this process's memory has none."""
    found = _RUN_ID.search(reply) if isinstance(reply, bytes) else None
    return found[1].decode() if found else ""
