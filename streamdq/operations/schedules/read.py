"""Looks up schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from ...codec.envelope import Envelope, envelope_in, from_text
from ...errors import InvalidInput, ScheduleMissing
from ...job.job import check_id
from ...link.session import Op
from ...schedules.definition import Definition
from ...schedules.plan import MAX_ID_BYTES
from ...store.jobs.records import fields_in
from ...store.redis_store import RedisStore
from ...store.schedules.schedules import Schedules, ScheduleState, StoredSchedule

_SHOWN = 5
DUE = b"{due}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule as Redis holds it. Times are Redis's; ``*_ms`` are Unix milliseconds, durations milliseconds."""

    topic: str
    id: str
    state: ScheduleState
    definition: Definition
    next_ms: list[int]  # when the next occurrences come, by the clock, without jitter; five at most
    previous: str | None  # id of the last occurrence's job
    waiting: bool  # one occurrence waits for its predecessor to end (overlap="queue")
    fired: int
    skipped: int
    missed: int
    raw_body: bytes  # JSON as it was given, with {due}
    version: int  # of the body's shape
    ttr_ms: int | None  # these four: of its jobs
    retry: str | None
    url: str | None
    expire_ms: int | None

    @property
    def body(self) -> Any:
        """The body of its jobs, decoded from JSON, with ``{due}``."""
        return from_json(self.raw_body)

    @property
    def text(self) -> str:
        """When it runs: its expression, or ``every 10m``."""
        return self.definition.phrase


def body_in(job: bytes) -> Envelope:
    """It is not encoded, but says its version if that is not 1."""
    return envelope_in(from_text(fields_in(job)["body"]))


def schedules(store: RedisStore, topic: str | None = None) -> Op[list[Schedule]]:
    """The schedules of a topic, or of all, by topic and id.

    Raises:
        UnknownTopic: there is no such topic.
    """
    if topic is None:
        topics = [name for name, settings in (yield from store.topics.registry()).items() if settings.scheduled]
    else:
        yield from store.topics.get(topic)
        topics = [topic]
    found = []
    for name in sorted(topics):
        known, now_ms = (yield from schedules_of(store).all_of(name)), (yield from schedules_of(store).now_ms(name))
        found += [as_schedule(name, id, known[id], now_ms) for id in sorted(known)]
    return found


def get_schedule(store: RedisStore, topic: str, id: str = "default") -> Op[Schedule]:
    """One schedule.

    Raises:
        UnknownTopic: there is no such topic.
        ScheduleMissing: it has no such schedule.
    """
    return as_schedule(topic, id, *(yield from read(store, topic, id)))


def check_schedule_id(id: str) -> str:
    id = check_id(id)
    if len(id.encode()) > MAX_ID_BYTES:
        raise InvalidInput(f"id: a schedule's has at most {MAX_ID_BYTES} bytes")
    return id


def read(store: RedisStore, topic: str, id: str) -> Op[tuple[StoredSchedule, int]]:
    yield from store.topics.get(topic)
    known, now_ms = yield from schedules_of(store).read(topic, check_schedule_id(id))
    return must_exist(known, topic, id), now_ms


def schedules_of(store: RedisStore) -> Schedules:
    return Schedules(store.session, store.scripts, store.topics)


def must_exist(known: StoredSchedule | None, topic: str, id: str) -> StoredSchedule:
    if known is None:
        raise ScheduleMissing(f"topic {topic!r} has no schedule {id!r}; `schedules` lists those it has")
    return known


def as_schedule(topic: str, id: str, known: StoredSchedule, now_ms: int) -> Schedule:
    """A job that is enqueued ahead of its time is an occurrence to come."""
    known = known.seen_at(now_ms)
    last = known.plan[-1].time_ms if known.plan else known.last_ms
    times = [one.time_ms for one in known.plan[:_SHOWN]]
    if known.state == "active" and known.more:
        times += known.definition.next(last, _SHOWN - len(times))
    job, body = fields_in(known.job), body_in(known.job)
    return Schedule(
        topic=topic, id=id, state=known.state, definition=known.definition, next_ms=times,
        previous=known.previous or None, waiting=known.held is not None, fired=known.totals.fired,
        skipped=known.totals.skipped, missed=known.totals.missed, raw_body=body.data, version=body.version,
        ttr_ms=job["ttr_ms"], retry=job["retry"], url=job["url"], expire_ms=job["expire_ms"],
    )  # fmt: skip
