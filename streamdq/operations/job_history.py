"""What became of one job: its rows in the history, each with what failed, as far as that is still kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..job.job import check_id, check_topic
from ..keys import ShardKeys
from ..link.session import Op
from ..store import history_reads
from ..store.entries import ms_of
from ..store.failures import Failure, failure_in
from ..store.history import Event, HistoryRow, known_row_in, may_concern
from ..store.redis_store import RedisStore
from .inspect import shard_with, topic_names

LOOKBACK_ROWS = 10_000
_PAGE = 500
_FAILED = (Event.RETRY, Event.DEAD)


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A row of the history. If it is an attempt that failed: class and message of the exception, and the traceback, ''
    where these are not kept, or not any more.
    """

    row: HistoryRow
    message: str = ""
    traceback: str = ""


def job_history(store: RedisStore, topic: str, id: str) -> Op[list[JobEvent]]:
    """What became of the job: each attempt and change that the topic's history still has, in order. It reads the whole
    history, by default up to 100 000 rows of each shard.

    Raises:
        UnknownTopic
    """
    yield from topic_names(store, check_topic(topic))
    check_id(id)
    found: list[HistoryRow] = []
    for shard in store.topics.all_shards(topic):
        rows, _ = yield from rows_of(store, shard, id, None, all_rows=True)
        found += rows
    found.sort(key=lambda row: (row.finished_ms, row.shard, row.place))
    return (yield from with_failures(store, topic, found))


def latest_rows(store: RedisStore, topic: str, id: str) -> Op[tuple[list[HistoryRow], bool]]:
    """The job's rows, oldest first, among the last LOOKBACK_ROWS of the shard that has it, or would have it; and
    whether no older one can be missing.

    Raises:
        UnknownTopic
    """
    settings = yield from store.topics.latest(check_topic(topic))
    shard = yield from shard_with(store, topic, settings, id)
    return (yield from rows_of(store, shard, id, None))


def with_failures(store: RedisStore, topic: str, rows: Sequence[HistoryRow]) -> Op[list[JobEvent]]:
    """The rows of one topic, each with what failed."""
    asked = [row for row in rows if row.event in _FAILED]
    places = [(store.session.keys.shard(topic, row.shard), row.entry) for row in asked]
    values = (yield from history_reads.failures_at(store.session, places)) if places else []
    kept = {(row.shard, row.entry): failure_in(value) for row, value in zip(asked, values, strict=True) if value}
    none = Failure("")
    found = [(row, kept.get((row.shard, row.entry), none)) for row in rows]
    return [JobEvent(row, failure.message, failure.traceback) for row, failure in found]


def rows_of(
    store: RedisStore, shard: ShardKeys, id: str, since_ms: int | None, *, all_rows: bool = False
) -> Op[tuple[list[HistoryRow], bool]]:
    """The job's rows, oldest first, among the last LOOKBACK_ROWS of its shard, or among ``all_rows``; and whether these
    reach back far enough: to ``since_ms``, or to the oldest row.
    """
    rows: list[HistoryRow] = []
    before, looked = "", 0
    while all_rows or looked < LOOKBACK_ROWS:
        entries = yield from history_reads.rows_before(store.session, shard, before, _PAGE)
        for entry in entries:
            if may_concern(entry.value, id):
                row = known_row_in(shard.topic, shard.shard, entry.id, entry.value)
                rows += [row] if row and row.id == id else []
        looked += len(entries)
        if len(entries) < _PAGE:
            return rows[::-1], True
        before = entries[-1].id
        if since_ms is not None and ms_of(before) < since_ms:
            return rows[::-1], True
    return rows[::-1], False
