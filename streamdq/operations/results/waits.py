"""Waits for results. All waits of a queue share one connection to each node: Redis tells there when a result appears
(link/tracking.py), so nothing polls, and nothing is registered that somebody would have to clean up.

A look reads the result, and whether the job is there. If a server or a proxy does not tell of changes, or the user may
not ask for it, looks are repeated instead. That a job's topic or group was deleted, or Redis lost it, no change tells:
each wait looks again after about a minute.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from ...config import TopicSettings
from ...errors import (
    AuthenticationFailed,
    InvalidInput,
    ResultTimeout,
    ServerError,
    ServerUnavailable,
    UnknownGroup,
    UnsupportedServer,
)
from ...keys import ShardKeys, candidate_shards
from ...link.connection import AsyncLink
from ...link.session import arun
from ...process.logs import log
from ...store.jobs import results
from ...store.jobs.progress import Phase
from ...store.jobs.results import Found, StoredResult
from ...store.redis_store import RedisStore
from ...times.durations import show_ms
from ..jobs.get import get
from .inside import check_outside
from .wanted import Wanted, gone, group_of

_RECHECK_S = 60.0
_FIRST_POLL_S, _LONGEST_POLL_S, _LONGEST_FAKE_POLL_S = 0.01, 1.0, 0.05
_AGAIN_S = 0.5
_NO_TRACKING_S = 60.0
"""For how long a server that does not report changes is polled, before tracking is tried again."""


class Waits:
    """The waits of one queue, in one event loop."""

    def __init__(self, link: AsyncLink, store: RedisStore) -> None:
        self._link = link
        self._store = store
        self._session = store.session
        self._one_at_a_time = asyncio.Semaphore(1)  # what does not go over the shared connection takes one other
        self._polls_until = float("inf") if self._session.is_fake else 0.0
        self._is_closed = False
        self._all: set[asyncio.Event] = set()

    def close(self) -> None:
        """Ends all waits."""
        self._is_closed = True
        for event in self._all:
            event.set()

    async def kept(self, wanted: Wanted, timeout_s: float) -> tuple[str, StoredResult]:
        """The group, and how it has ended the job, as soon as it has.

        Raises:
            UnknownTopic, UnknownGroup
            NoResult: the topic keeps no results of this group.
            ResultTimeout: the job has not ended within ``timeout_s``.
            ResultGone: there is neither the job nor a result.
            ServerUnavailable: Redis does not answer.
            InvalidInput: the job has not ended, and a handler waits for it whose own worker would run it.
        """
        wait = _Wait(self, wanted, timeout_s)
        kept = await wait.run()
        return wait.group, kept


class _Wait:
    def __init__(self, waits: Waits, wanted: Wanted, timeout_s: float) -> None:
        self._waits = waits
        self._link, self._store, self._session = waits._link, waits._store, waits._session
        self._wanted = wanted
        self._topic, self._id, self._key = wanted.topic, wanted.id, wanted.key
        self._asked_group = wanted.group
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._changed = asyncio.Event()
        self._poll_s = _FIRST_POLL_S
        self._watched: set[str] = set()
        self._failing_since: float | None = None
        self._has_answered = False
        self._look_closely_at = self._after_a_while()

    @staticmethod
    def _after_a_while() -> float:
        return time.monotonic() + _RECHECK_S * random.uniform(0.8, 1.2)  # noqa: S311 - no secret

    async def run(self) -> StoredResult:
        self._waits._all.add(self._changed)
        try:
            await self._prepare(anew=False)
            return await self._until_kept()
        finally:
            self._waits._all.discard(self._changed)
            self._unwatch()

    async def _prepare(self, *, anew: bool) -> None:
        """Where to look."""
        async with self._waits._one_at_a_time:
            settings = await arun(self._link, self._store.topics.get(self._topic, anew=anew))
            try:
                self.group = group_of(settings, self._asked_group, self._topic)
            except (InvalidInput, UnknownGroup):
                if anew:
                    raise
                settings = await arun(self._link, self._store.topics.get(self._topic, anew=True))
                self.group = group_of(settings, self._asked_group, self._topic)
        self._settings = settings
        self._shards = self._places(settings)

    def _places(self, settings: TopicSettings) -> Sequence[ShardKeys]:
        """The shards that may have the job, or its result. A job with a key is in the shard of the key."""
        numbers: Sequence[int] = candidate_shards(self._id, settings.shards, settings.former, self._key)
        if self._key is None and settings.sharded_by_key:
            numbers = range(settings.layout.in_use)
        return [self._session.keys.shard(self._topic, number) for number in numbers]

    async def _until_kept(self) -> StoredResult:
        while True:
            if self._changed.is_set() and (kept := await self._notified()) is not None:
                return kept
            self._changed.clear()
            if (found := await self._looked()) is not None:
                kept, lives = self._judged(found)
                if kept is not None:
                    return kept
                if not lives:
                    raise gone(self._topic, self._id)
                if self._left_s <= 0:
                    raise self._time_out()
                check_outside(self._session.keys.namespace, self._wanted)
            await self._wait()

    async def _looked(self) -> Sequence[Found] | None:
        """None: Redis does not answer; the caller tries again.

        Raises:
            ServerError: it has not answered for too long.
        """
        if self._waits._is_closed:
            raise ServerUnavailable("result: the queue was closed while this call waited")
        try:
            if time.monotonic() >= self._look_closely_at:
                await self._look_closely()
            found = await self._look()
            if self._is_outdated(found) or _is_nowhere(found):
                await self._prepare(anew=True)
                found = await self._look()
            if self._settings.most_shards and _is_nowhere(found):
                found = await self._look_everywhere()
        except ServerError as error:
            if self._is_final(error):
                raise
            return None
        self._failing_since, self._has_answered = None, True
        return found

    def _is_final(self, error: ServerError) -> bool:
        """A wait that has begun outlasts a failure of Redis; one that begins ends like any other call."""
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        is_down = not self._has_answered and now - self._failing_since >= self._session.settings.call_timeout_s
        return isinstance(error, AuthenticationFailed | UnsupportedServer) or is_down or self._left_s <= 0

    def _time_out(self) -> ResultTimeout:
        shown = show_ms(int(self._timeout_s * 1000))
        return ResultTimeout(
            f"job {self._id!r} of topic {self._topic!r} has not ended within {shown}; it goes on, and its result can "
            "be asked for again"
        )

    @property
    def _left_s(self) -> float:
        return self._deadline - time.monotonic()

    async def _wait(self) -> None:
        """Until something may have changed."""
        most_s = min(self._left_s, max(0.0, self._look_closely_at - time.monotonic()))
        if self._failing_since is not None:
            most_s = min(most_s, random.uniform(_AGAIN_S / 2, _AGAIN_S))  # noqa: S311 - no secret
        if time.monotonic() < self._waits._polls_until:
            most_s = min(most_s, self._poll_s)
            longest_s = _LONGEST_FAKE_POLL_S if self._session.is_fake else _LONGEST_POLL_S
            self._poll_s = min(self._poll_s * 1.5, longest_s)
        try:
            async with asyncio.timeout(most_s):
                await self._changed.wait()
        except TimeoutError:
            return

    # -- looks

    async def _look(self) -> Sequence[Found]:
        """What each of the shards has of the job."""
        waits = self._waits
        if self._timeout_s > 0 and time.monotonic() >= waits._polls_until:
            try:
                return await self._tracked()
            except ServerUnavailable:
                raise
            except ServerError as error:
                if time.monotonic() >= waits._polls_until:
                    waits._polls_until = time.monotonic() + _NO_TRACKING_S
                    log.debug("Redis does not tell of changes here, so results are polled", why=str(error))
        async with waits._one_at_a_time:
            return await arun(self._link, results.look(self._session, self._shards, self.group, self._id))

    async def _look_everywhere(self) -> Sequence[Found]:
        """What all shards have that the topic has ever had: a result stays where the job has ended, also if its id
        belongs to another shard by now.
        """
        shards = [self._session.keys.shard(self._topic, number) for number in range(self._settings.reach)]
        places = [(shard, self.group, self._id) for shard in shards]
        async with self._waits._one_at_a_time:
            kept = await arun(self._link, results.stored_results(self._session, places))
        self._shards = shards
        return [Found(one, lives=False, progress=None, layout="") for one in kept]

    async def _tracked(self) -> Sequence[Found]:
        timeout_s = min(self._session.settings.call_timeout_s, max(1.0, self._left_s))
        self._watched |= {shard.result_of(self.group, self._id) for shard in self._shards}
        looking = results.look_and_watch(self._session, self._shards, self.group, self._id, self._notify, timeout_s)
        return await arun(self._link, looking)

    async def _notified(self) -> StoredResult | None:
        """The result, after Redis has reported that the key has changed; None: it is not that simple."""
        if len(self._shards) > 1 or self._waits._is_closed or time.monotonic() < self._waits._polls_until:
            return None
        timeout_s = min(self._session.settings.call_timeout_s, max(1.0, self._left_s))
        shard = self._shards[0]
        reading = results.read_when_notified(self._session, shard, self.group, self._id, self._notify, timeout_s)
        try:
            return await arun(self._link, reading)
        except ServerError:
            return None  # as the connection was lost

    def _notify(self, _key: str) -> None:
        self._changed.set()

    def _unwatch(self) -> None:
        for key in self._watched:
            self._link.forget_looks(key, self._notify)

    def _is_outdated(self, found: Sequence[Found]) -> bool:
        """Whether the job may be in a shard that this process does not know of."""
        return any(one.layout not in ("", self._settings.layout.text) for one in found)

    def _judged(self, found: Sequence[Found]) -> tuple[StoredResult | None, bool]:
        """How the job has ended, if it has; and whether it is still there. A job that lives in one shard makes results
        in others those of earlier jobs with its id; and of several the last one counts.
        """
        for shard, one in zip(self._shards, found, strict=True):
            if one.lives:
                if one.kept is None and one.progress is not None:
                    if one.progress.phase is Phase.DEAD:
                        return results.of_dead(one.progress), True
                    if one.progress.phase is Phase.ENDED_IN_GROUP:
                        return None, False
                if len(self._shards) > 1:
                    self._unwatch()
                    self._shards = [shard]
                    self._changed.set()  # it may have ended before the key alone was watched
                return one.kept, True
        kept = [one.kept for one in found if one.kept is not None]
        return max(kept, key=lambda one: one.ended_ms, default=None), False

    async def _look_closely(self) -> None:
        """Reads the topic's settings anew, and whether the group still has to do with the job."""
        await self._prepare(anew=True)
        async with self._waits._one_at_a_time:
            job = await arun(self._link, get(self._store, self._topic, self._id, key=self._key))
        if job is not None and self.group not in job.groups:
            raise gone(self._topic, self._id)
        self._look_closely_at = self._after_a_while()


def _is_nowhere(found: Sequence[Found]) -> bool:
    """Whether there is neither the job nor a result."""
    return not any(one.lives or one.kept for one in found)
