"""Following a topic: the rows of its history, as they are written."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...config import MAX_BATCH
from ...errors import InvalidInput
from ...job.job import check_topic
from ...keys import ShardKeys
from ...link.connection import AsyncLink, Link
from ...link.session import Op, arun, pause, run
from ...store.blocking import listen
from ...store.entries import order_of
from ...store.history import history_reads
from ...store.history.rows import known_row_in
from ...store.namespace import now_ms
from ...store.redis_store import RedisStore
from ...times.durations import Duration, to_ms
from ..bounds import Bound, Time, time_of
from ..known import topic_names
from .job_history import JobEvent, with_failures

_LONGEST_WAIT_S, _PAUSE_S = 5.0, 0.25
_NONE = "0-0"  # before the first entry
_LAST_IN_MS = 2**64 - 1  # the number of the last entry that a millisecond can have
_POSITION = re.compile(r"\d{1,6}:\d{1,20}-\d{1,20}(?:,\d{1,6}:\d{1,20}-\d{1,20}){0,9999}", re.ASCII)


class _Position(NamedTuple):
    """After which entry each shard is read; a shard that is missing here, from its beginning."""

    after: dict[int, str]

    def __str__(self) -> str:
        return ",".join(f"{shard}:{entry}" for shard, entry in sorted(self.after.items()))


@dataclass(slots=True)
class Following:
    """A topic's history, as far as it was followed. Its shards are merged by the time of their rows, as far as they
    were read together: the rows of a job, as of a shard, come in their order.
    """

    store: RedisStore
    topic: str
    since: Time | _Position
    _passed: dict[int, str] = field(default_factory=dict)  # shard -> the entry that was returned last
    _read: dict[int, str] = field(default_factory=dict)  # shard -> the entry that was read last
    _events: deque[JobEvent] = field(default_factory=deque)
    _began: bool = False

    @property
    def position(self) -> str:
        """After the event that was returned last; "" before the first read."""
        return str(_Position(self._passed))

    def next(self, timeout_s: float) -> Op[JobEvent | None]:
        """The next event, waited for; None: there was none for so long."""
        deadline = time.monotonic() + timeout_s
        while not self._events:
            if (yield from self._page()):
                continue
            if (left_s := deadline - time.monotonic()) <= 0:
                return None
            yield from self._wait(min(left_s, _LONGEST_WAIT_S))
        event = self._events.popleft()
        self._passed[event.row.shard] = event.row.entry
        if not self._events:
            self._passed.update(self._read)  # beyond entries that are no rows
        return event

    def begin(self) -> Op[None]:
        """Finds the position from which it is followed."""
        yield from self._shards()

    def page(self, timeout_s: float) -> Op[list[tuple[str, JobEvent]]]:
        """The next events that are read together, each with the position after it; [] as ``next`` returns None."""
        found = []
        event = yield from self.next(timeout_s)
        while event is not None:
            found.append((self.position, event))
            event = (yield from self.next(0)) if self._events else None
        return found

    def _page(self) -> Op[bool]:
        """False: there is nothing new."""
        shards = yield from self._shards()
        starts = [(shard, f"({self._read.get(shard.shard, _NONE)}") for shard in shards]
        pages = yield from history_reads.rows_from(self.store.session, starts, max(1, MAX_BATCH // len(shards)))
        rows = [
            row
            for shard, entries in zip(shards, pages, strict=True)
            for entry in entries
            if (row := known_row_in(self.topic, shard.shard, entry.id, entry.value))
        ]
        rows.sort(key=lambda row: row.place)
        events = yield from with_failures(self.store, self.topic, rows)
        self._read |= {shard.shard: entries[-1].id for shard, entries in zip(shards, pages, strict=True) if entries}
        self._events.extend(events)
        return any(pages)

    def _wait(self, wait_s: float) -> Op[None]:
        """Until there is a new row, or ``wait_s`` have passed. A Cluster's shards can't be waited for in one call."""
        session = self.store.session
        if session.is_cluster or session.is_fake:
            yield from pause(min(wait_s, _PAUSE_S))
        else:
            shards = self.store.topics.all_shards(self.topic)
            seen = {shard.history: self._read.get(shard.shard, _NONE).encode() for shard in shards}
            yield from listen(session, list(seen), seen, wait_s)

    def _shards(self) -> Op[Sequence[ShardKeys]]:
        """The topic's shards as they are now: one that is new is read from its beginning."""
        yield from topic_names(self.store, self.topic)
        shards = self.store.topics.all_shards(self.topic)
        if not self._began:
            self._read = yield from self._first(shards)
            self._passed.update(self._read)
            self._began = True
        return shards

    def _first(self, shards: Sequence[ShardKeys]) -> Op[dict[int, str]]:
        if isinstance(self.since, _Position):
            return dict(self.since.after)
        if self.since.ms is not None:
            since_ms = self.since.at((yield from now_ms(self.store.session)), 0)
            return {shard.shard: f"{since_ms - 1}-{_LAST_IN_MS}" if since_ms > 0 else _NONE for shard in shards}
        newest = yield from history_reads.newest_rows(self.store.session, [(shard, 1) for shard in shards])
        return {shard.shard: rows[0].id if rows else _NONE for shard, rows in zip(shards, newest, strict=True)}


def following(store: RedisStore, topic: str, since: Bound | None) -> Following:
    """Raises:
    InvalidInput: ``since`` is neither a position nor a time.
    """
    if isinstance(since, str) and _POSITION.fullmatch(since):
        after = {int(shard): entry for shard, _, entry in (part.partition(":") for part in since.split(","))}
        if any(max(order_of(entry)) > _LAST_IN_MS for entry in after.values()):
            raise InvalidInput("since: no such position")
        return Following(store, check_topic(topic), _Position(after))
    return Following(store, check_topic(topic), time_of(since, "since"))


class _Events:
    """What Events and AsyncEvents have in common."""

    def __init__(self, found: Following, timeout: Duration | None) -> None:
        self._following = found
        self._timeout_s = float("inf") if timeout is None else to_ms(timeout, "timeout") / 1000

    @property
    def position(self) -> str:
        """Where ``since=`` goes on, in this process or another one: after the event that came last. "" before the first
        read.
        """
        return self._following.position


class Events(_Events):
    """A topic's events, those that are there and then those that come. Iterating it waits for the next one, and goes on
    where it was left.
    """

    def __init__(self, link: Link, found: Following, timeout: Duration | None) -> None:
        super().__init__(found, timeout)
        self._link = link

    def __iter__(self) -> Iterator[JobEvent]:
        while (event := run(self._link, self._following.next(self._timeout_s))) is not None:
            yield event


class AsyncEvents(_Events):
    """Like Events, for ``async for``."""

    def __init__(self, link: AsyncLink, found: Following, timeout: Duration | None) -> None:
        super().__init__(found, timeout)
        self._link = link

    async def __aiter__(self) -> AsyncIterator[JobEvent]:
        while (event := await arun(self._link, self._following.next(self._timeout_s))) is not None:
            yield event
