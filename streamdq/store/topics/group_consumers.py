"""Plain reads of the consumers of groups, and whether they are alive."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ...link.command import Command
from ...link.session import Op, Session
from .. import namespace
from ..commands import in_steps

_ALIVE_MS = 150_000
_FINDER = b"_reclaim"  # the pseudo-consumer that finds jobs whose TTR has passed


class GroupConsumer(NamedTuple):
    """A consumer, as seen by one stream. ``name``: for people, as another client's need not be UTF-8; ``raw``: as Redis
    has it.
    """

    name: str
    raw: bytes
    pending: int
    idle_ms: int


def consumers(session: Session, places: Sequence[tuple[str, str]]) -> Op[list[list[GroupConsumer]]]:
    """The consumers of each (stream, group); none if there is no such group."""
    replies = yield from in_steps(
        session, [Command(name, ("XINFO", "CONSUMERS", name, group)) for name, group in places]
    )
    return [_consumers(reply) for reply in replies]


def live_consumers(session: Session, places: Sequence[tuple[str, str]]) -> Op[list[int]]:
    """How many consumers of each (stream, group) are alive: those whose processes are, and any other that has read
    lately. One with pending claims counts as well, until these are taken over.
    """
    alive = yield from namespace.alive(session)
    commands = [Command(name, ("XINFO", "CONSUMERS", name, group)) for name, group in places]
    return [alive_in(reply, alive) for reply in (yield from in_steps(session, commands))]


def alive_beside(session: Session, places: Sequence[tuple[str, str]], own: str) -> Op[list[bool]]:
    """Whether each (stream, group) has a consumer that is alive, beside the one of this name."""
    alive = yield from namespace.alive(session)
    return [
        any(_lives(one, alive) and one.name not in (own, _FINDER.decode()) for one in found)
        for found in (yield from consumers(session, places))
    ]


def alive_in(reply: Any, alive: Collection[str]) -> int:
    return sum(1 for one in _consumers(reply) if one.raw != _FINDER and _lives(one, alive))


def _lives(one: GroupConsumer, alive: Collection[str]) -> bool:
    return bool(one.pending or one.idle_ms < _ALIVE_MS or one.name in alive)


def _consumers(reply: Any) -> list[GroupConsumer]:
    rows = reply if isinstance(reply, list) else []
    return [
        GroupConsumer(name.decode(errors="replace"), name, pending, idle_ms)
        for _, name, _, pending, _, idle_ms, *_ in rows
    ]
