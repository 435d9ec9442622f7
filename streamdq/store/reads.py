"""Plain reads of shards: waiting and dead jobs, the counters, and the streams with their groups.

Each is an operation that returns typed values, so callers see neither Redis commands nor raw replies. Reads of several
shards are sent together, in calls of at most STEP commands, so most take one round trip. Error replies are raised
(``checked``), unless a docstring says otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ..config import layout_in
from ..keys import ShardKeys
from ..link.command import Command
from ..link.session import Op, Session, checked
from . import namespace
from .commands import in_steps, one
from .jobs.members import id_in
from .jobs.progress import Progress, progress_field, progress_in
from .topics.counters import GroupCounter, group_field

Scored = tuple[int, bytes]
"""A member of a ZSET after its score, a time in ms."""

_ALIVE_MS = 150_000
_FINDER = b"_reclaim"  # the pseudo-consumer that finds jobs whose TTR has passed

_PAGE_BYTES = 1024 * 1024
"""Of records that one HSCAN reads, if each is as large as the largest: about a millisecond of Redis's time."""


class Entry(NamedTuple):
    """An entry of a stream whose entries have one field."""

    id: str
    value: bytes


class PendingEntry(NamedTuple):
    """An entry that was delivered to a consumer and not acknowledged yet."""

    id: str
    consumer: str
    idle_ms: int


class GroupConsumer(NamedTuple):
    """A consumer, as seen by one stream. ``name``: for people, as another client's need not be UTF-8; ``raw``: as Redis
    has it.
    """

    name: str
    raw: bytes
    pending: int
    idle_ms: int


def _scored(reply: Any) -> list[Scored]:
    flat = checked(reply)
    return [(int(float(score)), member) for member, score in zip(flat[::2], flat[1::2], strict=True)]


# -- jobs


def with_job(session: Session, shards: Sequence[ShardKeys], id: str) -> Op[list[ShardKeys]]:
    """Those of the shards that have a job with this id."""
    replies = yield from in_steps(session, [Command(shard.jobs, ("HEXISTS", shard.jobs, id)) for shard in shards])
    return [shard for shard, reply in zip(shards, replies, strict=True) if checked(reply)]


def records_there(session: Session, shard: ShardKeys, ids: Sequence[str]) -> Op[list[bool]]:
    """Which of the ids the shard has jobs with."""
    replies = yield from in_steps(session, [Command(shard.jobs, ("HEXISTS", shard.jobs, id)) for id in ids])
    return [checked(reply) == 1 for reply in replies]


def sizes(session: Session, places: Sequence[tuple[str, int | None, int | None]]) -> Op[list[int]]:
    """How many jobs there are in each (jobs, None, None), or members in each (ZSET, first time, last time)."""
    commands = [
        Command(key, ("HLEN", key) if first is None else ("ZCOUNT", key, first, last)) for key, first, last in places
    ]
    replies = yield from in_steps(session, commands)
    return [checked(reply) for reply in replies]


# -- buckets and dead letters


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
    replies = yield from in_steps(session, [command for shard in shards for command in _due_within(shard, ends_ms)])
    return [sum(map(checked, replies[i :: len(ends_ms)])) for i in range(len(ends_ms))]


def _due_within(shard: ShardKeys, ends_ms: Sequence[int]) -> list[Command]:
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


def dead_now(session: Session, shard: ShardKeys, group: str) -> Op[int]:
    """How many dead letters the group has."""
    found: int = yield from one(session, shard.dead_of(group), "ZCARD", shard.dead_of(group))
    return found


def dead_until(session: Session, shard: ShardKeys, group: str, until_ms: int) -> Op[int]:
    """How many dead letters of the group were buried by then."""
    found: int = yield from one(session, shard.dead_of(group), "ZCOUNT", shard.dead_of(group), "-inf", until_ms)
    return found


def archive_receipts(session: Session, shard: ShardKeys) -> Op[list[bytes]]:
    """Receipts of letters that an archive took out or put back, as the scripts archive and restore leave them."""
    found: list[bytes] = yield from one(session, shard.archive, "HKEYS", shard.archive)
    return found


def drop_archive_receipts(session: Session, shard: ShardKeys, receipts: Sequence[str | bytes]) -> Op[None]:
    """Clears receipts that the archive's database knows of. This and the next are the only plain writes to a shard."""
    yield from one(session, shard.archive, "HDEL", shard.archive, *receipts)


def drop_outbox_receipts(session: Session, shards: Sequence[ShardKeys], receipts: Sequence[str]) -> Op[None]:
    """Clears receipts that no row needs any more."""
    for reply in (yield from session.call([Command(k.outbox, ("HDEL", k.outbox, *receipts)) for k in shards])):
        checked(reply)


def outbox_receipts(session: Session, shards: Sequence[ShardKeys], receipts: Sequence[str]) -> Op[list[bool]]:
    """Which receipts of a database's outbox are in one of these shards."""
    replies = yield from session.call([Command(k.outbox, ("HMGET", k.outbox, *receipts)) for k in shards])
    found = [checked(reply) for reply in replies]
    return [any(row[i] is not None for row in found) for i in range(len(receipts))]


def scan_outbox(session: Session, shard: ShardKeys, cursor: bytes, pattern: str) -> Op[tuple[bytes, list[str]]]:
    """The next cursor, b"0" at the end; and some receipts of databases' outboxes that match."""
    key = shard.outbox
    following, flat = yield from one(session, key, "HSCAN", key, cursor, "MATCH", pattern, "COUNT", 500)
    return following, [field.decode() for field in flat[::2]]


def jobs_page(
    session: Session, shard: ShardKeys, cursor: bytes, most: int
) -> Op[tuple[bytes, list[tuple[str, bytes]]]]:
    """The next cursor, b"0" at the end; and some of the shard's jobs, each with its record: about ``most``, or fewer if
    the shard has had large ones. A job that is there all the time comes at least once.
    """
    largest = yield from one(session, shard.settings, "HGET", shard.settings, "largest")
    count = max(1, min(most, _PAGE_BYTES // max(1, int(largest or 0))))
    following, flat = yield from one(session, shard.jobs, "HSCAN", shard.jobs, cursor, "COUNT", count)
    return following, [(id_in(id), record) for id, record in zip(flat[::2], flat[1::2], strict=True)]


def records(session: Session, jobs: Sequence[tuple[ShardKeys, str]]) -> Op[list[bytes | None]]:
    """The record of each (shard, id); None: there is no such job."""
    replies = yield from in_steps(session, [Command(k.jobs, ("HGET", k.jobs, id)) for k, id in jobs])
    return [checked(reply) for reply in replies]


# -- progress, counters, settings


def shard_counts(session: Session, shards: Sequence[ShardKeys]) -> Op[list[int]]:
    """For each shard, in how many shards its topic may have jobs, as far as it knows; 0 if there is no such shard."""
    replies = yield from in_steps(session, [Command(k.settings, ("HGET", k.settings, "shards")) for k in shards])
    return [layout_in((checked(reply) or b"0").decode()).in_use for reply in replies]


def progress(session: Session, jobs: Sequence[tuple[ShardKeys, str, str]]) -> Op[list[Progress | None]]:
    """The group's progress with each (shard, group, id); None if it has not begun."""
    commands = [Command(k.progress, ("HGET", k.progress, progress_field(group, id))) for k, group, id in jobs]
    replies = yield from in_steps(session, commands)
    return [progress_in(value) if (value := checked(reply)) else None for reply in replies]


def ready_counts(session: Session, shards: Sequence[ShardKeys], group: str) -> Op[list[int]]:
    """How many jobs are ready for the group in each shard, by its counters; one call."""
    field = group_field(GroupCounter.READY, group)
    replies = yield from session.call([Command(shard.counts, ("HGET", shard.counts, field)) for shard in shards])
    return [int(checked(reply) or 0) for reply in replies]


def versions(session: Session, shards: Sequence[ShardKeys]) -> Op[list[int | None]]:
    """The version of the topic's settings in each shard; None if the shard is missing or answers with an error. One
    call.
    """
    replies = yield from session.call([Command(k.settings, ("HGET", k.settings, "version")) for k in shards])
    return [int(reply) if isinstance(reply, bytes) else None for reply in replies]


class Watched(NamedTuple):
    """What the mover checks in shards. A shard that answers with an error has no head and no open jobs."""

    due_ms: list[int | None]  # of the head of each bucket
    now_ms: int | None  # only with counters
    open: list[bool]  # whether each shard has ready or claimed jobs; only with counters


def watch(session: Session, shards: Sequence[ShardKeys], groups: Sequence[Sequence[str]] | None) -> Op[Watched]:
    """The heads of the buckets. With ``groups``, the groups of each shard, also the time and the groups' counters. One
    call with one or two commands per shard.
    """
    commands = [Command(k.bucket, ("ZRANGE", k.bucket, 0, 0, "WITHSCORES")) for k in shards]
    if groups is not None:
        commands.append(Command(shards[0].bucket, ("TIME",)))
        commands += [
            Command(k.counts, ("HMGET", k.counts, *_open_fields(names)))
            for k, names in zip(shards, groups, strict=True)
        ]
    replies = yield from session.call(commands)
    due_ms = [int(float(head[1])) if isinstance(head, list) and head else None for head in replies[: len(shards)]]
    if groups is None:
        return Watched(due_ms, None, [])
    now, *counts = replies[len(shards) :]
    now_ms = int(now[0]) * 1000 + int(now[1]) // 1000 if isinstance(now, list) else None
    return Watched(due_ms, now_ms, [_any_above_0(reply) for reply in counts])


def _any_above_0(reply: Any) -> bool:
    return isinstance(reply, list) and any(int(count or 0) > 0 for count in reply)


def _open_fields(groups: Sequence[str]) -> list[str]:
    """The groups' counters of open jobs. Never empty, because HMGET needs a field."""
    counters = (GroupCounter.READY, GroupCounter.RUNNING)
    fields = [group_field(counter, group) for group in groups for counter in counters]
    return fields or [group_field(GroupCounter.READY, "")]


# -- streams and their groups


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
    return [_pending(reply) for reply in replies]


def _pending(reply: Any) -> list[PendingEntry]:
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
    return [_alive(reply, alive) for reply in (yield from in_steps(session, commands))]


def alive_beside(session: Session, places: Sequence[tuple[str, str]], own: str) -> Op[list[bool]]:
    """Whether each (stream, group) has a consumer that is alive, beside the one of this name."""
    alive = yield from namespace.alive(session)
    return [
        any(_lives(one, alive) and one.name not in (own, _FINDER.decode()) for one in found)
        for found in (yield from consumers(session, places))
    ]


def _alive(reply: Any, alive: Collection[str]) -> int:
    return sum(1 for one in _consumers(reply) if one.raw != _FINDER and _lives(one, alive))


def _lives(one: GroupConsumer, alive: Collection[str]) -> bool:
    return bool(one.pending or one.idle_ms < _ALIVE_MS or one.name in alive)


def _consumers(reply: Any) -> list[GroupConsumer]:
    rows = reply if isinstance(reply, list) else []
    return [
        GroupConsumer(name.decode(errors="replace"), name, pending, idle_ms)
        for _, name, _, pending, _, idle_ms, *_ in rows
    ]


# -- for metrics


class GroupGauges(NamedTuple):
    """The gauges of one group in one shard."""

    consumers: int  # that are alive
    oldest_ms: int  # the longest time that one of the first pending entries has been pending


class ScheduleCounts(NamedTuple):
    """How many schedules a topic has, how many of them will run again, and when a mover looks at the next one; None: at
    none.
    """

    total: int
    active: int
    look_ms: int | None


class ShardGauges(NamedTuple):
    """The gauges of one shard that are not in its stats."""

    due_within: list[int]
    schedules: ScheduleCounts | None
    groups: dict[str, GroupGauges]


class GaugesOf(NamedTuple):
    """A shard to be measured. ``busy``: those of its groups that may have pending entries. ``ends_ms`` as due_within
    takes them. ``scheduled``: it has its topic's schedules.
    """

    shard: ShardKeys
    groups: Sequence[str]
    busy: Collection[str]
    ends_ms: Sequence[int]
    scheduled: bool


def gauges(
    session: Session, asked: Sequence[GaugesOf], most_pending: int, alive: Collection[str]
) -> Op[list[ShardGauges]]:
    """One call. It has one command per time and per group, two more per busy group, and three if there are schedules;
    those of busy groups read up to ``most_pending`` pending entries of both streams. A missing group has no consumers
    and no pending entries. ``alive``: see namespace.alive.
    """
    commands = [command for one in asked for command in _gauge_commands(one, most_pending)]
    replies = iter((yield from session.call(commands)) if commands else ())
    return [
        ShardGauges(
            [checked(next(replies)) for _ in one.ends_ms],
            _schedule_counts(next(replies), next(replies), next(replies)) if one.scheduled else None,
            {
                group: GroupGauges(_alive(next(replies), alive), _oldest_ms(replies) if group in one.busy else 0)
                for group in one.groups
            },
        )
        for one in asked
    ]


def _gauge_commands(asked: GaugesOf, most_pending: int) -> list[Command]:
    shard = asked.shard
    commands = _due_within(shard, asked.ends_ms)
    if asked.scheduled:
        commands += [
            Command(shard.schedules, ("HLEN", shard.schedules)), Command(shard.ticks, ("ZCARD", shard.ticks)),
            Command(shard.ticks, ("ZRANGE", shard.ticks, 0, 0, "WITHSCORES")),
        ]  # fmt: skip
    for group in asked.groups:
        commands.append(Command(shard.ready, ("XINFO", "CONSUMERS", shard.ready, group)))
        if group in asked.busy:
            streams = (shard.ready, shard.ready_of(group))
            commands += [Command(name, ("XPENDING", name, group, "-", "+", most_pending)) for name in streams]
    return commands


def _schedule_counts(total: Any, active: Any, first: Any) -> ScheduleCounts:
    look = checked(first)
    return ScheduleCounts(checked(total), checked(active), int(float(look[1])) if look else None)


def _oldest_ms(replies: Iterator[Any]) -> int:
    """Of the pending entries of both streams."""
    return max((entry.idle_ms for _ in range(2) for entry in _pending(next(replies))), default=0)
