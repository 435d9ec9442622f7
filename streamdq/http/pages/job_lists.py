"""Lists of a topic's jobs by state, a page at a time. A page costs the same however many jobs there are: it begins
where the previous one ended, by rank in a ZSET or by entry in a stream, and reads at most a page from each shard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import NamedTuple

from ...errors import InvalidInput
from ...job.after import NEVER_MS
from ...job.job import JobState
from ...keys import ShardKeys
from ...link.session import Op
from ...operations.dead_letters.failed import delivery_of
from ...operations.known import known_group
from ...store import stream_entries
from ...store.entries import ms_of, order_of
from ...store.jobs import lookup, ordered
from ...store.jobs.members import id_in, member_in
from ...store.jobs.progress import Phase, Progress
from ...store.redis_store import RedisStore

PAGE = 50
_SHOWN_LAST = re.compile(r"([0-9]{1,15}-[0-9]{1,15})\.([0-9]{1,6})")  # an entry, and its stream


@dataclass(slots=True)
class ListedJob:
    """One job in a list. ``at_ms``: when it is due, became ready, started or died, depending on its state."""

    id: str
    at_ms: int
    group: str | None = None
    attempt: int = 0
    consumer: str | None = None
    deadline_ms: int | None = None
    reason: str | None = None
    error: str | None = None
    waits: bool = False  # for other jobs: it has no due time yet
    shown: str = ""  # of a dead letter: its shard, and which delivery it is


@dataclass(slots=True)
class Listed:
    """A page of jobs. ``next``: the cursor of the next page, '' on the last one."""

    lines: list[ListedJob] = field(default_factory=list)
    next: str = ""


def listed(
    store: RedisStore, topic: str, group: str, state: JobState, cursor: str, lost: Collection[ShardKeys] = ()
) -> Op[Listed]:
    """A page of the group's jobs in one state, without those of ``lost`` shards.

    Raises:
        UnknownTopic, UnknownGroup
        InvalidInput: the cursor does not come from a page.
    """
    if not lost:
        yield from known_group(store, topic, group, anew=True)
    shards = [shard for shard in store.topics.shards(topic) if shard not in lost]
    if state is JobState.DELAYED:
        return (yield from _delayed(store, shards, cursor))
    if state is JobState.DEAD:
        return (yield from _dead(store, shards, group, cursor))
    read = _ready if state is JobState.READY else _running
    return (yield from _streamed(store, shards, group, cursor, read))


# -- by rank


def _ranks(cursor: str, shards: Sequence[ShardKeys]) -> list[int]:
    if not cursor:
        return [0] * len(shards)
    ranks = cursor.split(".")
    if len(ranks) != len(shards) or not all(rank.isascii() and rank.isdigit() and len(rank) < 16 for rank in ranks):
        raise InvalidInput("from: invalid; use the link of an earlier page")
    return [int(rank) for rank in ranks]


def _ranked(
    store: RedisStore, shards: Sequence[ShardKeys], cursor: str, key: Callable[[ShardKeys], str], newest_first: bool
) -> Op[tuple[list[tuple[ShardKeys, bytes, int]], str]]:
    """(shard, member, score) of the page's jobs, and the next cursor: how many jobs of each shard were shown."""
    ranks = _ranks(cursor, shards)
    places = [(key(shard), rank) for shard, rank in zip(shards, ranks, strict=True)]
    found = yield from ordered.by_rank(store.session, places, PAGE + 1, newest_first=newest_first)
    rows = [[(score, member, number) for score, member in members] for number, members in enumerate(found)]
    page = list(islice(merge(*rows, reverse=newest_first), PAGE + 1))
    for _, _, number in page[:PAGE]:
        ranks[number] += 1
    following = ".".join(map(str, ranks)) if len(page) > PAGE else ""
    return [(shards[number], member, score) for score, member, number in page[:PAGE]], following


def _delayed(store: RedisStore, shards: Sequence[ShardKeys], cursor: str) -> Op[Listed]:
    page, following = yield from _ranked(store, shards, cursor, lambda shard: shard.bucket, newest_first=False)
    found = [(shard, member_in(member), due_ms) for shard, member, due_ms in page]
    known = yield from lookup.progress(
        store.session, [(shard, member.group or "", member.id) for shard, member, _ in found]
    )
    lines = []
    for (_, member, due_ms), progress in zip(found, known, strict=True):
        line = ListedJob(member.id, due_ms, member.group, waits=due_ms == NEVER_MS)
        if member.group and progress:
            line.attempt, line.error = progress.attempt, progress.error or None
        lines.append(line)
    return Listed(lines, following)


def _dead(store: RedisStore, shards: Sequence[ShardKeys], group: str, cursor: str) -> Op[Listed]:
    page, following = yield from _ranked(store, shards, cursor, lambda shard: shard.dead_of(group), newest_first=True)
    known = yield from lookup.progress(store.session, [(shard, group, id_in(member)) for shard, member, _ in page])
    lines = []
    for (shard, member, died_ms), progress in zip(page, known, strict=True):
        line = ListedJob(id_in(member), died_ms, group)
        if progress:
            line.attempt, line.reason, line.error = progress.attempt, progress.reason, progress.error
            line.shown = f"{shard.shard}.{delivery_of(progress)}"
        lines.append(line)
    return Listed(lines, following)


# -- by entry


class _Stream(NamedTuple):
    shard: ShardKeys
    name: str
    own: bool


_Read = Callable[[RedisStore, Sequence[_Stream], str, Sequence[str]], Op[list[list[tuple[str, ListedJob]]]]]


def _streamed(store: RedisStore, shards: Sequence[ShardKeys], group: str, cursor: str, read: _Read) -> Op[Listed]:
    """The streams' jobs merged by entry, equal entries by stream. The cursor names the last one shown."""
    streams = [
        _Stream(shard, name, own)
        for shard in shards
        for name, own in ((shard.ready, False), (shard.ready_of(group), True))
    ]
    starts = _starts(cursor, len(streams)) if cursor else ["-"] * len(streams)
    found = yield from read(store, streams, group, starts)
    rows = [[(order_of(entry), number, entry, line) for entry, line in one] for number, one in enumerate(found)]
    page = list(islice(merge(*rows, key=lambda row: row[:2]), PAGE + 1))
    following = f"{page[PAGE - 1][2]}.{page[PAGE - 1][1]}" if len(page) > PAGE else ""
    return Listed([row[3] for row in page[:PAGE]], following)


def _starts(cursor: str, streams: int) -> list[str]:
    """Where each stream continues after the previous page."""
    found = _SHOWN_LAST.fullmatch(cursor)
    if found is None:
        raise InvalidInput("from: invalid; use the link of an earlier page")
    entry, last = found[1], int(found[2])
    return [f"({entry}" if number <= last else entry for number in range(streams)]


def _ready(
    store: RedisStore, streams: Sequence[_Stream], group: str, starts: Sequence[str]
) -> Op[list[list[tuple[str, ListedJob]]]]:
    """The entries of each stream that were not delivered to the group yet."""
    places = []
    delivered = yield from stream_entries.delivered(store.session, [stream.name for stream in streams], group)
    for stream, last, start in zip(streams, delivered, starts, strict=True):
        seen = start != "-" and order_of(start.lstrip("(")) >= order_of(last)
        places.append((stream.name, start if seen else f"({last}"))
    found = yield from stream_entries.entries(store.session, places, PAGE + 1)
    return [
        [
            (entry.id, ListedJob(member_in(entry.value).id, ms_of(entry.id), group if stream.own else None))
            for entry in entries
        ]
        for stream, entries in zip(streams, found, strict=True)
    ]


def _running(
    store: RedisStore, streams: Sequence[_Stream], group: str, starts: Sequence[str]
) -> Op[list[list[tuple[str, ListedJob]]]]:
    """The pending entries of each stream, with the group's progress."""
    places = list(zip((stream.name for stream in streams), starts, strict=True))
    pending = yield from stream_entries.pending(store.session, places, group, PAGE + 1)
    flat = [(number, entry.id) for number, entries in enumerate(pending) for entry in entries]
    entries = yield from stream_entries.entries_at(store.session, [(streams[n].name, entry) for n, entry in flat])
    there = [(n, entry.id, member_in(entry.value).id) for (n, _), entry in zip(flat, entries, strict=True) if entry]
    known = yield from lookup.progress(store.session, [(streams[n].shard, group, id) for n, _, id in there])
    found: list[list[tuple[str, ListedJob]]] = [[] for _ in streams]
    for (n, entry, id), progress in zip(there, known, strict=True):
        if line := _running_job(id, group, progress):
            found[n].append((entry, line))
    return found


def _running_job(id: str, group: str, progress: Progress | None) -> ListedJob | None:
    """The running job; None if its attempt has ended by now, or was not claimed yet."""
    if progress is None or progress.phase is not Phase.RUNNING:
        return None
    at_ms = progress.started_ms  # of a job claimed ahead: when it was claimed
    return ListedJob(id, at_ms, group, progress.attempt, progress.consumer, progress.deadline_ms)
