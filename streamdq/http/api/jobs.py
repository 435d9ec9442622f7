"""Producers' operations: put, get, cancel and reschedule a job; bulk uploads."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic_core import to_json

from ...errors import BodyUnreadable, IdTaken, JobExists
from ...job.durability import PATTERN
from ...job.job import MAX_KEY_CHARS, Job, JobState, NewJob, check_topic
from ...job.uniqueness import OnConflict
from ...link.session import Op
from ...operations.history.job_history import latest_rows, with_failures
from ...operations.jobs.abort import AbortResult
from ...operations.jobs.enqueue import put, refusal
from ...operations.json_out import event_json, job_fields
from ...options import OF_JOB
from ...store.jobs.records import encode
from ...store.redis_store import RedisStore
from .. import redact
from ..audit_log import about
from ..auth import Role
from ..problems import ProblemError
from ..request_body import is_same_json
from .bulk import Loader
from .models.common import WhenIn, due_from
from .models.jobs import AbortOut, BulkOut, JobHistoryOut, JobIn, JobOut
from .route import (
    JSON,
    NDJSON,
    IdPath,
    Route,
    TopicPath,
    backend_of,
    check_every_group,
    check_topics_scope,
    created,
    location_of,
    operation,
    who_asks,
)

router = APIRouter(route_class=Route)
_PRODUCER, _LOOK = (Role.PRODUCER,), (Role.PRODUCER, Role.WORKER, Role.VIEWER)
_JOBS = "/v1/topics/{topic:segment}/jobs"
_JOB = _JOBS + "/{id:segment}"
OnConflictIn = Annotated[
    OnConflict,
    Query(
        description=f"{OF_JOB['on_conflict']} `reject`: 409, unless the content is the same. `keep`: answer with the "
        "existing job. `replace`: cancel it first, unless it is running or dead. `postpone`: give it this body and due "
        "time, unless it is running or dead."
    ),
]

DurableIn = Annotated[
    str | None,
    Query(
        description=OF_JOB["durable"],
        pattern=PATTERN,
        max_length=20,
        examples=["replicas:1"],
    ),
]
KeyIn = Annotated[
    str | None,
    Query(
        description="The job's key, if it has one. Left out: the job is found all the same.", max_length=MAX_KEY_CHARS
    ),
]
AbortGroupIn = Annotated[
    str | None, Query(description="Abort it for this consumer group alone. Left out: for all.", max_length=64)
]
_DURABILITY = ["not-durable", "durability-unsupported"]


def job_bytes(job: Job) -> bytes:
    """The job as JSON; that of its body is copied. A body that can't be read here is null, with the reason."""
    fields = to_json(job_fields(job))[:-1]
    if why := job.why_unreadable:
        return fields + b',"body":null,"body_unreadable":' + to_json(why) + b"}"
    return fields + b',"body":' + job.json + b"}"


def job_response(job: Job, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(job_bytes(job), status, headers, media_type=JSON)


def _put(
    store: RedisStore, topic: str, new: NewJob, on_conflict: OnConflict, durable: str | None
) -> Op[tuple[Job, JobExists | None]]:
    """The job that has the id afterwards, and why it is not the caller's."""
    topic = check_topic(topic)
    bodies = store.session.bodies
    job = encode(new, bodies.most_json_bytes, bodies.seal(topic))
    reply = yield from put(store, topic, [job], on_conflict, durable)
    return reply.job(topic, job), refusal(topic, job, reply.taken[0], on_conflict) if reply.existing else None


def _allowed(request: Request, job: JobIn) -> JobIn:
    """
    Raises:
        ProblemError: it waits for a job of a topic that the token does not allow.
    """
    check_topics_scope(who_asks(request), (parent.topic for parent in job.after or ()))
    return job


def _is_same(there: Job, new: NewJob, limit: int) -> bool:
    """Whether the existing job comes from the same request. Its due time is compared as requested, counted from the
    job's creation; so a rescheduled job counts as another one. The others that it waits for decide on a due time of its
    own, so it is not compared.
    """
    asked = encode(new, limit).job(there.topic, there.created_ms)
    if new.after is not None:
        asked.due_ms = there.due_ms
    if any(
        getattr(there, name) != getattr(asked, name)
        for name in ("due_ms", "ttr_ms", "retry", "url", "expire_ms", "key", "priority")
    ):
        return False
    try:
        return there.version == new.version and (there.json == asked.json or is_same_json(there.body, asked.body))
    except BodyUnreadable:
        return False


@operation(
    router, "PUT", _JOB, roles=_PRODUCER, takes=JSON, tag="Jobs", status=201,
    problems=["job-exists", "parent-unknown", "too-many-topics", "storage-unavailable", *_DURABILITY],
    responses={
        201: created("The job is in.", JobOut),
        200: {"description": "It was in already: put by the same request before, or kept.", "model": JobOut},
    },
)  # fmt: skip
async def put_job(
    request: Request,
    topic: TopicPath,
    id: IdPath,
    job: JobIn,
    on_conflict: OnConflictIn = "reject",
    durable: DurableIn = None,
) -> Response:
    """Enqueue a job under an id.

    Idempotent: repeated with the same content, it answers 200 with the existing job, as long as that has not ended. The
    same content means the same body, url, ttr, retry, expire, key and priority, and without after the same delay or at.
    Other content is answered with 409, unless on_conflict says otherwise. A topic that does not exist is created.
    """
    backend, new = backend_of(request), _allowed(request, job).new_job(id)
    store = await backend.store()
    found, refused = await backend.do(_put(store, topic, new, on_conflict, durable))
    if refused is None:
        return job_response(found, 201, location_of(request, topic, id))
    if on_conflict in ("replace", "postpone") or (isinstance(refused, IdTaken) and on_conflict != "keep"):
        raise refused
    if on_conflict != "keep" and not _is_same(found, new, store.session.bodies.most_json_bytes):
        raise JobExists(topic, id, ", with other content")
    known = await (await backend.queue()).get(topic, id, key=new.key)
    if known is None:  # it has ended since
        found.state = JobState.ENDED
    return job_response(redact.job(who_asks(request), known or found))


@operation(
    router, "POST", _JOBS, roles=_PRODUCER, takes=JSON, tag="Jobs", status=201,
    problems=["parent-unknown", "too-many-topics", "storage-unavailable", *_DURABILITY],
    responses={201: created("The job is in.", JobOut)},
)  # fmt: skip
async def post_job(request: Request, topic: TopicPath, job: JobIn, durable: DurableIn = None) -> Response:
    """Enqueue a job under a random id.

    Not idempotent: two requests create two jobs. A PUT with an id of your own is safe to repeat.
    """
    backend = backend_of(request)
    found, _ = await backend.do(
        _put(await backend.store(), topic, _allowed(request, job).new_job(None), "reject", durable)
    )
    about(request, id=found.id)
    return job_response(found, 201, location_of(request, topic, found.id))


@operation(
    router, "POST", "/v1/topics/{topic:segment}/bulk", roles=_PRODUCER, takes=NDJSON, tag="Jobs",
    problems=["too-many-topics", "storage-unavailable", *_DURABILITY],
    responses={200: {"description": "What became of the lines.", "model": BulkOut}},
    extra={"requestBody": {"required": True, "content": {NDJSON: {
        "schema": {"type": "string"},
        "example": '{"id": "order-42", "body": {"order_id": 42}, "delay": "30m"}\n{"body": {"order_id": 43}}\n',
    }}}},
)  # fmt: skip
async def put_bulk(
    request: Request, topic: TopicPath, on_conflict: OnConflictIn = "reject", durable: DurableIn = None
) -> Response:
    """Enqueue many jobs, one JSON object per line.

    A line has the fields of a single job, and may have an id. The body is streamed: it may be as long as the server
    allows, and only one batch of it is in memory. An invalid line does not affect the others; the answer has its
    number. If an id is taken, the existing job is kept, unless on_conflict is replace or postpone. If every line has an
    id, an interrupted request is safe to repeat.
    """
    backend = backend_of(request)
    check_topics = partial(check_topics_scope, who_asks(request))
    loader = Loader(await backend.store(), topic, on_conflict, durable, backend.do, backend.stopping, check_topics)
    await loader.load(request.stream())
    return Response(to_json(loader.result), media_type=JSON)


@operation(
    router, "GET", _JOB, roles=_LOOK, tag="Jobs", problems=["no-job"],
    responses={200: {"description": "The job.", "model": JobOut}},
)  # fmt: skip
async def get_job(request: Request, topic: TopicPath, id: IdPath, key: KeyIn = None) -> Response:
    """Get a job, and its progress in each group."""
    return job_response(await _job(request, topic, id, key))


@operation(
    router, "GET", _JOB + "/history", roles=_LOOK, tag="Jobs", problems=["no-job", "unknown-topic"],
    responses={200: {"description": "What became of it.", "model": JobHistoryOut}},
)  # fmt: skip
async def get_job_history(request: Request, topic: TopicPath, id: IdPath) -> Response:
    """Get the past attempts of a job, and what failed in each.

    Looked for are the last 10,000 rows of the history of the shard that has or had the job. Messages and tracebacks are
    kept of fewer attempts than rows are. They are never kept by workers with `show_errors=False`. 404: there is nothing
    of this job.
    """
    backend = backend_of(request)
    store = await backend.store()
    rows, complete = await backend.do(latest_rows(store, topic, id))
    events = await backend.do(with_failures(store, topic, redact.rows(who_asks(request), rows)))
    if not events:
        raise ProblemError("no-job", "the history has no trace of it, as far as it was looked through")
    found = {"events": [event_json(event) for event in events], "complete": complete}
    return Response(to_json(found), media_type=JSON)


async def _job(request: Request, topic: str, id: str, key: str | None) -> Job:
    job = await (await backend_of(request).queue()).get(topic, id, key=key)
    if job is None:
        raise ProblemError("no-job", "the job has ended, or never existed; GET …/history shows past attempts")
    return redact.job(who_asks(request), job)


async def _refuse(request: Request, topic: str, id: str, key: str | None, what: str) -> None:
    """Says why a job was left as it is."""
    job = await _job(request, topic, id, key)
    state = job.state.value if job.state in (JobState.RUNNING, JobState.DEAD) else "changing"
    raise ProblemError("job-busy", f"the job is {state} and can't be {what} now")


@operation(
    router, "DELETE", _JOB, roles=_PRODUCER, tag="Jobs",
    problems=["no-job", "unknown-topic", "job-busy", *_DURABILITY],
    status=204, notable=True, responses={204: {"description": "It is cancelled: no new attempt starts."}},
)  # fmt: skip
async def cancel_job(
    request: Request, topic: TopicPath, id: IdPath, key: KeyIn = None, durable: DurableIn = None
) -> Response:
    """Cancel a waiting job.

    After this, no new attempt of it starts in any group. A job that is running or dead can't be cancelled.
    """
    if not await (await backend_of(request).queue()).cancel(topic, id, key=key, durable=durable):
        await _refuse(request, topic, id, key, "cancelled")
    return Response(status_code=204)


@operation(
    router, "POST", _JOB + "/abort", roles=_PRODUCER, tag="Jobs", notable=True,
    problems=["no-job", "unknown-topic", "job-busy", *_DURABILITY],
    responses={200: {"description": "It is cancelled, or told to stop.", "model": AbortOut}},
)  # fmt: skip
async def abort_job(
    request: Request, topic: TopicPath, id: IdPath, group: AbortGroupIn = None, key: KeyIn = None,
    durable: DurableIn = None,
) -> Response:  # fmt: skip
    """Abort a job, also while it runs.

    A job that waits is cancelled. The handler of a running job is stopped: however its attempt ends then, the job ends
    as cancelled, and no new attempt starts. Safe to repeat. A job that is dead can't be aborted.
    """
    if group is None:
        check_every_group(who_asks(request))
    result = await (await backend_of(request).queue()).abort(topic, id, group=group, key=key, durable=durable)
    if result is AbortResult.WAITING:
        raise ProblemError("job-busy", "no group has begun with the job: leave out the group, or wait")
    if result is AbortResult.ENDED:
        await _refuse(request, topic, id, key, "aborted")
    return Response(to_json({"result": result.value}), media_type=JSON)


@operation(
    router, "POST", _JOB + "/reschedule", roles=_PRODUCER, takes=JSON, tag="Jobs", notable=True,
    problems=["no-job", "unknown-topic", "job-busy", *_DURABILITY],
    responses={200: {"description": "The job with its new due time.", "model": JobOut}},
)  # fmt: skip
async def reschedule_job(
    request: Request, topic: TopicPath, id: IdPath, when: WhenIn, key: KeyIn = None, durable: DurableIn = None
) -> Response:
    """Give a waiting job a new due time.

    The job may be delayed, ready, or waiting for its next attempt. A job that is running or dead can't be rescheduled.
    """
    queue = await backend_of(request).queue()
    if not await queue.reschedule(topic, id, delay=when.delay, at=due_from(when.at), key=key, durable=durable):
        await _refuse(request, topic, id, key, "rescheduled")
    return job_response(await _job(request, topic, id, key))
