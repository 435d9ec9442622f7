"""Operations on schedules over HTTP. A caller that may enqueue a topic's jobs may also schedule them."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic_core import from_json, to_json

from ...errors import ScheduleMissing
from ...link.session import Op
from ...operations.json_out import schedule_fields
from ...operations.schedules import define, read
from ...operations.schedules.read import Schedule
from ...store.redis_store import RedisStore
from .. import redact
from ..auth import Identity, Role
from .dead_letters import PAGE_BYTES
from .jobs import job_response
from .models.common import NAME, due_from
from .models.jobs import JobOut
from .models.schedules import BackfillIn, BackfillOut, ScheduleIn, ScheduleOut, SchedulesOut
from .route import JSON, Route, TopicPath, backend_of, created, location_of, operation, who_asks

router = APIRouter(route_class=Route)
_LOOK = (Role.PRODUCER, Role.VIEWER)
_SCHEDULE = "/v1/topics/{topic:segment}/schedules/{id:segment}"
_MISSING = ["unknown-topic", "no-schedule"]
ScheduleId = Annotated[
    str,
    Path(
        description="The schedule's id, percent-encoded.", max_length=255, examples=["acme"], json_schema_extra=NAME
    ),
]  # fmt: skip
_producing = partial(operation, router, roles=(Role.PRODUCER,), tag="Schedules", notable=True)


def schedule_bytes(schedule: Schedule) -> bytes:
    """The schedule as JSON; its body is copied as stored, or null if that is no JSON."""
    try:
        from_json(schedule.raw_body, allow_inf_nan=False)
    except ValueError:
        return to_json(schedule_fields(schedule) | {"body": None})
    return to_json(schedule_fields(schedule))[:-1] + b',"body":' + schedule.raw_body + b"}"


def _response(schedule: Schedule, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(schedule_bytes(schedule), status, headers, media_type=JSON)


def schedules_page(
    store: RedisStore, who: Identity, topic: str | None, limit: int, after: str, asked: str = ""
) -> Op[tuple[list[Schedule], str | None]]:
    """At most ``limit`` schedules by topic and id, until they exceed PAGE_BYTES; and after which the next page begins,
    None on the last page. ``asked``: only those with this in their topic or id.
    """
    if topic is None:
        known = yield from store.topics.registry()
        topics = [name for name in redact.topics(who, known) if known[name].scheduled]
    else:
        topics = [topic]
    reached = tuple(after.split(" ", 1))  # no topic's name has a space
    found: list[Schedule] = []
    size = 0
    for name in topics:
        if name < reached[0]:
            continue
        for one in (yield from read.schedules(store, name)):
            if (one.topic, one.id) <= reached or asked.lower() not in f"{one.topic} {one.id}".lower():
                continue
            if len(found) == limit or size >= PAGE_BYTES:
                return found, f"{found[-1].topic} {found[-1].id}"
            found.append(one)
            size += len(schedule_bytes(one))
    return found, None


@operation(
    router, "GET", "/v1/schedules", roles=_LOOK, tag="Schedules", sifts=True, problems=["unknown-topic"],
    responses={200: {"description": "The schedules, by topic and id.", "model": SchedulesOut}},
)  # fmt: skip
async def list_schedules(
    request: Request,
    topic: Annotated[str | None, Query(description="One topic instead of all.", max_length=255)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    after: Annotated[
        str, Query(description="The `next` of the page before.", max_length=600, examples=["report.send acme"])
    ] = "",
) -> Response:
    """List schedules, of one topic or of all that the token allows.

    At most `limit`, and at most 1 MiB. Pass `next` as `after` to get the following page; it is null on the last one.
    """
    backend, who = backend_of(request), who_asks(request)
    found, following = await backend.do(schedules_page(await backend.store(), who, topic, limit, after))
    listed = b",".join(map(schedule_bytes, found))
    return Response(b'{"schedules":[' + listed + b'],"next":' + to_json(following) + b"}", media_type=JSON)


@operation(
    router, "GET", _SCHEDULE, roles=_LOOK, tag="Schedules", problems=_MISSING,
    responses={200: {"description": "The schedule.", "model": ScheduleOut}},
)  # fmt: skip
async def get_schedule(request: Request, topic: TopicPath, id: ScheduleId) -> Response:
    """Get a schedule, and when its next occurrences come."""
    return _response(await (await backend_of(request).queue()).get_schedule(topic, id))


@_producing(
    "PUT", _SCHEDULE, takes=JSON, status=201, problems=["too-many-topics"],
    responses={
        201: created("The schedule is added.", ScheduleOut),
        200: {"description": "It was there, and is changed if anything differs; or a dry run.", "model": ScheduleOut},
    },
)  # fmt: skip
async def put_schedule(
    request: Request,
    topic: TopicPath,
    id: ScheduleId,
    schedule: ScheduleIn,
    dry_run: Annotated[bool, Query(description="Only answer what it would be, with its next times.")] = False,
) -> Response:
    """Add a schedule under an id, or change it.

    Idempotent: repeated with the same content, it changes nothing. A change holds from the next occurrence on; fields
    that you leave out get their defaults, even if the schedule had other values. A paused schedule stays paused. A
    topic that does not exist is created.
    """
    backend = backend_of(request)
    put = define.preview_schedule if dry_run else define.put_schedule
    done = await backend.do(put(await backend.store(), topic, id, *schedule.planned()))
    if done.before is None and not dry_run:
        return _response(done.after, 201, location_of(request, topic, id, "schedules"))
    return _response(done.after)


@_producing(
    "DELETE", _SCHEDULE, problems=_MISSING, status=204,
    responses={204: {"description": "It is gone; the jobs of its past occurrences stay."}},
)  # fmt: skip
async def remove_schedule(request: Request, topic: TopicPath, id: ScheduleId) -> Response:
    """Remove a schedule."""
    if not await (await backend_of(request).queue()).unschedule(topic, id):
        raise ScheduleMissing(f"topic {topic!r} has no schedule {id!r}")
    return Response(status_code=204)


@_producing(
    "POST", _SCHEDULE + "/pause", problems=_MISSING, responses={200: {"description": "It is.", "model": ScheduleOut}}
)
async def pause_schedule(request: Request, topic: TopicPath, id: ScheduleId) -> Response:
    """Pause a schedule: what comes meanwhile neither runs nor counts as missed."""
    return _response(await (await backend_of(request).queue()).pause_schedule(topic, id))


@_producing(
    "POST", _SCHEDULE + "/resume", problems=_MISSING,
    responses={200: {"description": "The schedule, with its next times.", "model": ScheduleOut}},
)  # fmt: skip
async def resume_schedule(request: Request, topic: TopicPath, id: ScheduleId) -> Response:
    """Resume a paused schedule, from its next occurrence on."""
    return _response(await (await backend_of(request).queue()).resume_schedule(topic, id))


@_producing(
    "POST", _SCHEDULE + "/trigger", problems=_MISSING, status=201,
    responses={201: created("The job is in.", JobOut)},
)  # fmt: skip
async def trigger_schedule(request: Request, topic: TopicPath, id: ScheduleId) -> Response:
    """Enqueue a job of a schedule now, besides its occurrences.

    Whatever its state and overlap. Not idempotent: two requests create two jobs.
    """
    job = await (await backend_of(request).queue()).trigger(topic, id)
    return job_response(job, 201, location_of(request, topic, job.id))


@_producing(
    "POST", _SCHEDULE + "/backfill", takes=JSON, problems=_MISSING,
    responses={200: {"description": "How many jobs were enqueued.", "model": BackfillOut}},
)  # fmt: skip
async def backfill_schedule(request: Request, topic: TopicPath, id: ScheduleId, span: BackfillIn) -> Response:
    """Enqueue the jobs of a past time, one for each occurrence, due at once and in their order.

    At most 100,000. Those that are in the queue stay as they are, so the request may be repeated after an error; those
    that have ended run again.
    """
    start, end = due_from(span.start, "start"), due_from(span.end, "end")
    count = await (await backend_of(request).queue()).backfill(topic, id, start, end)
    return Response(to_json({"enqueued": count}), media_type=JSON)
