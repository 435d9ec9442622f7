"""The schedules that a worker's code declares: they are put when it starts, and again if Redis loses them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..job.job import NewJob
from ..link.connection import AsyncLink
from ..link.session import arun
from ..operations.schedules.define import put_schedule
from ..process.logs import log
from ..schedules.definition import Definition
from ..store.redis_store import RedisStore
from ..store.schedules.schedules import Schedules


@dataclass(frozen=True, slots=True)
class Declared:
    """A schedule in a worker's code. ``new``: the job of its occurrences."""

    topic: str
    id: str
    definition: Definition
    new: NewJob


class DeclaredSchedules:
    """Keeps them in Redis. One that somebody removes stays removed until the next start; only losses are made good."""

    def __init__(self, link: AsyncLink, store: RedisStore, declared: Sequence[Declared]) -> None:
        self._link = link
        self._store = store
        self._schedules = Schedules(store.session, store.scripts, store.topics)
        self._declared = {(one.topic, one.id): one for one in declared}
        self._removals: dict[tuple[str, str], int] = {}  # of the topic's, when this worker last declared it

    async def put(self) -> None:
        """All of them. Those that are there as declared stay as they are."""
        for one in self._declared.values():
            await self._put(one)
        await self._look()

    async def keep(self) -> None:
        """Puts those again that Redis has lost."""
        for one in await self._look():
            await self._put(one)
            log.warning("schedule was lost, declared again", topic=one.topic, id=one.id)

    async def prune(self, topics: Iterable[str]) -> None:
        """Removes what workers have declared for these topics and this worker does not."""
        for topic in sorted(topics):
            if not self._store.topics.settings_of(topic).scheduled:
                continue
            for id, known in (await arun(self._link, self._schedules.all_of(topic))).items():
                if known.definition.declared and (topic, id) not in self._declared:
                    await arun(self._link, self._schedules.remove(topic, id))
                    log.info("schedule removed, no longer declared", topic=topic, id=id)

    async def _put(self, one: Declared) -> None:
        put = await arun(self._link, put_schedule(self._store, one.topic, one.id, one.definition, one.new))
        if put.before != put.after:
            log.info("schedule declared", topic=one.topic, id=one.id, when=put.after.text, tz=one.definition.tz)

    async def _look(self) -> list[Declared]:
        """Those that are missing though nobody has removed any since they were there. A count of removals that is lost
        as well is smaller than before.
        """
        lost: list[Declared] = []
        for topic in dict.fromkeys(one.topic for one in self._declared.values()):
            ids = [one.id for one in self._declared.values() if one.topic == topic]
            found = await arun(self._link, self._schedules.standing(topic, ids))
            if found is None:
                continue
            for id in ids:
                if id in found.present and self._store.topics.settings_of(topic).scheduled:
                    self._removals[topic, id] = found.removals
                elif id in found.present or found.removals <= self._removals.get((topic, id), 0):
                    lost.append(self._declared[topic, id])
        return lost
