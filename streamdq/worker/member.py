"""Who claims, runs and ends a group's jobs here, and on which Redis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..codec.protocol import Codec
from ..config import Settings
from ..job.job import Job
from ..job.retry import RetrySchedule
from ..link.connection import AsyncLink
from ..link.session import Session
from ..operations.attempts.claimed import ClaimedJob
from ..store.redis_store import RedisStore
from ..store.scripts import Scripts
from ..store.topics.topics import Topics
from ..times.clock import RedisClock


@dataclass(frozen=True, slots=True)
class Where:
    """The Redis that a worker uses, and how: as for ``open_session``."""

    url: str | None
    namespace: str
    settings: Settings
    clock: RedisClock | None = None
    codec: Sequence[Codec] | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer of a group, and how it reaches Redis."""

    link: AsyncLink
    store: RedisStore
    group: str
    consumer: str

    @property
    def session(self) -> Session:
        return self.store.session

    @property
    def scripts(self) -> Scripts:
        return self.store.scripts

    @property
    def topics(self) -> Topics:
        return self.store.topics

    @property
    def namespace(self) -> str:
        return self.store.session.keys.namespace

    def retry_of(self, held: ClaimedJob) -> RetrySchedule:
        """The group's schedule; a job's own comes before it."""
        return self.topics.settings_of(held.job.topic).retry_of(self.group)

    def naming(self, job: Job) -> dict[str, Any]:
        """The fields that name a job in the log."""
        return {
            "topic": job.topic, "id": job.id, "group": self.group, "attempt": job.attempt, "consumer": self.consumer,
        }  # fmt: skip
