"""Paces what makes many jobs ready: each slice follows when most of the previous one has been claimed. So a job that
comes due meanwhile, or a retry, waits behind one slice and not behind all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ...errors import GroupMissing
from ...keys import ShardKeys
from ...link.session import Op, Session, pause
from ...store import namespace, stream_entries
from ...store.jobs import ordered
from ...store.topics import shard_state

SLICE = 25
_LOOK_S = 0.003
_PATIENCE_S = 1.0  # how long to wait without any claim
_LONGEST_S = 30.0  # how long to wait in total


class KickThrottle:
    """The waiting of one such operation. It ends permanently if nobody claims, as there is nothing to delay then, or if
    handlers are slow, as due jobs then wait for a free slot in any case.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left_s = _LONGEST_S

    def wait(self, shard: ShardKeys, group: str) -> Op[None]:
        """Returns when few of the group's own entries are left to be claimed."""
        return self._wait(lambda: self._unclaimed(shard, group))

    def wait_ready(self, shard: ShardKeys, groups: Sequence[str]) -> Op[None]:
        """Returns when few jobs are due and not claimed, in each of the groups."""
        return self._wait(lambda: self._ready(shard, groups))

    def _wait(self, left: Callable[[], Op[int]]) -> Op[None]:
        fewest = yield from left()
        looked = since = time.monotonic()
        while fewest > SLICE // 2 and self._left_s > 0:
            yield from pause(_LOOK_S)
            found = yield from left()
            before, looked = looked, time.monotonic()
            self._left_s -= looked - before
            if found < fewest:
                fewest, since = found, looked
            elif looked - since > _PATIENCE_S:
                self._left_s = 0.0

    def _ready(self, shard: ShardKeys, groups: Sequence[str]) -> Op[int]:
        now_ms = yield from namespace.now_ms(self._session)
        (due,) = yield from ordered.due_within(self._session, [shard], [now_ms])
        counts = []
        for group in groups:
            counts += yield from shard_state.ready_counts(self._session, [shard], group)
        return due + max(counts, default=0)

    def _unclaimed(self, shard: ShardKeys, group: str) -> Op[int]:
        try:
            return (yield from stream_entries.unclaimed(self._session, shard, group))
        except GroupMissing:  # the group is being removed, or was lost
            return 0
