"""Search a topic's jobs, a part of them per request; and act on those that were shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

from fastapi import APIRouter, Query, Request, Response
from pydantic_core import to_json

from ...errors import InvalidInput
from ...job.job import MAX_KEY_CHARS, Job
from ...keys import ShardKeys
from ...link.session import Op
from ...operations.find.actions import (
    Acted,
    ActionResult,
    Tell,
    cancel_found,
    kick_found,
    purge_found,
    reschedule_found,
)
from ...operations.find.conditions import MAX_CONDITIONS
from ...operations.find.criteria import criteria_of
from ...operations.find.search import Search, Shown
from ...operations.find.shown import as_shown, shown_before
from ...operations.jobs.large_bodies import fetched
from ...operations.json_out import job_fields
from .. import redact
from ..audit_log import about
from ..auth import Identity, Role
from ..backend import Backend
from .jobs import DurableIn, job_bytes
from .models.common import due_from
from .models.find import ActedOut, FoundOut, ShownDeadIn, ShownIn, ShownJobIn, ShownWhenIn
from .route import JSON, Route, TopicPath, backend_of, operation, who_asks

router = APIRouter(route_class=Route)
_FIND = "/v1/topics/{topic:segment}/find"
_LONGEST_S = 2.0
_MOST_BYTES = 1024 * 1024
_LARGE = "left out, as the answer is large; get the job by its id"
_UNKNOWN = ["unknown-topic", "unknown-group"]
_ACTED = {200: {"description": "How many it was done to, and what became of each.", "model": ActedOut}}
State = Literal["waiting", "blocked", "delayed", "ready", "running", "dead", "done", "ended"]
_Time = Annotated[str | None, Query(description="A time, `now`, or one counted from now: `10m`, `-1h`.", max_length=64)]


class FoundJob(NamedTuple):
    shown: Shown
    job: Job
    has_body: bool  # False: the answer was large enough without it


async def part_of(request: Request, search: Search, most: int) -> list[FoundJob]:
    """The next jobs that match: some more than ``most`` at most, and fewer if the search takes long or they are large.
    ``search.position`` tells where it goes on.
    """
    backend = backend_of(request)
    return await backend.search(request, lambda: _looked(backend, search, most))


async def _looked(backend: Backend, search: Search, most: int) -> list[FoundJob]:
    found: list[FoundJob] = []
    ends, size = time.monotonic() + _LONGEST_S, 0
    while not search.ended and len(found) < most and size < _MOST_BYTES and time.monotonic() < ends:
        for shown, job in await backend.do(search.next_page()):
            has_body = size < _MOST_BYTES
            if has_body:
                await backend.do(fetched([job]))
                size += len(job_bytes(job))
            found.append(FoundJob(shown, job, has_body))
    return found


@operation(
    router, "GET", _FIND, roles=(Role.VIEWER,), tag="Find", problems=[*_UNKNOWN, "malformed", "too-busy"],
    every_group=True, responses={200: {"description": "Jobs that match, in no order.", "model": FoundOut}},
)  # fmt: skip
async def find_jobs(
    request: Request,
    topic: TopicPath,
    state: Annotated[State | None, Query(description="Jobs that some group, or `group`, has in this state.")] = None,
    group: Annotated[str | None, Query(description="The consumer group that is meant.", max_length=64)] = None,
    due_from: _Time = None,
    due_until: _Time = None,
    key: Annotated[str | None, Query(description="Only this key's jobs.", max_length=MAX_KEY_CHARS)] = None,
    id_prefix: Annotated[str | None, Query(description="The beginning of their ids.", max_length=254)] = None,
    where: Annotated[
        list[Annotated[str, Query(max_length=2000)]] | None,
        Query(
            description="A condition that they fulfill, such as `body.user=7`; may be repeated.",
            max_length=MAX_CONDITIONS,
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    after: Annotated[
        str, Query(description="The `next` of the answer before.", max_length=5000, examples=["0.1.1024"])
    ] = "",
) -> Response:
    """Search a topic's jobs.

    An answer has about `limit` jobs (up to a few hundred more). It ends earlier after two seconds of searching or 1
    MiB; so an answer may be empty although more follow. Pass `next` as `after`, with the same criteria, to go on; it is
    null at the end. A job that matches all the time is found; in different answers it may come twice. `as_shown` tells
    how the job was when it was found: pass it to the actions, which leave jobs alone that have changed since. With more
    conditions than a request's head has room for, 32 KiB, it is malformed.
    """
    due = None if due_from is None and due_until is None else (due_from, due_until)
    criteria = criteria_of(state=state, due=due, group=group, key=key, id_prefix=id_prefix, where=where)
    search = Search(await backend_of(request).store(), topic, criteria, after=after)
    found = await part_of(request, search, limit)
    return Response(_found_json(who_asks(request), search, found), media_type=JSON)


def _found_json(who: Identity, search: Search, found: list[FoundJob]) -> bytes:
    answer = {
        "next": search.position or None, "looked": search.looked, "total": search.total,
        "unreadable": search.unreadable,
    }  # fmt: skip
    return b'{"jobs":[' + b",".join(_job_json(who, one) for one in found) + b"]," + to_json(answer)[1:]


def _job_json(who: Identity, found: FoundJob) -> bytes:
    job = redact.job(who, found.job)
    known = job_bytes(job) if found.has_body else to_json({**job_fields(job), "body": None, "body_unreadable": _LARGE})
    return known[:-1] + b',"as_shown":' + to_json(as_shown(found.shown)) + b"}"


# -- acting

Action = Callable[[Search, Tell], Op[Acted]]


async def acted_on(
    backend: Backend, topic: str, group: str | None, jobs: list[tuple[str, str]], action: Action
) -> tuple[Acted, list[ActionResult]]:
    """What became of these jobs, all together and each. ``jobs``: ids, and as_shown of each."""
    outcomes: dict[tuple[ShardKeys, str], ActionResult] = {}

    def tell(shard: ShardKeys, id: str, outcome: ActionResult) -> None:
        outcomes[shard, id] = outcome

    search, shown = await backend.do(shown_before(await backend.store(), topic, group, jobs))
    acted = await backend.do(action(search, tell))
    return acted, [outcomes[one.shard, one.id] for one in shown]


async def _act(
    request: Request, topic: str, jobs: list[ShownJobIn], action: Action, group: str | None = None
) -> Response:
    if group is not None:
        about(request, group=group)
    listed = [(job.id, job.as_shown) for job in jobs]
    acted, outcomes = await acted_on(backend_of(request), topic, group, listed, action)
    answer = {
        "done": acted.done, "changed": acted.changed, "gone": acted.gone, "refused": acted.refused,
        "jobs": [{"id": job.id, "outcome": outcome} for job, outcome in zip(jobs, outcomes, strict=True)],
    }  # fmt: skip
    return Response(to_json(answer), media_type=JSON)


@operation(
    router, "POST", _FIND + "/cancel", roles=(Role.PRODUCER,), takes=JSON, tag="Find", notable=True, every_group=True,
    problems=["unknown-topic", "not-durable", "durability-unsupported"], responses=_ACTED,
)  # fmt: skip
async def cancel_shown(request: Request, topic: TopicPath, shown: ShownIn, durable: DurableIn = None) -> Response:
    """Cancel jobs that a search has shown, unless they have changed since."""
    return await _act(request, topic, shown.jobs, lambda search, tell: cancel_found(search, durable, tell))


@operation(
    router, "POST", _FIND + "/reschedule", roles=(Role.PRODUCER,), takes=JSON, tag="Find", notable=True,
    every_group=True, problems=["unknown-topic", "not-durable", "durability-unsupported"], responses=_ACTED,
)  # fmt: skip
async def reschedule_shown(
    request: Request, topic: TopicPath, shown: ShownWhenIn, durable: DurableIn = None
) -> Response:
    """Give jobs that a search has shown a new due time, unless they have changed since."""
    if (shown.delay is None) == (shown.at is None):
        raise InvalidInput("pass either delay or at")
    at = due_from(shown.at)
    return await _act(
        request, topic, shown.jobs, lambda search, tell: reschedule_found(search, shown.delay, at, durable, tell)
    )


@operation(
    router, "POST", _FIND + "/kick", roles=(Role.ADMIN,), takes=JSON, tag="Find", notable=True, every_group=True,
    problems=_UNKNOWN, responses=_ACTED,
)  # fmt: skip
async def kick_shown(request: Request, topic: TopicPath, shown: ShownDeadIn) -> Response:
    """Send dead jobs that a search has shown back, unless they have changed since."""
    return await _act(request, topic, shown.jobs, kick_found, shown.group)


@operation(
    router, "POST", _FIND + "/purge", roles=(Role.ADMIN,), takes=JSON, tag="Find", notable=True, every_group=True,
    problems=_UNKNOWN, responses=_ACTED,
)  # fmt: skip
async def purge_shown(request: Request, topic: TopicPath, shown: ShownDeadIn) -> Response:
    """Delete permanently the dead jobs that a search has shown, unless they have changed since."""
    return await _act(request, topic, shown.jobs, purge_found, shown.group)
