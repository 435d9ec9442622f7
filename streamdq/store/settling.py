"""Whether a topic has settled after its number of shards changed while it held jobs: no shard has anything of an id
that is at home in another one by now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ..config import Layout
from ..keys import NamespaceKeys, ShardKeys, shard_of
from ..link.session import Op
from .scripts import Scripts

_PAGE = 500


class Walk:
    """Goes once through all that the shards have ids of. What is not at home can only become less, as shards refuse
    whoever knows another layout: so one page after the other waits until it has nothing left of that kind, and when
    the last page has nothing, no page has.
    """

    def __init__(self, scripts: Scripts, keys: NamespaceKeys, topic: str, layout: Layout) -> None:
        self._scripts = scripts
        self.layout = layout
        self.has_keys = False  # some job has
        self.strays = 0  # on the pages that were looked at last
        shards = [keys.shard(topic, number) for number in range(layout.in_use)]
        self._places = deque((shard, kind, b"0") for shard in shards for kind in ("jobs", "taken"))

    def go_on(self, pages: int) -> Op[bool | None]:
        """Looks at so many pages at most. True: the topic has settled; None: it has another layout by now, or a shard
        has yet to hear of it.
        """
        waiting, self.strays = deque[tuple[ShardKeys, str, bytes]](), 0
        while self._places and pages > 0:
            shard, kind, cursor = self._places.popleft()
            page = yield from self._scripts.list_ids(shard, self.layout.text, kind, cursor, _PAGE)
            if page is None:
                return None
            following, ids = page
            pages -= 1
            strays = self._strays_in(shard, ids)
            if strays:
                self.strays += strays
                waiting.append((shard, kind, cursor))
            elif following != b"0":
                self._places.appendleft((shard, kind, following))
        self._places.extend(waiting)
        return not self._places

    def _strays_in(self, shard: ShardKeys, ids: Sequence[tuple[str, str]]) -> int:
        self.has_keys = self.has_keys or any(key for _, key in ids)
        return sum(1 for id, key in ids if shard_of(id, self.layout.shards, key or None) != shard.shard)
