"""For tests without a server: a link whose answers come from a table and that keeps each call, and what works on it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, NamedTuple

import pytest

from streamdq.config import Settings, TopicSettings
from streamdq.link.address import Target
from streamdq.link.command import Command
from streamdq.link.failures import LinkError
from streamdq.link.session import Session
from streamdq.store.assembly import function_of, script_names, sha_of
from streamdq.store.redis_store import RedisStore
from streamdq.times.clock import RedisClock

LOST = LinkError(TimeoutError("no reply"), sent=True)


class Call(NamedTuple):
    """One call of a script, or one plain command without keys."""

    name: str
    keys: tuple[Any, ...]
    args: tuple[Any, ...]


@cache
def _names() -> dict[str, str]:
    return {word: name for name in script_names() for word in (function_of(name), sha_of(name))}


def call_of(command: Command) -> Call:
    """Which script with what, or which command."""
    name, *rest = command.args
    if name not in ("FCALL", "EVALSHA"):
        return Call(str(name), (), tuple(rest))
    function, count, *rest = rest
    return Call(_names()[function], tuple(rest[:count]), tuple(rest[count:]))


class FakeLink:
    """Stands in for AsyncLink. ``answers``: by the name of a script or command, what makes the reply to a Call. A reply
    that is a coroutine is awaited, a LinkError is raised; each round trip ``takes_s``.
    """

    is_cluster = False

    def __init__(self, takes_s: float = 0.0001) -> None:
        self.answers: dict[str, Callable[[Call], Any]] = {}
        self.calls: dict[str, list[Call]] = defaultdict(list)
        self.takes_s = takes_s

    async def send(self, commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:  # noqa: ARG002
        calls = [call_of(command) for command in commands]
        for call in calls:
            self.calls[call.name].append(call)
        replies = [self.answers[call.name](call) for call in calls]
        await asyncio.sleep(self.takes_s)  # real time: or virtual; nothing depends on its length
        for i, reply in enumerate(replies):
            if asyncio.iscoroutine(reply):
                replies[i] = await reply
            if isinstance(reply, LinkError):
                raise reply
        return replies

    @staticmethod
    def begin(_commands: Sequence[Command], _timeout_s: float) -> None:
        """Each call is awaited."""

    @staticmethod
    def drop_begun() -> None:
        """There is none."""

    @staticmethod
    def node_of(_key: str) -> str:
        return ""


def session_of(clock: RedisClock | None = None, **settings: Any) -> Session:
    target = Target("node", "redis://nowhere:1/0")
    session = Session(Settings(url="memory://unused", **settings), "ns", clock or RedisClock(), target)
    session.permitted.add("")  # it has all rights
    return session


def store_of(session: Session, **known: TopicSettings) -> RedisStore:
    """With a registry that is known already."""
    store = RedisStore(session)
    store.topics.known = dict(known)
    return store


class Rig(ABC):
    """A loop of streamdq's without a server, and what it works on: a link, and a registry with the ``topics``."""

    def __init__(
        self,
        topics: dict[str, TopicSettings],
        clock: RedisClock | None = None,
        takes_s: float = 0.0001,
        **settings: Any,
    ) -> None:
        self.link: Any = FakeLink(takes_s)
        self.session = session_of(clock, **settings)
        self.store = store_of(self.session, **topics)
        self.topics = self.store.topics

    @abstractmethod
    async def run(self) -> None:
        """The loop."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """It runs meanwhile, and would do so for ever."""
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
