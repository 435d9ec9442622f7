"""What became of one job: its rows in the history, each with what failed, as far as that is still kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from ...job.job import check_id, check_topic
from ...keys import ShardKeys
from ...link.session import Op
from ...store.entries import ms_of
from ...store.history import history_reads
from ...store.history.failures import Failure, failure_in
from ...store.history.rows import Event, HistoryRow, known_row_in, may_concern
from ...store.jobs import lookup
from ...store.redis_store import RedisStore
from ..jobs.get import shard_with
from ..known import topic_names

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
    history, by default up to 100,000 rows of each shard.

    Raises:
        UnknownTopic
    """
    yield from topic_names(store, check_topic(topic))
    id = check_id(id)
    found: list[HistoryRow] = []
    for shard in store.topics.all_shards(topic):
        rows, _ = yield from rows_of(store, shard, id, None, most=inf)
        found += rows
    found.sort(key=lambda row: (row.finished_ms, row.shard, row.place))
    return (yield from with_failures(store, topic, found))


def latest_rows(store: RedisStore, topic: str, id: str) -> Op[tuple[list[HistoryRow], bool]]:
    """The job's rows, oldest first, among the last LOOKBACK_ROWS of the shard that has it, or else as ``ended_rows``
    finds them; and whether no older one can be missing.

    Raises:
        UnknownTopic
    """
    settings = yield from store.topics.latest(check_topic(topic))
    shard = yield from shard_with(store, topic, settings, id)
    if (yield from lookup.with_job(store.session, [shard], id)):
        return (yield from rows_of(store, shard, id, None))
    return (yield from ended_rows(store, shard, id))


def ended_rows(store: RedisStore, usual: ShardKeys, id: str) -> Op[tuple[list[HistoryRow], bool]]:
    """The same of a job that no shard has any more. ``usual``: the shard of its id, which is looked through first. But
    it may have had a key, or the topic another number of shards; then its rows are in another one, and so many more
    are looked through, of all others together.
    """
    rows, complete = yield from rows_of(store, usual, id, None)
    others = [] if rows else [shard for shard in store.topics.all_shards(usual.topic) if shard != usual]
    for shard in others:
        found, whole = yield from rows_of(store, shard, id, None, most=max(_PAGE, LOOKBACK_ROWS // len(others)))
        if found:
            return found, whole
        complete = complete and whole
    return rows, complete


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
    store: RedisStore, shard: ShardKeys, id: str, since_ms: int | None, *, most: float | None = None
) -> Op[tuple[list[HistoryRow], bool]]:
    """The job's rows, oldest first, among the last LOOKBACK_ROWS of its shard, or among ``most``; and whether these
    reach back far enough: to ``since_ms``, or to the oldest row.
    """
    most = LOOKBACK_ROWS if most is None else most
    rows: list[HistoryRow] = []
    before, looked = "", 0
    while looked < most:
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
