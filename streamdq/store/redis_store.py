"""The store that operations work on."""

from __future__ import annotations

from ..config import TopicSettings
from ..job.durability import MEMORY, check_level
from ..link.session import Session
from .durability import Durable
from .scripts import Scripts
from .topics.topics import Topics


class RedisStore:
    """One namespace in Redis, as one process sees it: the scripts, the topics known here, and the session for plain
    reads. It is the first argument of every operation.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.scripts = Scripts(session)
        self.topics = Topics(session, self.scripts)
        self._scripts_at = {MEMORY: self.scripts}

    def at(self, durable: str | None, settings: TopicSettings) -> Scripts:
        """The scripts at the level of durability that the call asks for; otherwise its topic's, otherwise this
        process's.
        """
        level = durable or settings.durable or self.session.settings.durable
        return self._scripts_at.get(level) or self._make(level)

    def _make(self, level: str) -> Scripts:
        check_level(level)
        # A server in this process's memory has neither a disk nor replicas, and is for tests.
        scripts = self.scripts if self.session.is_fake else Scripts(self.session, Durable(self.session, level).call)
        self._scripts_at[level] = scripts
        return scripts
