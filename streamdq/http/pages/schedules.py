"""The page of all schedules, and the actions of its buttons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from ...link.session import Op
from ...operations.schedules.read import Schedule
from ...schedules.civil import zone
from ...schedules.plan import occurrence_in
from ...store import namespace
from ...store.history import history_reads
from ...store.history.rows import Event, HistoryRow, known_row_in
from ...store.redis_store import RedisStore
from ...times.durations import show_ms
from .. import redact
from ..api.route import TopicPath, backend_of, who_asks
from ..api.schedules import ScheduleId, schedules_page
from ..auth import Identity, Role
from .page_routes import PageRoute, form_of, get, post, redirect
from .render import base_of, page, timestamp
from .timeline import SNOOZED

router = APIRouter(route_class=PageRoute)
_SCHEDULE = "/topics/{topic:segment}/schedules/{id:segment}"
_PAGE = 50
_ROWS = 2_000  # of history, for a whole page; each topic gets its part
_FEWEST_ROWS = 50
Text = Annotated[str, Query(max_length=600)]

_OUTCOMES = (
    Event.DEAD, Event.EXPIRED, Event.RETRY, Event.RECLAIMED, SNOOZED, Event.RELEASED, Event.KICKED, Event.CANCELLED,
    Event.DONE,
)  # fmt: skip  # if groups ended it differently, the first of these is shown


@dataclass(frozen=True, slots=True)
class Run:
    """The job of an occurrence, or of a trigger. ``outcome`` '': the rows that were read have none."""

    id: str
    time_ms: int
    outcome: str = ""
    finished_ms: int | None = None
    ran_ms: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Time:
    """When an occurrence comes, as clocks in the schedule's zone and in UTC show it. ``utc`` '': that is its zone."""

    ms: int
    local: str
    utc: str


@dataclass(frozen=True, slots=True)
class Line:
    """A schedule in the list. ``last``: its last run. ``known``: the last one with a result, if that is another."""

    schedule: Schedule
    times: list[Time]
    last: Run | None
    known: Run | None

    @property
    def facts(self) -> list[str]:
        """Its zone, and what is not as by default."""
        given = self.schedule.definition
        return [
            *([given.tz] if given.cron else []),
            *([f"up to {show_ms(given.jitter_ms)} later"] if given.jitter_ms else []),
            *({"skip": ["skips if the last has not ended"], "queue": ["one at a time"]}.get(given.overlap, [])),
            *([f"from {timestamp(given.start_ms)[:-4]}"] if given.start_ms else []),
            *([f"until {timestamp(given.until_ms)[:-4]}"] if given.until_ms else []),
            *(["declared by a worker"] if given.declared else []),
        ]


@get(router, "/schedules", sifts=True)
async def schedules(
    request: Request,
    topic: Annotated[str | None, Query(max_length=255)] = None,
    q: Text = "",
    after: Text = "",
) -> Response:
    backend, who = backend_of(request), who_asks(request)
    store = await backend.store()
    found, following = await backend.do(schedules_page(store, who, topic, _PAGE, after, q))
    runs = await backend.do(last_runs(store, who, found))
    now_ms = await backend.do(namespace.now_ms(store.session))
    active = any(one.state == "active" for one in found)
    return page(
        request, "schedules.html", topic=topic,
        lines=[line_of(one, runs.get((one.topic, one.id)), now_ms) for one in found],
        q=q, after=after, next=following or "", now=now_ms, here="schedules",
        still=active and await backend.do(namespace.mover_at_work(store.session)) is None,
    )  # fmt: skip


def last_runs(store: RedisStore, who: Identity, found: Sequence[Schedule]) -> Op[dict[tuple[str, str], Run]]:
    """The last run with a result of each schedule, by topic and id, if it is among the newest rows of its topic's
    history. One read for each topic: its schedules and their jobs are in the first shard.
    """
    topics = sorted({one.topic for one in found})
    count = max(_FEWEST_ROWS, _ROWS // max(1, len(topics)))
    shards = [store.session.keys.shard(topic, 0) for topic in topics]
    runs: dict[tuple[str, str], Run] = {}
    read = yield from history_reads.newest_rows(store.session, [(shard, count) for shard in shards])
    for shard, entries in zip(shards, read, strict=True):
        rows = (known_row_in(shard.topic, 0, entry.id, entry.value) for entry in entries)
        for id, run in _runs_in(redact.rows(who, filter(None, rows))).items():
            runs[shard.topic, id] = run
    return runs


def _runs_in(rows: Iterable[HistoryRow]) -> dict[str, Run]:
    """The last run of each schedule, of a topic's rows, newest first."""
    last: dict[str, tuple[int, str, dict[str, HistoryRow]]] = {}
    for row in rows:
        occurrence = occurrence_in(row.id)
        if occurrence is None:
            continue
        id, time_ms = occurrence
        if id not in last or time_ms > last[id][0]:
            last[id] = (time_ms, row.id, {})
        if row.id == last[id][1]:
            last[id][2].setdefault(row.group, row)
    return {id: _run_of(time_ms, list(groups.values())) for id, (time_ms, _, groups) in last.items()}


def _run_of(time_ms: int, rows: Sequence[HistoryRow]) -> Run:
    row = min(rows, key=lambda row: _OUTCOMES.index(_outcome(row)))
    ran_ms = None if row.started_ms is None else max(0, row.finished_ms - row.started_ms)
    why = ": ".join(filter(None, (row.reason, row.error)))
    return Run(row.id, time_ms, _outcome(row), row.finished_ms, ran_ms, why)


def _outcome(row: HistoryRow) -> str:
    return SNOOZED if row.event is Event.RELEASED and row.error else row.event.value


def line_of(schedule: Schedule, known: Run | None, now_ms: int) -> Line:
    times = [_time(ms, schedule.definition.tz, now_ms) for ms in schedule.next_ms]
    occurrence = occurrence_in(schedule.previous or "")
    if schedule.previous is None or occurrence is None or (known and known.time_ms >= occurrence[1]):
        return Line(schedule, times, known, None)
    return Line(schedule, times, Run(schedule.previous, occurrence[1]), known)


def _time(ms: int, tz: str, now_ms: int) -> Time:
    local, utc, now = (datetime.fromtimestamp(at / 1000, zone(tz)) for at in (ms, ms, now_ms))
    utc = utc.astimezone(UTC)
    same_day = local.date() == utc.date()
    shown = "" if tz == "UTC" else f"{'' if same_day else _day(utc, now)}{_clock(utc)}"
    return Time(ms, f"{_day(local, now)}{_clock(local)}", shown)


def _day(at: datetime, now: datetime) -> str:
    """With the year, unless it is the current one."""
    return f"{at:%a %d %b}, " if at.year == now.year else f"{at:%a %d %b %Y}, "


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S %Z}" if at.second else f"{at:%H:%M %Z}"


# -- buttons


async def _back(request: Request, did: str) -> Response:
    """To the page that the button was on."""
    form = await form_of(request)
    where = {name: form[name][0] for name in ("topic", "q", "after") if form.get(name, [""])[0]}
    return redirect(f"{base_of(request)}/schedules?{urlencode({**where, 'did': did})}")


@post(router, _SCHEDULE + "/pause", Role.PRODUCER)
async def pause_schedule(request: Request, topic: TopicPath, id: ScheduleId) -> Response:
    await (await backend_of(request).queue()).pause_schedule(topic, id)
    return await _back(request, "schedule-paused")


@post(router, _SCHEDULE + "/resume", Role.PRODUCER)
async def resume_schedule(request: Request, topic: TopicPath, id: ScheduleId) -> Response:
    await (await backend_of(request).queue()).resume_schedule(topic, id)
    return await _back(request, "schedule-resumed")


@post(router, _SCHEDULE + "/trigger", Role.PRODUCER)
async def trigger_schedule(request: Request, topic: TopicPath, id: ScheduleId) -> Response:
    await (await backend_of(request).queue()).trigger(topic, id)
    return await _back(request, "triggered")


@post(router, _SCHEDULE + "/remove", Role.PRODUCER)
async def remove_schedule(request: Request, topic: TopicPath, id: ScheduleId) -> Response:
    await (await backend_of(request).queue()).unschedule(topic, id)
    return await _back(request, "schedule-removed")
