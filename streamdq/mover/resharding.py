"""Completes the resharding of topics whose number of shards changed while they held jobs. The active mover runs it;
without such topics it does nothing.
"""

from __future__ import annotations

import asyncio

from ..config import TopicSettings
from ..link.connection import AsyncLink
from ..link.session import arun
from ..process.logs import log
from ..process.loop import Failures
from ..store.redis_store import RedisStore
from ..store.topics.changes import complete_resharding
from ..store.topics.resharding import Walk

_LOOK_S = 5.0
_PAGES = 50  # at one look: a page takes Redis less than a millisecond


class Resharding:
    """Each topic has a walk of its own, which is lost with the mover: the next one begins anew."""

    def __init__(self, link: AsyncLink, store: RedisStore) -> None:
        self._link, self._session = link, store.session
        self._scripts, self._topics = store.scripts, store.topics
        self._walks: dict[str, Walk] = {}
        self._failures = Failures("resharding", store.session.keys.namespace)

    async def run(self) -> None:
        """Never returns."""
        while True:
            known = self._topics.known.items()
            resharding = {topic: settings for topic, settings in known if settings.former}
            for topic in self._walks.keys() - resharding.keys():
                del self._walks[topic]
            for topic, settings in resharding.items():
                await self._try(topic, settings)
            await asyncio.sleep(_LOOK_S)

    async def _try(self, topic: str, settings: TopicSettings) -> None:
        try:
            await self.look(topic, settings)
        except Exception as error:
            await asyncio.sleep(self._failures.pause_after(topic, error))
        else:
            self._failures.worked(topic)

    async def look(self, topic: str, settings: TopicSettings) -> None:
        """Goes on with the topic's walk, and completes its resharding if nothing is left."""
        walk = self._walks.get(topic)
        if walk is None or not walk.is_of(settings):
            walk = self._walks[topic] = Walk(self._session, self._scripts, topic, settings)
        nothing_left = await arun(self._link, walk.go_on(_PAGES))
        if nothing_left is None:
            await arun(self._link, self._topics.mend(topic))
        elif nothing_left:
            await arun(self._link, complete_resharding(self._topics, topic, walk))
            log.info("topic resharded", topic=topic, shards=walk.layout.shards)
