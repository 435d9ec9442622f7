"""Whether a topic's resharding is complete after its number of shards changed while it held jobs: no shard has anything
of an id whose current shard is another one.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...config import TopicSettings
from ...keys import ShardKeys, shard_of
from ...link.command import Command
from ...link.session import Op, Session
from ..commands import one
from ..replies import ListedIds
from ..scripts import Scripts

_PAGE = 500
_RUN_ID = re.compile(rb"run_id:(\w+)")


class _Position(NamedTuple):
    """Where the walk goes on. ``run``: of the server that the cursor is of; ``puts``: the shard's as it began."""

    shard: ShardKeys
    run: str = ""
    puts: bytes = b""
    kind: str = "jobs"  # then taken
    cursor: bytes = b"0"

    def after(self, following: bytes) -> _Position | None:
        """The place after this page; None at the shard's end."""
        if following != b"0":
            return self._replace(cursor=following)
        return self._replace(kind="taken", cursor=b"0") if self.kind == "jobs" else None


class Remaining(NamedTuple):
    """Jobs and ids outside their current shard. ``exact``: counted, not estimated."""

    jobs: int
    taken: int
    exact: bool


class Walk:
    """Goes once through all ids of the shards. Ids outside their current shard can only become fewer, because shards
    refuse callers with another layout. So the walk stays at a page until the page has none of them; after the last
    page, no page has any. It begins a shard again if a job or a taken id came there meanwhile, because the shard still
    owned the id. It does so as well if the shard's server was restarted or replaced, because the order of ids then
    differs. A taken id does not say to which key it belonged. So in a topic with keys, the walk waits for each of
    these.
    """

    def __init__(self, session: Session, scripts: Scripts, topic: str, settings: TopicSettings) -> None:
        self._session = session
        self._scripts = scripts
        self._sharded_by_key = settings.sharded_by_key
        self.layout = settings.layout
        self.has_keys = False  # some job has
        self.strays = 0  # on the pages that were looked at last
        shards = [session.keys.shard(topic, number) for number in range(self.layout.in_use)]
        self._places = deque(map(_Position, shards))
        self._done: list[_Position] = []

    def is_of(self, settings: TopicSettings) -> bool:
        """Whether these are the settings by which it looks."""
        return (self.layout, self._sharded_by_key) == (settings.layout, settings.sharded_by_key)

    def go_on(self, pages: int) -> Op[bool | None]:
        """Looks at so many pages at most. True: resharding is complete; None: it has another layout by now, or a shard
        has yet to hear of it. If that, or an error, ends it early, the next one begins where it began.
        """
        places = self._places.copy()  # what a page that could not be looked at leaves as it was
        runs = yield from self._runs(place.shard for place in (*places, *self._done))
        done = _still_done(self._done, runs, places)
        waiting, self.strays = list[_Position](), 0
        while places and pages > 0:
            place = places.popleft()
            if place.run != runs[place.shard]:
                place = _Position(place.shard, runs[place.shard])
            page = yield from self._page(place)
            if page is None:
                return None
            pages -= 1
            if _run_in(page.server) != place.run:  # its slot migrates, and another node has answered
                waiting.append(_Position(place.shard))
            elif place.puts not in (b"", page.puts):
                places.append(_Position(place.shard, place.run))
            else:
                self._sort(place._replace(puts=page.puts), page, places, waiting, done)
        places.extend(waiting)
        done = _still_done(done, (yield from self._runs(place.shard for place in done)), places)
        self._places, self._done = places, done
        return not places

    def _page(self, place: _Position) -> Op[ListedIds | None]:
        return self._scripts.list_ids(place.shard, self.layout.text, place.kind, place.cursor, _PAGE)

    def left(self) -> Op[Remaining]:
        """How much is not at home, by a page of each shard at most. A shard that has yet to hear of the layout is left
        out.
        """
        found, exact = {"jobs": 0, "taken": 0}, True
        for place in [place._replace(kind=kind) for place in self._places for kind in found]:
            page = yield from self._page(place)
            if page is None:
                continue
            strays = self._strays(place, page.ids)
            if page.following != b"0":
                key = place.shard.jobs if place.kind == "jobs" else place.shard.taken
                strays = round(strays * (yield from one(self._session, key, "HLEN", key)) / max(1, len(page.ids)))
                exact = False
            found[place.kind] += strays
        return Remaining(found["jobs"], found["taken"], exact)

    def _sort(
        self,
        place: _Position,
        page: ListedIds,
        places: deque[_Position],
        waiting: list[_Position],
        done: list[_Position],
    ) -> None:
        """What to do next, after a page."""
        self.has_keys = self.has_keys or any(key for _, key in page.ids)
        strays = self._strays(place, page.ids)
        self.strays += strays
        if strays:
            waiting.append(place)
        elif (following := place.after(page.following)) is None:
            done.append(place)
        else:
            places.appendleft(following)

    def _strays(self, place: _Position, ids: Sequence[tuple[str, str]]) -> int:
        unknown = self._sharded_by_key and place.kind == "taken"  # to which key those belong that have none
        return sum(
            1 for id, key in ids
            if (unknown and not key) or shard_of(id, self.layout.shards, key or None) != place.shard.shard
        )  # fmt: skip

    def _runs(self, shards: Iterable[ShardKeys]) -> Op[dict[ShardKeys, str]]:
        """Which run of which server has each shard now: one command for each node."""
        nodes = {shard: self._session.last_node_of(shard.jobs) for shard in shards}
        asked = {node: shard for shard, node in nodes.items()}
        if not asked:
            return {}
        replies = yield from self._session.call([Command(shard.jobs, ("INFO", "server")) for shard in asked.values()])
        runs = {node: _run_in(reply) for node, reply in zip(asked, replies, strict=True)}
        return {shard: runs[node] for shard, node in nodes.items()}


def _still_done(done: Iterable[_Position], runs: Mapping[ShardKeys, str], places: deque[_Position]) -> list[_Position]:
    """Those of them whose server is the same; the others are to be looked at again, as it may have lost writes."""
    places.extend(_Position(place.shard) for place in done if runs[place.shard] != place.run)
    return [place for place in done if runs[place.shard] == place.run]


def _run_in(reply: object) -> str:
    """A server in this process's memory has none."""
    found = _RUN_ID.search(reply) if isinstance(reply, bytes) else None
    return found[1].decode() if found else ""
