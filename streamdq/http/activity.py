"""What ran lately, minute by minute, for charts: attempts that were done and failed, and how late they began.

It is read from the history. Rows that were read are kept, so another look reads only new ones. The first look goes back
from now as far as a number of rows reaches, a part at a time, in the background: nobody waits for it longer than a
moment.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import expm1, log1p
from typing import Any, NamedTuple

from ..errors import StreamdqError
from ..keys import ShardKeys
from ..link.session import Op
from ..process.logs import log
from ..process.loop import cancel_and_wait
from ..store.entries import ms_of
from ..store.history import history_reads
from ..store.history.rows import FIELDS, SEPARATOR, Event
from ..store.redis_store import RedisStore
from ..store.stream_entries import Entry

MINUTE_MS = 60_000
DAY_MS = 86_400_000
MOST_ROWS = 100_000
"""Rows that are read for what is shown together; further back, nothing is known."""

_PAGE = 500
_AT_ONCE = 10  # pages in one call: some ms of Redis's time
_FEW, _AT_ONCE_FEW = 50, 100  # the same for what is new, which mostly is little
_ROWS_A_LOOK = 20_000
_WAIT_S = 0.1
_SHARDS = 1_000  # that are remembered
_MINUTES = 100_000  # of all of them together: some 100 MB
_PER_E = 20  # steps of lateness in a factor of e: each is 5 % wide
_SEPARATOR = SEPARATOR.encode()
_EVENT, _GROUP, _DUE, _STARTED, _FINISHED = map(FIELDS.index, ("event", "group", "due_ms", "started_ms", "finished_ms"))
_DONE = Event.DONE.encode()
_FAILED = {event.encode() for event in (Event.RETRY, Event.DEAD, Event.RECLAIMED)}


@dataclass(slots=True)
class Slot:
    """What ended within a time. ``late``: how many began how late, by steps."""

    done: int = 0
    failed: int = 0
    late: Counter[int] = field(default_factory=Counter)

    def add(self, other: Slot) -> None:
        self.done += other.done
        self.failed += other.failed
        self.late.update(other.late)

    def late_ms(self, percent: int) -> float | None:
        """A percentile of the lateness, to 5 %; None if nothing began."""
        left = -(-self.late.total() * percent // 100)
        for step in sorted(self.late):
            left -= self.late[step]
            if left <= 0:
                return expm1(step / _PER_E)
        return None


class Row(NamedTuple):
    """One step of a chart. ``done`` None: not known. ``p50_ms``, ``p99_ms``: of the lateness; None: nothing began."""

    start_ms: int
    done: float | None
    failed: float
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, slots=True)
class Activity:
    """``rows``: from the oldest on, of equal length. ``source``: where it is from, ``history`` or ``prometheus``."""

    step_ms: int
    rows: Sequence[Row]
    source: str

    @property
    def since_ms(self) -> int | None:
        """From when on it is known; None: the whole time."""
        known = next((row.start_ms for row in self.rows if row.done is not None), None)
        if known is None:
            return self.rows[-1].start_ms + self.step_ms
        return None if known == self.rows[0].start_ms else known

    @property
    def done(self) -> float:
        return sum(row.done or 0 for row in self.rows)

    @property
    def failed(self) -> float:
        return sum(row.failed for row in self.rows)


class _Tape:
    """What was read of one shard's history. ``reached_ms``: everything since then was read. ``ended``: whether it was
    read to its beginning; None: it was, and nobody knows yet whether there were rows before.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.ended: bool | None = False
        self.newest = ""
        self.oldest = ""
        self.reached_ms: float = float("inf")
        self.slots: dict[int, dict[str, Slot]] = {}  # by minute, then by group

    def take(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            parts = entry.value.split(_SEPARATOR)
            if len(parts) == len(FIELDS) and parts[_FINISHED].isdigit():
                self._count(parts)

    def _count(self, parts: Sequence[bytes]) -> None:
        event = parts[_EVENT]
        groups = self.slots.setdefault(int(parts[_FINISHED]) // MINUTE_MS, {})
        slot = groups.setdefault(parts[_GROUP].decode("utf-8", "replace"), Slot())
        slot.done += event == _DONE
        slot.failed += event in _FAILED
        due, started = parts[_DUE], parts[_STARTED]
        if due.isdigit() and started.isdigit():
            slot.late[round(_PER_E * log1p(max(0, int(started) - int(due))))] += 1

    def extend(self, page: Sequence[Entry]) -> None:
        """Takes a page of older rows, newest first."""
        self.take(page)
        self.rows += len(page)
        if page:
            self.newest = self.newest or page[0].id
            self.oldest = page[-1].id
            self.reached_ms = ms_of(self.oldest)
        if len(page) < _PAGE:
            self.ended = None
            self.newest = self.newest or "0-0"

    def forget_before(self, ms: int) -> None:
        for minute in [minute for minute in self.slots if minute < ms // MINUTE_MS]:
            del self.slots[minute]

    def know_nothing_before(self, ms: int) -> None:
        """Permanently: nothing older is read again."""
        self.forget_before(ms)
        self.ended, self.reached_ms = True, max(self.reached_ms, ms)


class Recent:
    """The recent activity of the shards that somebody looks at."""

    def __init__(
        self, store: Callable[[], Coroutine[Any, Any, RedisStore]], do: Callable[[Op[Any]], Coroutine[Any, Any, Any]]
    ) -> None:
        self._store = store
        self._do = do
        self._tapes: dict[ShardKeys, _Tape] = {}
        self._reading = asyncio.Lock()
        self._tasks: dict[tuple[str, ...], asyncio.Task[None]] = {}

    async def of(
        self, shards: Sequence[ShardKeys], groups: Callable[[str], bool], now_ms: int, step_ms: int, steps: int
    ) -> Activity:
        """The activity in these shards, of the groups that are allowed, in ``steps`` until now."""
        until_ms = now_ms // MINUTE_MS * MINUTE_MS + MINUTE_MS
        asked = tuple(map(str, shards))
        task = self._tasks.get(asked)
        if task is None or task.done():
            task = self._tasks[asked] = asyncio.create_task(self._read(list(shards), now_ms - step_ms * steps))
            task.add_done_callback(partial(self._over, asked))
        if any(shard not in self._tapes for shard in shards):
            await asyncio.wait({task}, timeout=_WAIT_S)
        tapes = [self._tapes[shard] for shard in shards if shard in self._tapes]
        known_ms = max((tape.reached_ms for tape in tapes), default=0.0) if len(tapes) == len(shards) else float("inf")
        starts = range(until_ms - step_ms * steps, until_ms, step_ms)
        return Activity(step_ms, [_row(tapes, groups, start, step_ms, known_ms) for start in starts], "history")

    def _over(self, asked: tuple[str, ...], task: asyncio.Task[None]) -> None:
        if self._tasks.get(asked) is task:  # an eager one may be done before it is there, and another one in its place
            del self._tasks[asked]

    async def close(self) -> None:
        await cancel_and_wait(list(self._tasks.values()))

    async def _read(self, shards: list[ShardKeys], since_ms: int) -> None:
        async with self._reading:
            try:
                store = await self._store()
                await self._do(self._look(store, shards, since_ms))
            except StreamdqError as error:
                log.warning("recent activity not read", error=str(error))

    def _look(self, store: RedisStore, shards: Sequence[ShardKeys], since_ms: int) -> Op[None]:
        for shard in shards:  # the last used last
            self._tapes[shard] = self._tapes.pop(shard) if shard in self._tapes else _Tape()
        for shard in list(self._tapes)[: max(0, len(self._tapes) - max(_SHARDS, len(shards)))]:
            del self._tapes[shard]
        tapes = {shard: self._tapes[shard] for shard in shards}
        for tape in tapes.values():
            tape.forget_before(since_ms - DAY_MS)
        yield from self._forwards(store, tapes)
        yield from self._backwards(store, tapes, since_ms)
        self._forget_the_oldest()

    def _forget_the_oldest(self) -> None:
        """If many shards have had something in many minutes: then less is known of the past."""
        if sum(len(tape.slots) for tape in self._tapes.values()) <= _MINUTES:
            return
        minutes = sorted(minute for tape in self._tapes.values() for minute in tape.slots)
        for tape in self._tapes.values():
            tape.know_nothing_before((minutes[len(minutes) // 2] + 1) * MINUTE_MS)

    def _forwards(self, store: RedisStore, tapes: dict[ShardKeys, _Tape]) -> Op[None]:
        """Reads what is new in shards that were read before. Shards with too many new rows are read anew."""
        left = [shard for shard, tape in tapes.items() if tape.newest]
        looks = 0
        while left:
            part, left = left[:_AT_ONCE_FEW], left[_AT_ONCE_FEW:]
            places = [(shard, f"({tapes[shard].newest}") for shard in part]
            pages = yield from history_reads.rows_from(store.session, places, _FEW)
            for shard, rows in zip(part, pages, strict=True):
                if rows:
                    tapes[shard].take(rows)
                    tapes[shard].newest = rows[-1].id
                    looks += 1
                if len(rows) == _FEW:
                    left.append(shard)
            if looks * _FEW > _ROWS_A_LOOK + len(tapes) * _FEW:
                for shard in left:
                    self._tapes[shard] = tapes[shard] = _Tape()
                return

    def _backwards(self, store: RedisStore, tapes: dict[ShardKeys, _Tape], since_ms: int) -> Op[None]:
        """Goes on backwards, where least is known first, so that all are known since about the same time."""
        rows = 0
        while rows < _ROWS_A_LOOK and sum(tape.rows for tape in tapes.values()) < MOST_ROWS:
            left = [shard for shard in tapes if tapes[shard].ended is False and tapes[shard].reached_ms > since_ms]
            part = sorted(left, key=lambda shard: -tapes[shard].reached_ms)[:_AT_ONCE]
            if not part:
                break
            places = [(shard, tapes[shard].oldest) for shard in part]
            found = yield from history_reads.rows_until(store.session, places, _PAGE)
            for shard, page in zip(part, found, strict=True):
                tapes[shard].extend(page)
                rows += len(page)
        yield from self._look_at_ends(store, [shard for shard, tape in tapes.items() if tape.ended is None])

    def _look_at_ends(self, store: RedisStore, shards: Sequence[ShardKeys]) -> Op[None]:
        """Where a stream was read to its beginning: whether there were rows before."""
        firsts = (yield from history_reads.first_rows(store.session, shards)) if shards else []
        for shard, first in zip(shards, firsts, strict=True):
            tape = self._tapes[shard]
            tape.ended = True
            if not first or first == tape.oldest:
                tape.reached_ms = 0.0


def _row(tapes: Sequence[_Tape], groups: Callable[[str], bool], start_ms: int, step_ms: int, known_ms: float) -> Row:
    if start_ms < known_ms:
        return Row(start_ms, None, 0, None, None)
    whole = Slot()
    for slot in _slots(tapes, groups, start_ms, start_ms + step_ms):
        whole.add(slot)
    return Row(start_ms, whole.done, whole.failed, whole.late_ms(50), whole.late_ms(99))


def _slots(tapes: Sequence[_Tape], groups: Callable[[str], bool], start_ms: int, end_ms: int) -> Iterator[Slot]:
    for tape in tapes:
        for minute in range(start_ms // MINUTE_MS, end_ms // MINUTE_MS):
            for group, slot in tape.slots.get(minute, {}).items():
                if groups(group):
                    yield slot
