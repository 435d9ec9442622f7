"""Looks after flows: opens one whose builder was killed when it was complete, withdraws one that was not completed in
time, cancels one whose deadline has passed, and forgets those that ended long ago. The active mover runs it; in a
namespace without flows it does nothing.
"""

from __future__ import annotations

import asyncio

from ..errors import ServerError
from ..job.flow import FLOWS
from ..keys import ShardKeys
from ..link.connection import AsyncLink
from ..link.session import arun
from ..process.logs import log
from ..process.loop import Failures
from ..store.flows import decisions
from ..store.redis_store import RedisStore
from ..store.scripts.flows import Run

_LOOK_S = 10.0
_AT_ONCE = 50


class Flows:
    def __init__(self, link: AsyncLink, store: RedisStore) -> None:
        self._link, self._session = link, store.session
        self._scripts, self._topics = store.scripts, store.topics
        self._failures = Failures("flows", store.session.keys.namespace)

    async def run(self) -> None:
        """Never returns."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for shard in self._topics.all_shards(FLOWS):
                try:
                    await self.look(shard)
                except Exception as error:
                    await asyncio.sleep(self._failures.pause_after(shard, error))
                else:
                    self._failures.worked(shard)

    async def look(self, shard: ShardKeys) -> None:
        """Looks at the flows of one shard."""
        has_more = True
        while has_more:
            has_more, late = await arun(self._link, self._scripts.sweep_flows(shard, _AT_ONCE))
            for run in late:
                await self._cancel(run)

    async def _cancel(self, run: Run) -> None:
        """If that fails, it is tried again at the next look, and the others are not held up."""
        log.info("cancels a flow whose deadline has passed", flow=run.name)
        try:
            await arun(self._link, decisions.cancel(self._session, self._scripts, self._topics, run))
        except ServerError as error:
            log.warning("a flow whose deadline has passed is not cancelled yet", flow=run.name, error=str(error))
