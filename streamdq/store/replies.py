"""The replies of scripts as typed values. The scripts' headers describe the raw replies."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from ..config import Layout, layout_in
from ..job.after import NEVER_MS
from .counters import Counters, GroupCounter, counters_in
from .jobs.members import id_in
from .jobs.progress import Progress, attempts_in, progress_in

OUTDATED = -2
"""The reply to a caller that asked the wrong shard because its settings of the topic are out of date."""

NOT_HERE = -1
"""The code of restore for an id of which its previous shard has nothing."""

RATED = -2
"""The reply of move for a topic with a rate: permit decides how many jobs may move."""


def _names(joined: bytes) -> tuple[str, ...]:
    return tuple(joined.decode().split(",")) if joined else ()


# -- a job's way


class Enqueued(NamedTuple):
    """Reply of enqueue, replace and enqueue_unique. ``current`` False: the caller's settings are out of date, and
    nothing was written.
    """

    current: bool
    now_ms: int
    taken: dict[
        int, bytes
    ]  # index of a job whose id was taken -> the record that holds it; b"": there is nothing of it
    looked: int  # how many of the jobs were handled; the rest needs another call
    skips_bucket: int = 0  # 1: those that are due by now_ms are ready; 2: those of them that have no key; less: none


def enqueued_in(reply: Sequence[Any]) -> Enqueued:
    if len(reply) == 3:  # nearly always
        return Enqueued(reply[0] > 0, reply[1], {}, reply[2], reply[0] - 1)
    taken = {i - 1: record for i, record in zip(reply[3::2], reply[4::2], strict=True)}
    return Enqueued(reply[0] > 0, reply[1], taken, reply[2], reply[0] - 1)


class Moved(NamedTuple):
    moved: int  # -1: the shard's groups differ from the caller's, see `groups`; or RATED
    now_ms: int
    next_due_ms: int  # -1: no job waits
    open: int  # ready or claimed, or of these at least those that were moved
    groups: tuple[str, ...] = ()


def moved_in(reply: Sequence[Any]) -> Moved:
    moved, now_ms, next_due_ms, open, *groups = reply
    return Moved(moved, now_ms, next_due_ms, open, _names(groups[0]) if groups else ())


class Fired(NamedTuple):
    """Reply of fire. ``current`` False: the caller's settings are out of date, nothing was written."""

    current: bool
    now_ms: int
    next_ms: int  # -1: no occurrence to wait for
    skipped: int
    jobs: list[str]  # ids of those that were enqueued
    unplanned: list[str]  # ids of schedules that need a new plan


def fired_in(reply: Sequence[Any]) -> Fired:
    current, now_ms, next_ms, skipped, jobs, unplanned = reply
    return Fired(
        current == 1, now_ms, next_ms, skipped, [id.decode() for id in jobs], [id.decode() for id in unplanned]
    )


class Written(IntEnum):
    """Reply of schedule."""

    YES = 1
    CHANGED_MEANWHILE = 0
    OUTDATED = -1  # the caller's settings of the topic


class Past(NamedTuple):
    """A group's earlier work on a job that it claims again."""

    attempt: int  # the number of this attempt
    snoozed: int
    step: int
    crashes: int
    due_ms: int | None  # of this attempt; None: see the record


class ClaimedRow(NamedTuple):
    """One claimed job as claim returns it."""

    claim: bytes  # main for a first attempt, otherwise main|entry|past
    id: bytes
    record: bytes

    def parts(self) -> tuple[bytes, bytes, Past | None]:
        """Main, entry and past (None for a first attempt), parsed at once because every claim needs them."""
        claim = self.claim
        if b"|" not in claim:
            return claim, b"", None
        main, entry, attempts, step, crashes, due = claim.split(b"|")
        return main, entry, Past(*attempts_in(attempts.decode()), int(step), int(crashes), int(due) if due else None)

    @property
    def main(self) -> bytes:
        """The entry in the shared stream; b"-" if it was removed."""
        return self.claim.partition(b"|")[0]

    @property
    def entry(self) -> bytes:
        """The entry that was claimed; b"" means ``main``."""
        return self.claim.partition(b"|")[2].partition(b"|")[0]

    @property
    def past(self) -> bytes:
        """b"" for a first attempt, otherwise attempt|step|crashes|due_ms."""
        return self.claim.partition(b"|")[2].partition(b"|")[2]


class Claimed(NamedTuple):
    paused: bool
    now_ms: int
    ttr_ms: int
    unread: int
    rows: list[ClaimedRow]
    expired: int
    generation: str  # of the group; it changes when the group is removed and made again
    refused: int  # jobs that were lost with a consumer before, and that the caller could not start at once
    unlooked: int  # how many of the last entries in `read` need another call, because records are large


def claimed_in(reply: Sequence[Any]) -> Claimed | None:
    """Returns None if there is no such group."""
    if reply[0] < 0:
        return None
    status, now_ms, ttr_ms, unread, claims, ids, records, expired, generation, refused, unlooked = reply
    rows = [row for row in map(ClaimedRow, claims, ids, records) if row.claim]
    return Claimed(status == 0, now_ms, ttr_ms, unread, rows, expired, generation.decode(), refused, unlooked)


class Refused(NamedTuple):
    """Redis's time, and which claims of a batch (from 0) were refused because they were taken over, or were aborted;
    the jobs of the latter are cancelled, unless the call was a touch.
    """

    now_ms: int
    stale: frozenset[int]
    aborted: frozenset[int] = frozenset()


def refused_in(reply: Sequence[int]) -> Refused:
    if len(reply) == 1:  # nearly always
        return Refused(reply[0], frozenset())
    refused = reply[1:]
    return Refused(reply[0], frozenset(i - 1 for i in refused if i > 0), frozenset(-i - 1 for i in refused if i < 0))


class AbortedClaim(NamedTuple):
    """The claim of an attempt that was aborted: its consumer and entries."""

    consumer: bytes
    main: bytes
    entry: bytes


class AbortReply(NamedTuple):
    """Reply of abort. ``status`` 2: the attempts of ``claims`` run; 1: cancelled; 0: nothing to abort; OUTDATED;
    -3: no group has begun with the job.
    """

    status: int
    claims: tuple[AbortedClaim, ...]


def abort_reply_in(reply: Sequence[Any]) -> AbortReply:
    status, *rest = reply
    return AbortReply(status, tuple(map(AbortedClaim, rest[::3], rest[1::3], rest[2::3])))


class Reclaimed(NamedTuple):
    now_ms: int
    cursor: bytes
    own_cursor: bytes
    more: int  # 1: some claims were not checked
    running: int
    ready: int
    reclaimed: int
    consumers: list[bytes]  # those with pending entries
    missing: int  # ready by the counters, but in no stream; pass it to the next check
    lost: int


class TakenOver(NamedTuple):
    taken: int  # attempts that were running
    lost: int
    more: int  # 1: there may be more to take over now
    kept: int  # entries that stay, because they were claimed or read only a short while ago


# -- reads


class FoundProgress(NamedTuple):
    """A job's state in one group."""

    group: str
    progress: Progress | None  # None: the group has not begun
    waits: bool  # in the bucket, for its next attempt


class FoundJob(NamedTuple):
    """The reply of get."""

    record: bytes  # b"" if there is no such job
    delayed: bool  # its first delivery is in the bucket
    groups: list[FoundProgress]


def found_in(reply: Sequence[Any]) -> FoundJob:
    if not reply:
        return FoundJob(b"", False, [])
    record, delayed, *rest = reply
    groups = [
        FoundProgress(group.decode(), progress_in(value) if value else None, waits == 1)
        for group, value, waits in zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    ]
    return FoundJob(record, delayed == 1, groups)


class Match(NamedTuple):
    """A job that a search has found. ``deliveries``: the job as it was then (lua/lib/deliveries.lua)."""

    id: str
    deliveries: str
    found: FoundJob | None  # None: only the two were asked for, or these and the record
    record: bytes = b""


class FoundPage(NamedTuple):
    """A page of a search. ``cursor``: b"0" on the last page."""

    cursor: bytes
    looked: int
    matches: list[Match]


class AuditedJobs(NamedTuple):
    """A page of a shard's jobs. ``cursor``: b"0" on the last page. ``in_streams``: the ids of those that should be in
    a stream, the group for its own stream, '' for the shared one, and their entry: its id, or its value. ``keys``: the
    ids of all, and their keys, b'' = it has none. ``lost``: the ids of those that wait for other jobs, and nothing
    tells for which.
    """

    cursor: bytes
    in_streams: list[tuple[str, str, bytes]]
    keys: list[tuple[bytes, bytes]]
    lost: list[str]


class FoundInOrder(NamedTuple):
    """A page of a search in the order of time. It ends at ``member``, whose time is ``at_ms``."""

    member: bytes
    at_ms: int
    looked: int  # 0: there are no more
    matches: list[Match]


def _match_in(row: Sequence[Any]) -> Match:
    id, deliveries = id_in(row[0]), row[1].decode()
    if len(row) < 4:
        return Match(id, deliveries, None, row[2] if len(row) == 3 else b"")
    return Match(id, deliveries, found_in(row[2:]), row[2])


def found_page_in(reply: Sequence[Any]) -> FoundPage:
    cursor, looked, *rows = reply
    return FoundPage(cursor, looked, list(map(_match_in, rows)))


def audited_jobs_in(reply: Sequence[Any]) -> AuditedJobs:
    cursor, flat, keys, lost = reply
    pairs = list(zip(keys[::2], keys[1::2], strict=True))
    return AuditedJobs(cursor, in_streams_of(flat), pairs, list(map(id_in, lost)))


def in_streams_of(flat: Sequence[bytes]) -> list[tuple[str, str, bytes]]:
    return [(id_in(id), group.decode(), entry) for id, group, entry in zip(*(iter(flat),) * 3, strict=True)]


def found_in_order_in(reply: Sequence[Any]) -> FoundInOrder:
    member, at_ms, looked, *rows = reply
    return FoundInOrder(member, int(float(at_ms or 0)), looked, list(map(_match_in, rows)))


class LinkStats(NamedTuple):
    """Of jobs that wait for others."""

    blocked: int = 0
    undelivered: int = 0  # endings that should have been reported by now
    undelivered_since_ms: int = 0


class ShardStats(NamedTuple):
    now_ms: int
    first_due_ms: int  # -1: no job waits
    jobs: int
    waiting: int  # in the bucket: first deliveries and retries
    paused: bool
    counts: Counters
    dead_now: dict[str, int]
    moved_at_ms: int  # 0: no job was ever moved
    groups: tuple[str, ...]
    dumps: bytes | None  # those registered, as dumps_in reads them
    links: LinkStats

    @property
    def delayed(self) -> int:
        """First deliveries in the bucket."""
        return self.waiting - self.counts.of_groups(GroupCounter.WAITING)


def stats_in(reply: Sequence[Any], groups: Sequence[str]) -> ShardStats:
    """``groups``: the groups that the call asked for."""
    now_ms, first_due_ms, jobs, waiting, paused, counts, dead, moved_at_ms, there, dumps, links = reply
    first_due_ms = -1 if first_due_ms >= NEVER_MS else first_due_ms
    return ShardStats(
        now_ms, first_due_ms, jobs, waiting, paused == 1, counters_in(counts), dict(zip(groups, dead, strict=True)),
        moved_at_ms, _names(there), dumps, LinkStats(*links),
    )  # fmt: skip


# -- a database's outbox


class RelayReply(NamedTuple):
    """The reply of relay."""

    current: bool  # False: the caller's settings of the topic are out of date; nothing was written
    codes: list[
        int
    ]  # of those that were looked at, at least one: 1 now, 2 earlier, 0 another job has the id, 3 not here
    fence: int = 0  # the higher epoch of another relay that has been here; nothing was written


def relay_reply_in(reply: Sequence[int]) -> RelayReply:
    if reply[0] == -1:
        return RelayReply(True, [], reply[1])
    return RelayReply(reply[0] == 1, list(reply[1:]))


# -- topology and history


class Configured(NamedTuple):
    """The reply of configure_shard. ``done`` False: the caller does not know how the shard's jobs were spread."""

    done: bool
    groups: tuple[str, ...]
    leaving: tuple[str, ...]
    version: int  # the shard's; if it is newer than the caller's, nothing was changed
    layout: Layout  # in the shard's settings; without shards: the shard is closed
    sharded_by_key: bool  # jobs may be in the shards of their keys
    linked: bool = False  # jobs wait for others, or others for them
    prioritized: bool = False  # jobs may have a priority


def configured_in(reply: Sequence[Any]) -> Configured:
    status, groups, leaving, version, spread, *marks = reply
    layout = layout_in(spread.decode())
    return Configured(status == 1, _names(groups), _names(leaving), version, layout, *(mark == 1 for mark in marks))


class ListedIds(NamedTuple):
    """The reply of list_ids."""

    following: bytes  # the next cursor; b"0" at the end
    puts: bytes  # as long as it is the same, jobs outside their current shard only become fewer
    ids: list[tuple[str, str]]  # with the keys of their jobs, "" = none
    server: Any = None  # what INFO says of the server that has read the page


class DumpRegistration(NamedTuple):
    """The state of a shard's history when a dump registers."""

    known: bool  # the dump was registered already
    since: str  # the first row ever; it changes if Redis lost the shard; '' if there was none yet
    written: int  # rows ever
    length: int  # rows in the stream now
    last: str  # the newest entry; '' if the stream is empty
    erased: int = 0  # rows after the dump's mark that were erased


def registration_in(reply: Sequence[Any]) -> DumpRegistration:
    known, since, written, length, last, erased = reply
    return DumpRegistration(known == 1, since.decode(), written, length, last.decode(), erased)
