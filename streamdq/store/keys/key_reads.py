"""Plain reads of the jobs that wait for their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...keys import ShardKeys
from ...link.command import Command
from ...link.session import Op, Session, checked
from .. import stream_entries
from ..commands import in_steps, one
from ..jobs.members import group_key, member_in, split_group_key
from ..jobs.progress import progress_field

_PAGE = 500


def most_waiting(session: Session, shard: ShardKeys, group: str, limit: int) -> Op[dict[str, int]]:
    """The keys for which most of the group's jobs wait in the shard, at most ``limit``, and how many. What other groups
    wait for is read and left out, a page at a time.
    """
    found: dict[str, int] = {}
    name, rank = shard.key_counts, 0
    while True:
        flat = yield from one(
            session, name, "ZRANGE", name, "+inf", 1, "BYSCORE", "REV", "LIMIT", rank, _PAGE, "WITHSCORES"
        )
        for name_of, waiting in zip(flat[::2], flat[1::2], strict=True):
            whose, key = split_group_key(name_of)
            if whose == group and len(found) < limit:
                found[key] = int(float(waiting))
        rank += _PAGE
        if len(found) >= limit or len(flat) < 2 * _PAGE:
            return found


def waiting(session: Session, places: Sequence[tuple[ShardKeys, str]], group: str) -> Op[list[int]]:
    """How many of the group's jobs wait for each (shard, key)."""
    commands = [Command(k.key_counts, ("ZSCORE", k.key_counts, group_key(group, key))) for k, key in places]
    replies = yield from in_steps(session, commands)
    return [int(float(checked(reply) or 0)) for reply in replies]


def running(session: Session, shard: ShardKeys, group: str) -> Op[Counter[str]]:
    """How many jobs of each key, limited by it, the group has claimed in the shard. Reads its claims, a page at a
    time.
    """
    found: Counter[str] = Counter()
    own, start = shard.ready_of(group), "-"
    while True:
        (page,) = yield from stream_entries.pending(session, [(own, start)], group, _PAGE)
        entries = yield from stream_entries.entries_at(session, [(own, entry.id) for entry in page])
        fields = [progress_field(group, member_in(entry.value).id) for entry in entries if entry]
        if fields:
            tickets = yield from one(session, shard.key_tickets, "HMGET", shard.key_tickets, *fields)
            found.update(split_group_key(ticket)[1] for ticket in tickets if ticket)
        if len(page) < _PAGE:
            return found
        start = f"({page[-1].id}"


def paused(session: Session, shard: ShardKeys, limit: int) -> Op[list[str]]:
    """Keys of the shard that are paused, at most ``limit``."""
    found = yield from one(session, shard.key_paused, "ZRANGEBYSCORE", shard.key_paused, "0", "0", "LIMIT", 0, limit)
    return [key.decode() for key in found]


def are_paused(session: Session, places: Sequence[tuple[ShardKeys, str]]) -> Op[list[bool]]:
    """Whether each (shard, key) is paused."""
    commands = [Command(k.key_paused, ("ZSCORE", k.key_paused, key)) for k, key in places]
    replies = yield from in_steps(session, commands)
    return [checked(reply) is not None for reply in replies]
