"""Plain reads of streams and of what their groups have pending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..keys import ShardKeys
from ..link.command import Command
from ..link.session import Op, Session, checked
from .commands import in_steps


class Entry(NamedTuple):
    """An entry of a stream whose entries have one field."""

    id: str
    value: bytes


class PendingEntry(NamedTuple):
    """An entry that was delivered to a consumer and not acknowledged yet."""

    id: str
    consumer: str
    idle_ms: int


def entries(session: Session, places: Sequence[tuple[str, str]], count: int) -> Op[list[list[Entry]]]:
    """For each (stream, start): up to ``count`` entries from there on. ``start`` as for XRANGE: "-", an id, or
    "(id".
    """
    replies = yield from in_steps(
        session, [Command(name, ("XRANGE", name, start, "+", "COUNT", count)) for name, start in places]
    )
    return [_entries(reply) for reply in replies]


def _entries(reply: Any) -> list[Entry]:
    return [Entry(id.decode(), fields[1]) for id, fields in checked(reply)]


def entries_at(session: Session, places: Sequence[tuple[str, str]]) -> Op[list[Entry | None]]:
    """The entry of each (stream, id), or None if it is gone."""
    replies = yield from in_steps(session, [Command(name, ("XRANGE", name, id, id)) for name, id in places])
    return [next(iter(_entries(reply)), None) for reply in replies]


def delivered(session: Session, streams: Sequence[str], group: str) -> Op[list[str]]:
    """The last entry of each stream that was delivered to the group; "0-0" if there is no such group."""
    replies = yield from in_steps(session, [Command(name, ("XINFO", "GROUPS", name)) for name in streams])
    return [_delivered(reply, group) for reply in replies]


def _delivered(reply: Any, group: str) -> str:
    for row in reply if isinstance(reply, list) else []:
        values = dict(zip(row[::2], row[1::2], strict=True))
        if values[b"name"].decode() == group:
            return str(values[b"last-delivered-id"].decode())
    return "0-0"


def first_unread(session: Session, places: Sequence[tuple[str, str]]) -> Op[list[str]]:
    """The first entry of each (stream, group) that was not delivered to the group yet; "" if there is none."""
    streams = list(dict.fromkeys(name for name, _ in places))
    replies = yield from in_steps(session, [Command(name, ("XINFO", "GROUPS", name)) for name in streams])
    groups = dict(zip(streams, replies, strict=True))
    starts = [(name, f"({_delivered(groups[name], group)}") for name, group in places]
    found = yield from entries(session, starts, 1)
    return [rows[0].id if rows else "" for rows in found]


def pending(
    session: Session, places: Sequence[tuple[str, str]], group: str, count: int
) -> Op[list[list[PendingEntry]]]:
    """For each (stream, start): up to ``count`` of the group's pending entries from there on; none if there is no such
    group.
    """
    replies = yield from in_steps(
        session, [Command(name, ("XPENDING", name, group, start, "+", count)) for name, start in places]
    )
    return [pending_in(reply) for reply in replies]


def pending_in(reply: Any) -> list[PendingEntry]:
    rows = reply if isinstance(reply, list) else []
    return [PendingEntry(id.decode(), consumer.decode(errors="replace"), idle_ms) for id, consumer, idle_ms, *_ in rows]


def unclaimed(session: Session, shard: ShardKeys, group: str) -> Op[int]:
    """How many of the group's own entries wait for a claim: retries, kicked and handed-over jobs. One call.

    Raises:
        GroupMissing
    """
    own = shard.ready_of(group)
    length, waiting = yield from session.call([Command(own, ("XLEN", own)), Command(own, ("XPENDING", own, group))])
    return int(checked(length)) - int(checked(waiting)[0])
