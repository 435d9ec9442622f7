"""The store that operations work on."""

from __future__ import annotations

from ..link.session import Session
from .scripts import Scripts
from .topics import Topics


class RedisStore:
    """One namespace in Redis, as one process sees it: the scripts, the topics known here, and the session for plain
    reads. It is the first argument of every operation.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.scripts = Scripts(session)
        self.topics = Topics(session, self.scripts)
