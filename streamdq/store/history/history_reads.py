"""Reads of a shard's history stream, and of its counters and registered dumps. Each is one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...keys import ShardKeys
from ...link.command import Command
from ...link.session import Op, Session, checked
from ..commands import in_steps, one
from ..counters import ShardCounter
from ..stream_entries import Entry
from .rows import RegisteredDump, dumps_in

RawEntry = tuple[bytes, Sequence[bytes]]
"""As Redis returns it: the id, and [b"e", row]. It stays raw because thousands are read at once."""


def rows_after(session: Session, shard: ShardKeys, after: str, count: int, until: str = "+") -> Op[list[RawEntry]]:
    """Up to ``count`` entries after ``after`` ('': from the oldest on), up to ``until``, oldest first."""
    start = f"({after}" if after else "-"
    found: list[RawEntry] = yield from one(
        session, shard.history, "XRANGE", shard.history, start, until, "COUNT", count
    )
    return found


def rows_before(session: Session, shard: ShardKeys, before: str, count: int) -> Op[list[Entry]]:
    """Up to ``count`` entries before ``before`` ('': from the newest on), newest first."""
    end = f"({before}" if before else "+"
    reply = yield from one(session, shard.history, "XREVRANGE", shard.history, end, "-", "COUNT", count)
    return _entries(reply)


def newest_rows(session: Session, asked: Sequence[tuple[ShardKeys, int]]) -> Op[list[list[Entry]]]:
    """For each (shard, count): that many entries, newest first. One call per STEP shards."""
    commands = [Command(k.history, ("XREVRANGE", k.history, "+", "-", "COUNT", count)) for k, count in asked]
    replies = yield from in_steps(session, commands)
    return [_entries(reply) for reply in replies]


def rows_from(session: Session, places: Sequence[tuple[ShardKeys, str]], count: int) -> Op[list[list[Entry]]]:
    """For each (shard, start): up to ``count`` entries from there on, oldest first. ``start`` as for XRANGE."""
    commands = [Command(k.history, ("XRANGE", k.history, start, "+", "COUNT", count)) for k, start in places]
    return [_entries(reply) for reply in (yield from in_steps(session, commands))]


def rows_until(session: Session, places: Sequence[tuple[ShardKeys, str]], count: int) -> Op[list[list[Entry]]]:
    """For each (shard, entry): up to ``count`` entries before the given one ('': from the newest on), newest first."""
    commands = [
        Command(k.history, ("XREVRANGE", k.history, f"({before}" if before else "+", "-", "COUNT", count))
        for k, before in places
    ]
    return [_entries(reply) for reply in (yield from in_steps(session, commands))]


def failures_at(session: Session, places: Sequence[tuple[ShardKeys, str]]) -> Op[list[bytes | None]]:
    """For each (shard, row): what is kept of the failure; None for nothing."""
    commands = [Command(k.failures, ("XRANGE", k.failures, row, row)) for k, row in places]
    replies = yield from in_steps(session, commands)
    return [found[0].value if (found := _entries(reply)) else None for reply in replies]


def first_rows(session: Session, shards: Sequence[ShardKeys]) -> Op[list[str]]:
    """The first row that each shard ever had; "" if there was none yet."""
    replies = yield from in_steps(session, [Command(k.settings, ("HGET", k.settings, "history_since")) for k in shards])
    return [(checked(reply) or b"").decode() for reply in replies]


def _entries(reply: Any) -> list[Entry]:
    return [Entry(id.decode(), fields[1]) for id, fields in checked(reply)]


def has_history(session: Session, shard: ShardKeys) -> Op[bool]:
    """Whether the stream exists."""
    return bool((yield from one(session, shard.history, "EXISTS", shard.history)))


def has_row(session: Session, shard: ShardKeys, entry: str) -> Op[bool]:
    return bool((yield from one(session, shard.history, "XRANGE", shard.history, entry, entry)))


def ended_history(session: Session, shard: ShardKeys) -> Op[tuple[str, int]]:
    """For a history stream that was deleted with its topic: its first row ever, and how many rows it had; ('', 0) if
    there was none.
    """
    value: bytes | None = yield from one(session, shard.settings, "HGET", shard.settings, "history_ended")
    since, _, written = (value or b"").decode().partition(":")
    return since, int(written or 0)


class Undumped(NamedTuple):
    """A shard's history and the dumps registered for it."""

    dumps: list[RegisteredDump]
    since: str  # the first row ever; '' if there was none yet
    written: int  # rows ever


def undumped(session: Session, shard: ShardKeys) -> Op[Undumped]:
    """How far the registered dumps and the history itself have got."""
    shown, counted = yield from session.call(
        [
            Command(shard.settings, ("HMGET", shard.settings, "dumps", "history_since")),
            Command(shard.counts, ("HGET", shard.counts, ShardCounter.HISTORY)),
        ]
    )
    dumps, since = checked(shown)
    return Undumped(dumps_in(dumps), (since or b"").decode(), int(checked(counted) or 0))


class HistoryEnds(NamedTuple):
    """A history stream at one moment. If it is empty, ``first`` and ``last`` are ''."""

    since: str  # the first row ever; '' if there was none yet
    written: int  # rows ever, up to ``last``
    first: str
    last: str
    length: int


def history_ends(session: Session, shard: ShardKeys) -> Op[HistoryEnds | None]:
    """None: the stream grew during the read, so read it again. Rows and their count are written together. So if the
    count is the same before and after, it belongs to the rows read in between.
    """
    history, count = shard.history, Command(shard.counts, ("HGET", shard.counts, ShardCounter.HISTORY))
    replies = yield from session.call(
        [
            count,
            Command(history, ("XREVRANGE", history, "+", "-", "COUNT", 1)),
            Command(history, ("XRANGE", history, "-", "+", "COUNT", 1)),
            Command(history, ("XLEN", history)),
            Command(shard.settings, ("HGET", shard.settings, "history_since")),
            count,
        ]
    )
    before, newest, oldest, length, since, after = map(checked, replies)
    if before != after:
        return None
    last, first = (entries[0][0].decode() if entries else "" for entries in (newest, oldest))
    return HistoryEnds((since or b"").decode(), int(after or 0), first, last, length)
