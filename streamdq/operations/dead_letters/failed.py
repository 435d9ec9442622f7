"""What failed, across topics: dead letters, the last first, and jobs that wait for a retry, the next first. A list is
read a part at a time and costs the same however many there are; what is done to dead letters concerns those that were
there by a time, unless they have changed since.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ...errors import InvalidInput
from ...keys import ShardKeys
from ...link.session import Op
from ...store.jobs import lookup, ordered
from ...store.jobs.members import id_in, member_in
from ...store.jobs.progress import Progress
from ...store.redis_store import RedisStore
from ..known import known_group
from .kick_throttle import SLICE, KickThrottle

MOST_PLACES = 100
MOST_LOOKED = 5_000
_PAGE = 100
_MOST_AT_ONCE = 10_000  # dead letters that are acted on in one go

State = Literal["dead", "retrying"]
Action = Literal["kick", "purge"]


def action_in(text: str) -> Action:
    if text == "kick":
        return "kick"
    if text == "purge":
        return "purge"
    raise InvalidInput("do: is neither kick nor purge")


@dataclass(frozen=True, slots=True)
class FailedFilter:
    """What is looked for. ``places``: topics and groups. ``error``: a part of it, in any case. ``until_ms``: of dead
    letters, those that were buried at or before it.
    """

    state: State
    places: Sequence[tuple[str, str]]
    error: str = ""
    id_prefix: str = ""
    until_ms: int | None = None

    def has(self, id: str, progress: Progress | None) -> bool:
        return id.startswith(self.id_prefix) and self.error.lower() in (progress.error if progress else "").lower()


class Failed(NamedTuple):
    """``at_ms``: when it died, or its next attempt is due. ``delivery``: which one it is."""

    shard: ShardKeys
    group: str
    id: str
    at_ms: int
    attempt: int
    error: str
    reason: str
    delivery: str


@dataclass(slots=True)
class FailedPage:
    """``next``: where the list goes on, '' at its end. ``looked``: at how many."""

    found: list[Failed] = field(default_factory=list)
    next: str = ""
    looked: int = 0


class _Source(NamedTuple):
    shard: ShardKeys
    groups: frozenset[str]
    zset: str


def _sources(store: RedisStore, which: FailedFilter) -> list[_Source]:
    """In an order that stays when numbers change: a list goes on where equal times were passed in it."""
    if which.state == "dead":
        return [
            _Source(shard, frozenset({group}), shard.dead_of(group))
            for topic, group in sorted(which.places)
            for shard in store.topics.shards(topic)
        ]
    groups: dict[str, set[str]] = {}
    for topic, group in sorted(which.places):
        groups.setdefault(topic, set()).add(group)
    return [
        _Source(shard, frozenset(names), shard.bucket)
        for topic, names in groups.items()
        for shard in store.topics.shards(topic)
    ]


class _Walk:
    """Goes through all places together, by time. ``score`` and ``passed`` are how far it is: the time of the last one,
    and how many of that time were passed. Each source goes on from its own last time, not from a rank: so what others
    take out meanwhile hides nothing, but among those of that very millisecond.
    """

    def __init__(self, store: RedisStore, which: FailedFilter, start: str) -> None:
        self._store = store
        self._newest_first = which.state == "dead"
        self._sources = _sources(store, which)
        self.score, self._skip = _start_in(start)
        self.passed = 0
        start_ms = which.until_ms if self.score is None else self.score
        self._from: list[int | None] = [start_ms for _ in self._sources]
        self._rows: list[deque[ordered.Scored]] = [deque() for _ in self._sources]
        self._offsets = [0] * len(self._sources)
        self._more = [True] * len(self._sources)
        self._heap: list[tuple[int, int]] = []

    @property
    def ended(self) -> bool:
        return not self._heap and not any(self._more)

    def next(self, count: int) -> Op[list[tuple[_Source, bytes, int]]]:
        """The next ones: (source, member, time); fewer at the end."""
        found: list[tuple[_Source, bytes, int]] = []
        yield from self._fill([i for i, rows in enumerate(self._rows) if not rows and self._more[i]])
        while self._heap and len(found) < count:
            _, i = heapq.heappop(self._heap)
            at_ms, member = self._rows[i].popleft()
            if self._rows[i]:
                self._push(i)
            elif self._more[i]:
                yield from self._fill([i])
            self.passed = self.passed + 1 if at_ms == self.score else 1
            if at_ms == self.score and self._skip:
                self._skip -= 1
                continue
            self._skip = 0
            self.score = at_ms
            found.append((self._sources[i], member, at_ms))
        return found

    def _push(self, i: int) -> None:
        at_ms = self._rows[i][0][0]
        heapq.heappush(self._heap, (-at_ms if self._newest_first else at_ms, i))

    def _fill(self, empty: Sequence[int]) -> Op[None]:
        if not empty:
            return
        asked = [(self._sources[i].zset, self._from[i], self._offsets[i]) for i in empty]
        pages = yield from ordered.by_time(self._store.session, asked, _PAGE, newest_first=self._newest_first)
        for i, page in zip(empty, pages, strict=True):
            self._rows[i].extend(page)
            self._more[i] = len(page) == _PAGE
            if page:
                self._go_on(i, page)
                self._push(i)

    def _go_on(self, i: int, page: Sequence[ordered.Scored]) -> None:
        """From the page's last time, behind those of that time which were read."""
        last_ms = page[-1][0]
        before = self._offsets[i] if self._from[i] == last_ms else 0
        self._from[i] = last_ms
        self._offsets[i] = before + sum(at_ms == last_ms for at_ms, _ in page)


def _start_in(text: str) -> tuple[int | None, int]:
    if not text:
        return None, 0
    score, _, passed = text.partition(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 16 for part in (score, passed)):
        raise InvalidInput("from: invalid; use the link of an earlier page")
    return int(score), int(passed)


def failed(store: RedisStore, which: FailedFilter, count: int, start: str = "") -> Op[FailedPage]:
    """A part of the list: about ``count``, of the next MOST_LOOKED. ``start``: the ``next`` of the part before."""
    walk, part = _Walk(store, which, start), FailedPage()
    sifts = bool(which.error or which.id_prefix) or which.state == "retrying"
    while len(part.found) < count and part.looked < MOST_LOOKED:
        rows = yield from walk.next(_PAGE if sifts else count - len(part.found))
        part.found += yield from _matches(store, which, rows)
        part.looked += len(rows)
        if walk.ended:
            return part
    part.next = f"{walk.score}.{walk.passed}"
    return part


def _matches(store: RedisStore, which: FailedFilter, rows: Sequence[tuple[_Source, bytes, int]]) -> Op[list[Failed]]:
    wanted = []
    for source, member, at_ms in rows:
        if which.state == "dead":
            (group,), id = source.groups, id_in(member)
        else:
            delivery = member_in(member)
            if delivery.group not in source.groups:
                continue
            group, id = delivery.group or "", delivery.id
        if id.startswith(which.id_prefix):
            wanted.append((source.shard, group, id, at_ms))
    known = yield from lookup.progress(store.session, [(shard, group, id) for shard, group, id, _ in wanted])
    return [
        Failed(shard, group, id, at_ms, one.attempt, one.error, one.reason, delivery_of(one))
        for (shard, group, id, at_ms), one in zip(wanted, known, strict=True)
        if one is not None and which.has(id, one)
    ]


def delivery_of(progress: Progress) -> str:
    """Which delivery it is, as lua/lib/delivery.lua has it."""
    snoozed = f"+{progress.snoozed}" if progress.snoozed else ""
    return f"{progress.sequence}/{progress.attempt}{snoozed}"


# -- acting on dead letters


@dataclass(slots=True)
class Tally:
    """How many dead letters there are, or what was done to them. ``whole``: False if there was no time for all."""

    of: dict[tuple[str, str], int] = field(default_factory=dict)  # by topic and group
    left_alone: int = 0
    whole: bool = True

    @property
    def total(self) -> int:
        return sum(self.of.values())

    def add(self, one: Failed, count: int = 1) -> None:
        at = one.shard.topic, one.group
        self.of[at] = self.of.get(at, 0) + count


def _all(store: RedisStore, which: FailedFilter, most: int, ends: float) -> Op[tuple[list[Failed], bool]]:
    walk, found = _Walk(store, which, ""), list[Failed]()
    while rows := (yield from walk.next(_PAGE)):
        found += yield from _matches(store, which, rows)
        if len(found) >= most or time.monotonic() > ends:
            return found, False
    return found, True


def count_failed(store: RedisStore, which: FailedFilter, longest_s: float) -> Op[Tally]:
    """How many dead letters match, as far as there is time to look."""
    found, whole = yield from _all(store, which, 1_000_000, time.monotonic() + longest_s)
    tally = Tally(whole=whole)
    for one in found:
        tally.add(one)
    return tally


def act_on_failed(store: RedisStore, which: FailedFilter, action: Action, longest_s: float) -> Op[Tally]:
    """Kicks or purges the dead letters that match, and were buried by ``until_ms``, unless they have changed since they
    were read. As many as there is time for; kicked ones as fast as they are claimed.
    """
    ends = time.monotonic() + longest_s
    found, whole = yield from _all(store, which, _MOST_AT_ONCE, ends)
    tally, throttle = Tally(whole=whole), KickThrottle(store.session)
    begun = False
    for (shard, group), jobs in _slices(found):
        if time.monotonic() > ends:
            tally.whole = False
            break
        if action == "kick" and begun:
            yield from throttle.wait(shard, group)
        done = yield from _act(store, action, shard, group, [(one.id, one.delivery) for one in jobs])
        if done:
            tally.add(jobs[0], done)
        tally.left_alone += len(jobs) - done
        begun = True
    return tally


def _act(store: RedisStore, action: Action, shard: ShardKeys, group: str, jobs: Sequence[tuple[str, str]]) -> Op[int]:
    script = store.scripts.kick_each if action == "kick" else store.scripts.purge_each
    codes = yield from script(shard, group, jobs)
    return sum(code == 1 for code in codes)


def act_on_shown(
    store: RedisStore, topic: str, group: str, shown: Sequence[tuple[int, str, str]], action: Action
) -> Op[tuple[int, int]]:
    """Kicks or purges dead letters of one page, unless they have changed since. ``shown``: of each its shard, delivery
    and id. How many were done, and how many left alone.

    Raises:
        UnknownTopic, UnknownGroup
    """
    yield from known_group(store, topic, group, anew=True)
    shards, done = store.topics.shards(topic), 0
    jobs: dict[ShardKeys, list[tuple[str, str]]] = {}
    for number, delivery, id in shown:
        if number < len(shards):  # a change of the settings may have removed it
            jobs.setdefault(shards[number], []).append((id, delivery))
    for shard, some in jobs.items():
        for first in range(0, len(some), SLICE):
            done += yield from _act(store, action, shard, group, some[first : first + SLICE])
    return done, len(shown) - done


def _slices(found: Sequence[Failed]) -> Iterator[tuple[tuple[ShardKeys, str], list[Failed]]]:
    groups: dict[tuple[ShardKeys, str], list[Failed]] = {}
    for one in found:
        groups.setdefault((one.shard, one.group), []).append(one)
    for at, jobs in groups.items():
        for first in range(0, len(jobs), SLICE):
            yield at, jobs[first : first + SLICE]


def places_of(figures: Mapping[tuple[str, str], int], topic: str, group: str) -> list[tuple[str, str]]:
    """The topics and groups to look at, those with most first. ``topic``: a part of its name."""
    there = [at for at, count in figures.items() if count and topic.lower() in at[0].lower() and group in ("", at[1])]
    return sorted(there, key=lambda at: (-figures[at], at))
