"""Enqueues jobs of a schedule outside its times: one now, or those of past occurrences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice

from ...config import MAX_BATCH
from ...errors import InvalidInput
from ...job.job import Job, NewJob
from ...link.session import Op
from ...schedules.definition import named_moment, shown
from ...schedules.plan import occurrence_id
from ...store.jobs import lookup
from ...store.jobs.records import Encoded, encode, encode_when, fields_in, rest_of
from ...store.redis_store import RedisStore
from ...store.schedules.schedules import StoredSchedule
from ...times.durations import Moment
from ..jobs.enqueue import put
from .read import DUE, read, schedules_of

_MOST_BACKFILLED = 100_000


def trigger(store: RedisStore, topic: str, id: str = "default") -> Op[Job]:
    """Enqueues a job of the schedule now, whatever its state and overlap. The schedule does not change.

    Raises:
        UnknownTopic, ScheduleMissing
        ServerUnavailable: no reply in time; the job may have been enqueued.
    """
    known, now_ms = yield from read(store, topic, id)
    own = {one.time_ms for one in (*known.plan, known.ahead, known.held) if one}
    for time_ms in count(now_ms):  # not one that an occurrence, or somebody else at the same time, has the id of
        if time_ms not in own:
            job = _job_at(store, topic, id, known, time_ms, now_ms)
            reply = yield from put(store, topic, [job])
            if not reply.existing:
                return reply.job(topic, job)
    raise AssertionError


def backfill(store: RedisStore, topic: str, id: str, start: Moment, end: Moment) -> Op[int]:
    """Enqueues the jobs of the occurrences from ``start`` until before ``end``, due at once in their order; returns how
    many. Queued occurrences are untouched, finished ones run again, and future ones stay with the schedule. At most
    100,000.

    Raises:
        UnknownTopic, ScheduleMissing
        InvalidInput: too many, or the end is before the start.
    """
    known, now_ms = yield from read(store, topic, id)
    begin_ms, end_ms = named_moment("start", start), named_moment("end", end)
    if end_ms < begin_ms:
        raise InvalidInput("backfill: end is before start")
    times = _until(known.definition.times(begin_ms - 1), min(end_ms, now_ms + 1))
    found = list(islice(times, _MOST_BACKFILLED + 1))
    if len(found) > _MOST_BACKFILLED:
        raise InvalidInput(f"backfill: more than {_MOST_BACKFILLED:,} occurrences; choose a shorter time")
    created = 0
    for i in range(0, len(found), MAX_BATCH):
        new = yield from _without_old(store, topic, id, found[i : i + MAX_BATCH])
        jobs = [_job_at(store, topic, id, known, time, min(time, now_ms)) for time in new]
        reply = yield from put(store, topic, jobs)
        created += len(jobs) - len(reply.existing)
    return created


def jobs_to_come(store: RedisStore, topic: str) -> Op[dict[str, Job]]:
    """By the schedule's id, the job that each makes next, also if it is paused. Nothing is enqueued."""
    known, now_ms = (yield from schedules_of(store).all_of(topic)), (yield from schedules_of(store).now_ms(topic))
    jobs = {}
    for id in sorted(known):
        for time_ms in known[id].definition.next(now_ms, 1):
            made = _job_at(store, topic, id, known[id], time_ms, time_ms)
            jobs[id] = made.job(topic, now_ms, store.session.bodies)
    return jobs


def _without_old(store: RedisStore, topic: str, id: str, times: Sequence[int]) -> Op[Sequence[int]]:
    """Without occurrences whose jobs are there, with ids for an earlier number of the topic's shards."""
    first = store.session.keys.shard(topic, 0)
    for count_then in store.topics.settings_of(topic).former:
        names = [occurrence_id(id, time, count_then) for time in times]
        there = yield from lookup.records_there(store.session, first, names)
        times = [time for time, is_there in zip(times, there, strict=True) if not is_there]
    return times


def _until(times: Iterator[int], end_ms: int) -> Iterator[int]:
    for time in times:
        if time >= end_ms:
            return
        yield time


def _job_at(store: RedisStore, topic: str, id: str, known: StoredSchedule, time_ms: int, due_ms: int) -> Encoded:
    name = occurrence_id(id, time_ms, store.topics.settings_of(topic).shards)
    new = encode(NewJob(0, id=name), 1)  # for its nonce
    job = _filled_in(known.job, shown(time_ms, known.definition.tz).encode())
    rest = rest_of(**{**fields_in(job), "nonce": new.nonce})
    return Encoded(name, encode_when(None, due_ms), rest, new.nonce)


def _filled_in(job: bytes, time: bytes) -> bytes:
    """With the time in place of ``{due}``. As ``fill_in`` of lua/lib/schedule.lua."""
    *head, body = job.split(b"\n", 5)
    in_url = time.replace(b"+", b"%2B")  # where + means a space
    return b"\n".join([*(line.replace(DUE, in_url) for line in head), body.replace(DUE, time)])
