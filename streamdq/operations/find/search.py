"""Finds jobs. A search walks through the topic's jobs, a page at a time; each page is one script call of bounded size.
What it has shown is its plan: ids, and which delivery each job had then. Actions (actions.py) concern exactly these.
"""

from __future__ import annotations

import heapq
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...config import TopicSettings
from ...errors import InvalidInput
from ...job.after import NEVER_MS as WAITING_MS
from ...job.job import Job, JobState, check_topic
from ...keys import ShardKeys, candidate_shards
from ...link.session import Op
from ...store import namespace
from ...store.batches import most_jobs
from ...store.find.wanted import Wanted
from ...store.jobs import ordered
from ...store.redis_store import RedisStore
from ...store.replies import Match
from ..known import known_group
from .criteria import BLOCKED, NEVER_MS, Criteria
from .sieve import Sieve

_PAGE = 250
# What a job costs, and what it costs for each group, in reads of a progress. One that waits for its key is
# also looked up there: 50 jobs of 15 groups took 16 ms.
_OF_JOB, _OF_GROUP, _OF_WAITING = 6, 2, 6
# The number of the source and how many there are; then the cursor in it: HSCAN's, or time and member (in hex).
_POSITION = re.compile(
    r"(\d{1,6})\.(\d{1,6})\.(?:(\d{1,19}(?:\+\d{1,6})?)|(\d{1,16})m((?:[0-9a-f]{2}){0,2000}))", re.ASCII
)


class Progress(NamedTuple):
    """How far a search is. ``total``: about how many jobs it will look at."""

    looked: int
    found: int
    total: int


class _Source(NamedTuple):
    """What the walk goes through. ``zset``: a bucket, a group's dead letters, or the jobs that are blocked; "" = all
    jobs of the shard.
    """

    shard: ShardKeys
    zset: str
    group: str  # in which the jobs must be in the state; "" = in any


class Shown(NamedTuple):
    """A job as a search has shown it."""

    shard: ShardKeys
    id: str
    deliveries: str


@dataclass(slots=True)
class Search:
    """A search, as far as it has come. ``limit``: it ends with that many jobs. ``after``: it begins at the ``position``
    of another one with the same criteria.

    A job that matches all the time is found exactly once. One that comes, changes or ends meanwhile may be found or
    not.
    """

    store: RedisStore
    topic: str
    criteria: Criteria
    limit: int | None = None
    tell: Callable[[Progress], None] | None = None
    after: str = ""
    plan: dict[ShardKeys, dict[str, str]] = field(default_factory=dict)  # id -> deliveries
    found: int = 0
    looked: int = 0
    total: int = 0
    ended: bool = False
    _began: bool = False
    _sources: deque[_Source] = field(default_factory=deque)
    _cursor: bytes | tuple[int, bytes] = b""
    _read: deque[tuple[Shown, Job | None]] = field(default_factory=deque)
    _due: tuple[int, int] = (0, NEVER_MS)
    _by_due: bool = False
    _in_order: bool = False  # read delayed jobs by due time, wherever that is possible
    _left_at: dict[_Source, bytes | tuple[int, bytes]] = field(
        default_factory=dict
    )  # sources that were left in between
    _all_sources: int = 0
    _most: int = _PAGE
    _sieve: Sieve = field(init=False)

    def __post_init__(self) -> None:
        self.topic = check_topic(self.topic)
        self._sieve = Sieve(self.store, self.topic, self.criteria)
        if self.limit is not None:
            check_number(self.limit, "limit", 1)

    @property
    def unreadable(self) -> int:
        """How many bodies could not be read here; they match no condition on the body."""
        return self._sieve.unreadable

    def next_job(self) -> Op[Job | None]:
        """The next match, which is then part of the plan; None at the end."""
        while not self._read and not self.ended:
            yield from self._page(jobs=True)
        if not self._read:
            return None
        shown, job = self._read.popleft()
        self._show(shown)
        assert job is not None, "it was read with the jobs"
        return job

    def next_page(self) -> Op[list[tuple[Shown, Job]]]:
        """The matches of the next page, which are then part of the plan; there may be none. For searches that are
        continued elsewhere, at ``position``; their pages may have a job twice.
        """
        yield from self._page(jobs=True)
        found = [(shown, job) for shown, job in self._read if job is not None]
        self._read.clear()
        for shown, _ in found:
            self._show(shown)
        return found

    def soonest(self, count: int) -> Op[list[Job]]:
        """The matches that are due first, in this order. Delayed jobs are read by due time, of each shard about as many
        as are asked for; other searches walk to the end.

        Raises:
            InvalidInput: something was read before.
        """
        check_number(count, "count", 1)
        if self._began:
            raise InvalidInput("soonest: jobs of this search were read before; search anew")
        self._in_order = True
        yield from self._begin()
        self.ended = not self._sources
        first: list[Job] = []
        read = 0  # of the source
        while not self.ended:
            if self._by_due and read >= count:
                self._left_at[self._sources[0]] = self._cursor
                self._leave_source()
                read = 0
                continue
            source = self._sources[0]
            page = yield from self._jobs_of_page()
            first = heapq.nsmallest(count, [*first, *page], key=lambda job: (job.due_ms, job.id))
            read = read + len(page) if self._sources and self._sources[0] == source else 0
        if self._left_at and (self.limit is None or self.found < self.limit):
            self._sources.extend(self._left_at)
            self._cursor, self.ended = self._start(), False
        return first

    def _jobs_of_page(self) -> Op[list[Job]]:
        yield from self._page(jobs=True)
        jobs: list[Job] = []
        while self._read:
            shown, job = self._read.popleft()
            jobs += [job] if job else []
            self._show(shown)
        return jobs

    @property
    def position(self) -> str:
        """How far the pages have been read; "" at the end."""
        if self.ended:
            return ""
        cursor = self._cursor
        position = cursor.decode() if isinstance(cursor, bytes) else f"{cursor[0]}m{cursor[1].hex()}"
        return f"{self._all_sources - len(self._sources)}.{self._all_sources}.{position}"

    def rest(self) -> Op[None]:
        """Walks to the end. All matches are then part of the plan."""
        while self._read or not self.ended:
            while self._read:
                self._show(self._read.popleft()[0])
            if not self.ended:
                yield from self._page(jobs=False)

    def some(self) -> Op[None]:
        """Like rest, unless something was read already."""
        if not self._began:
            yield from self.rest()

    def _show(self, shown: Shown) -> None:
        self.plan.setdefault(shown.shard, {})[shown.id] = shown.deliveries
        self.found += 1
        if self.limit is not None and self.found >= self.limit:
            self.ended = True
            self._read.clear()

    def _begin(self) -> Op[None]:
        self._began = True
        settings = yield from self.store.topics.latest(self.topic)
        wanted = self.criteria
        if wanted.group is not None:
            settings = yield from known_group(self.store, self.topic, wanted.group)
        if wanted.due is not None:
            now_ms = yield from namespace.now_ms(self.store.session)
            self._due = wanted.due[0].at(now_ms, 0), wanted.due[1].at(now_ms, NEVER_MS)
        if wanted.state is JobState.WAITING:
            self._due = WAITING_MS, NEVER_MS
        shards = self._shards(settings)
        yield from self._look_at_keys(shards, settings)
        groups = settings.group_names if wanted.group is None else (wanted.group,)
        self._sources.extend(source for shard in shards for source in self._sources_in(shard, groups))
        self._cursor, self._all_sources = self._start(), len(self._sources)
        sources = [(source.zset or source.shard.jobs, *self._times(source)) for source in self._sources]
        self.total = sum((yield from ordered.sizes(self.store.session, sources)))
        self._go_on()

    def _shards(self, settings: TopicSettings) -> list[ShardKeys]:
        """Those that may have such jobs."""
        shards = self.store.topics.shards(self.topic)
        if self.criteria.key is None:
            return shards
        return [shards[number] for number in candidate_shards("", settings.shards, settings.former, self.criteria.key)]

    def _go_on(self) -> None:
        """Goes to where the other search ended, if there was one."""
        if not self.after:
            return
        found = _POSITION.fullmatch(self.after)
        if found is None:
            raise InvalidInput("after: not where a search ended")
        number, sources, cursor, time, member = found.groups()
        if int(sources) != self._all_sources or int(number) >= self._all_sources:
            raise InvalidInput("after: another search ended there, or the topic has changed; search anew")
        for _ in range(int(number)):
            self._sources.popleft()
        if bool(self._sources[0].zset) != (cursor is None):
            raise InvalidInput("after: another search ended there, or the topic has changed; search anew")
        self._cursor = (int(time), bytes.fromhex(member)) if cursor is None else cursor.encode()

    def _look_at_keys(self, shards: Sequence[ShardKeys], settings: TopicSettings) -> Op[None]:
        """Jobs that wait for their keys are in no bucket; with a rate of keys, the admitted ones come out of it later
        than they are due.
        """
        are_waiting = any(
            (yield from ordered.sizes(self.store.session, [(shard.key_waiting, 0, 0) for shard in shards]))
        )
        admitted = yield from ordered.sizes(self.store.session, [(shard.key_admitted, 0, 0) for shard in shards])
        self._most = most_jobs(_PAGE, _OF_JOB + (_OF_GROUP + are_waiting * _OF_WAITING) * len(settings.groups))
        by_due = self.criteria.by_due or (self._in_order and self.criteria.state is JobState.DELAYED)
        self._by_due = by_due and not are_waiting and not (settings.key_rate and any(admitted))

    def _sources_in(self, shard: ShardKeys, groups: Sequence[str]) -> list[_Source]:
        if self._by_due:
            return [_Source(shard, shard.bucket, self.criteria.group or "")]
        if self.criteria.state == BLOCKED:
            return [_Source(shard, shard.blocked, self.criteria.group or "")]
        if self.criteria.state is JobState.DEAD:
            return [_Source(shard, shard.dead_of(group), group) for group in groups]
        return [_Source(shard, "", self.criteria.group or "")]

    def _times(self, source: _Source) -> tuple[int, int] | tuple[None, None]:
        """The first and the last time in a source that is in the order of time."""
        if not source.zset:
            return None, None
        return self._due if self._by_due else (0, NEVER_MS)

    def _start(self) -> bytes | tuple[int, bytes]:
        if not self._sources or not self._sources[0].zset:
            return b"0"
        return self._left_at.pop(self._sources[0], None) or (self._times(self._sources[0])[0] or 0, b"")

    def _page(self, *, jobs: bool) -> Op[None]:
        """Reads a page of matches. ``jobs``: with the jobs; otherwise with as little as is needed."""
        if not self._began:
            yield from self._begin()
        if not self._sources:
            self.ended = True
            return
        source = self._sources[0]
        matches = yield from self._asked(source, self._query(source, jobs))
        known = self.plan.get(source.shard, {})
        new = {match.id: match for match in matches if match.id not in known}  # HSCAN may return a job twice
        for match, job in (yield from self._sieve.sifted(list(new.values()), jobs)):
            shown = Shown(source.shard, match.id, match.deliveries)
            self._read.append((shown, job if jobs else None))
        if self.tell is not None:
            self.tell(Progress(self.looked, self.found + len(self._read), max(self.total, self.looked)))

    def _query(self, source: _Source, jobs: bool) -> Wanted:
        wanted = self.criteria
        due = None if wanted.due is None else self._due
        return Wanted(
            "job" if jobs else wanted.needed, wanted.state or "", source.group, wanted.id_prefix, due,
            wanted.of_groups, wanted.texts,
        )  # fmt: skip

    def _asked(self, source: _Source, asked: Wanted) -> Op[list[Match]]:
        """The script's answer for a page; goes on to the next source at the end of this one."""
        scripts, at_end = self.store.scripts, False
        if isinstance(self._cursor, bytes):
            page = yield from scripts.find_jobs(source.shard, self._cursor, self._most, asked)
            looked, matches, self._cursor, at_end = page.looked, page.matches, page.cursor, page.cursor == b"0"
        else:
            until = self._times(source)[1]
            row = yield from scripts.find_in_order(source.shard, source.zset, self._cursor, until, self._most, asked)
            looked, matches, self._cursor, at_end = row.looked, row.matches, (row.at_ms, row.member), row.looked == 0
        self.looked += looked
        if at_end:
            self._leave_source()
        return matches

    def _leave_source(self) -> None:
        self._sources.popleft()
        self._cursor, self.ended = self._start(), not self._sources


def check_number(value: object, what: str, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{what}: {value!r} is not a number of jobs, {least} or more")
