"""Plain reads of jobs in the order of time: buckets, and groups' dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ...keys import ShardKeys
from ...link.command import Command
from ...link.session import Op, Session, checked
from ..commands import in_steps

Scored = tuple[int, bytes]
"""A member of a ZSET after its score, a time in ms."""


def _scored(reply: Any) -> list[Scored]:
    flat = checked(reply)
    return [(int(float(score)), member) for member, score in zip(flat[::2], flat[1::2], strict=True)]


def sizes(session: Session, places: Sequence[tuple[str, int | None, int | None]]) -> Op[list[int]]:
    """How many jobs there are in each (jobs, None, None), or members in each (ZSET, first time, last time)."""
    commands = [
        Command(key, ("HLEN", key) if first is None else ("ZCOUNT", key, first, last)) for key, first, last in places
    ]
    replies = yield from in_steps(session, commands)
    return [checked(reply) for reply in replies]


def by_rank(
    session: Session, places: Sequence[tuple[str, int]], count: int, *, newest_first: bool = False
) -> Op[list[list[Scored]]]:
    """For each (bucket or group's dead letters, rank): up to ``count`` members from that rank on, ordered by time."""
    order = ("REV",) if newest_first else ()
    replies = yield from in_steps(
        session, [Command(key, ("ZRANGE", key, rank, rank + count - 1, *order, "WITHSCORES")) for key, rank in places]
    )
    return [_scored(reply) for reply in replies]


def from_time(session: Session, places: Sequence[tuple[str, int, int]], count: int) -> Op[list[list[Scored]]]:
    """For each (bucket or group's dead letters, time in ms, offset): up to ``count`` members from that time on, ordered
    by time, without the first ``offset``, which Redis walks over.
    """
    replies = yield from in_steps(
        session,
        [
            Command(key, ("ZRANGEBYSCORE", key, from_ms, "+inf", "WITHSCORES", "LIMIT", offset, count))
            for key, from_ms, offset in places
        ],
    )
    return [_scored(reply) for reply in replies]


def since(session: Session, zsets: Sequence[str], from_ms: int) -> Op[list[int]]:
    """How many members of each ZSET are of that time or later."""
    replies = yield from in_steps(session, [Command(key, ("ZCOUNT", key, from_ms, "+inf")) for key in zsets])
    return [checked(reply) for reply in replies]


def by_time(
    session: Session, places: Sequence[tuple[str, int | None, int]], count: int, *, newest_first: bool
) -> Op[list[list[Scored]]]:
    """For each (ZSET, time in ms, offset): up to ``count`` members from that time on, or with ``newest_first`` back,
    without the first ``offset``; None: from the end.
    """

    def rows(key: str, from_ms: int | None, offset: int) -> Command:
        ends = ("+inf", "-inf", "BYSCORE", "REV") if newest_first else ("-inf", "+inf", "BYSCORE")
        first = ends[0] if from_ms is None else from_ms
        return Command(key, ("ZRANGE", key, first, *ends[1:], "LIMIT", offset, count, "WITHSCORES"))

    return [_scored(reply) for reply in (yield from in_steps(session, [rows(*place) for place in places]))]


def due_within(session: Session, shards: Sequence[ShardKeys], ends_ms: Sequence[int]) -> Op[list[int]]:
    """How many attempts in these buckets are due by each of these times."""
    replies = yield from in_steps(session, [command for shard in shards for command in due_commands(shard, ends_ms)])
    return [sum(map(checked, replies[i :: len(ends_ms)])) for i in range(len(ends_ms))]


def due_commands(shard: ShardKeys, ends_ms: Sequence[int]) -> list[Command]:
    return [Command(shard.bucket, ("ZCOUNT", shard.bucket, "-inf", end)) for end in ends_ms]


def due_between(session: Session, shards: Sequence[ShardKeys], times_ms: Sequence[int]) -> Op[list[list[int]]]:
    """For each bucket, how many attempts are due up to the first time, between each time and the next, and after the
    last.
    """
    bounds = list(pairwise(["-inf", *times_ms, "+inf"]))
    commands = [
        Command(shard.bucket, ("ZCOUNT", shard.bucket, start if start == "-inf" else f"({start}", end))
        for shard in shards
        for start, end in bounds
    ]
    counts: list[int] = [checked(reply) for reply in (yield from in_steps(session, commands))]
    return [counts[at : at + len(bounds)] for at in range(0, len(counts), len(bounds))]
