"""All that an operation works on."""

from __future__ import annotations

from ..link.session import Session
from .scripts import Scripts
from .topics import Topics


class RedisStore:
    """One namespace in Redis, as one process sees it: its scripts, the topics that are known here, and the session that
    plain reads need. Operations are functions whose first argument it is.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.scripts = Scripts(session)
        self.topics = Topics(session, self.scripts)
