"""Looks after flows: opens one whose builder was killed when it was complete, withdraws one that was not completed in
time, cancels one whose deadline has passed, adds a row to the history about one that has ended, and forgets those that
ended long ago. The active mover runs it; where no flow is, it looks only every ten minutes, in case a wakeup was lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import ClassVar

from ..errors import ServerError
from ..job.flow import FLOWS
from ..keys import ShardKeys
from ..link.session import arun
from ..process.logs import log
from ..store.flows import decisions
from ..store.scripts.flows import Run
from .shard_loop import ShardLoop
from .shard_timers import NEVER

_AT_ONCE = 50
_AGAIN_S = 1.0  # after another mover has looked, or the topic was deleted
_PATHS_S = 0.05
"""If it has looked for critical paths for so long, it does other things for nine times as long."""


class Flows(ShardLoop):
    NAME = "flows"
    WALK_S: ClassVar[float] = 600.0
    _paths_from = 0.0  # by the monotonic clock: not before, it looks for critical paths

    def _shards(self) -> Iterable[ShardKeys]:
        return self._topics.all_shards(FLOWS) if FLOWS in self._topics.known else ()

    async def _look(self, shard: ShardKeys) -> float:
        try:
            again = await self._record(shard)  # before their own jobs are removed
        except Exception as error:
            again = time.monotonic() + self._failures.pause_after(shard, error)
        while True:
            swept = await arun(self._link, self._scripts.sweep_flows(shard, _AT_ONCE))
            self._time.observe(swept.now_ms, time.monotonic())
            for run in swept.late:
                await self._cancel(run)
            if not swept.has_more:
                return min(again, self._moment(swept.next_ms, swept.now_ms))

    async def _record(self, shard: ShardKeys) -> float:
        """Adds a row to the history for each flow that has ended. If more end than there is time to look for their
        critical paths, the rows of some have none. Returns when to go on.
        """
        from ..store.flows import ended  # a process that moves no flows has no use for it

        is_full = True
        while is_full:
            if time.monotonic() < self._paths_from:
                return self._paths_from
            begun, found = time.monotonic(), await arun(self._link, ended.ends(self._session, shard))
            is_full, seen = found.is_full, found.seen
            for end, until in found.each():
                account = ended.account_of(self._session, shard, end, with_path=not is_full)
                row = ended.row_of(end, await arun(self._link, account))
                if not await arun(self._link, self._scripts.record_flows(shard, (seen, until), [row])):
                    return time.monotonic() + _AGAIN_S
                seen, spent = until, time.monotonic() - begun
                if spent > _PATHS_S and not is_full:
                    self._paths_from = time.monotonic() + 9 * spent
                    return self._paths_from
            if seen != found.last:
                await arun(self._link, self._scripts.record_flows(shard, (seen, found.last), []))
        return NEVER

    async def _cancel(self, run: Run) -> None:
        """If that fails, it is tried again at the next look, and the others are not held up."""
        log.info("cancels a flow whose deadline has passed", flow=run.name)
        try:
            await arun(self._link, decisions.cancel(self._session, self._scripts, self._topics, run))
        except ServerError as error:
            log.warning("a flow whose deadline has passed is not cancelled yet", flow=run.name, error=str(error))
