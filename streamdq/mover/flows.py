"""Looks after flows: opens one whose builder was killed when it was complete, withdraws one that was not completed in
time, cancels one whose deadline has passed, and forgets those that ended long ago. The active mover runs it; where no
flow is, it looks only every ten minutes, in case a wakeup was lost.
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

_AT_ONCE = 50


class Flows(ShardLoop):
    NAME = "flows"
    WALK_S: ClassVar[float] = 600.0

    def _shards(self) -> Iterable[ShardKeys]:
        return self._topics.all_shards(FLOWS) if FLOWS in self._topics.known else ()

    async def _look(self, shard: ShardKeys) -> float:
        while True:
            swept = await arun(self._link, self._scripts.sweep_flows(shard, _AT_ONCE))
            self._time.observe(swept.now_ms, time.monotonic())
            for run in swept.late:
                await self._cancel(run)
            if not swept.has_more:
                return self._moment(swept.next_ms, swept.now_ms)

    async def _cancel(self, run: Run) -> None:
        """If that fails, it is tried again at the next look, and the others are not held up."""
        log.info("cancels a flow whose deadline has passed", flow=run.name)
        try:
            await arun(self._link, decisions.cancel(self._session, self._scripts, self._topics, run))
        except ServerError as error:
            log.warning("a flow whose deadline has passed is not cancelled yet", flow=run.name, error=str(error))
