"""The page that searches a topic's jobs, and its buttons, which act on exactly the jobs that it shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from ...errors import InvalidInput
from ...job.job import Job
from ...operations.find.actions import cancel_found, kick_found, purge_found, reschedule_found
from ...operations.find.criteria import FINDABLE, Criteria, criteria_of
from ...operations.find.search import Search
from ...operations.find.shown import as_shown
from ...store import namespace
from ...store.redis_store import RedisStore
from ...times.durations import to_ms
from ..api.find import Action, FoundJob, acted_on, part_of
from ..api.route import TopicPath, backend_of
from ..audit_log import about
from ..auth import Role
from .page_routes import PageRoute, form_of, get, post, redirect
from .render import base_of, page, segment

router = APIRouter(route_class=PageRoute)
_TOPIC = "/topics/{topic:segment}"
_MOST = 50
_EXCERPT_CHARS = 160
_FIELDS = ("state", "group", "due_from", "due_until", "key", "id_prefix", "where")
Text = Annotated[str, Query(max_length=4096)]
Position = Annotated[str, Query(max_length=5000)]


class Line(NamedTuple):
    """One of the jobs that were found. ``value``: what its checkbox sends."""

    job: Job
    value: str
    body: str
    error: str


class Results(NamedTuple):
    lines: list[Line]
    search: Search
    now_ms: int


@get(router, _TOPIC + "/search", every_group=True)
async def search_page(
    request: Request,
    topic: TopicPath,
    state: Text = "",
    group: Text = "",
    due_from: Text = "",
    due_until: Text = "",
    key: Text = "",
    id_prefix: Text = "",
    where: Text = "",
    after: Position = "",
) -> Response:
    """Searches if it has a query; otherwise it only shows the form."""
    given = dict(zip(_FIELDS, (state, group, due_from, due_until, key, id_prefix, where), strict=True))
    asked = any(field in request.query_params for field in _FIELDS)
    return await _search_view(request, topic, given if asked else {}, after)


async def _search_view(
    request: Request,
    topic: str,
    given: Mapping[str, str],
    after: str,
    status: int = 200,
    delay: str = "",
    wrong: str = "",
) -> Response:
    """``given`` empty: nothing is searched. ``wrong``: what is wrong with the ``delay`` that was entered."""
    backend = backend_of(request)
    store = await backend.store()
    settings = await backend.do(store.topics.latest(topic))
    results, why = None, ""
    if given:
        try:
            results = await _results(request, store, topic, _criteria(given), after)
        except InvalidInput as error:
            why, status = str(error), 422
    return page(
        request, "find.html", status, topic=topic, groups=settings.group_names, states=FINDABLE,
        given=given or dict.fromkeys(_FIELDS, ""), results=results, why=why, delay=delay, wrong=wrong,
    )  # fmt: skip


def _criteria(given: Mapping[str, str]) -> Criteria:
    """What the form asks for. Each line of ``where`` is a condition; an empty field asks for nothing."""
    due = (given["due_from"], given["due_until"])
    return criteria_of(
        state=given["state"] or None, group=given["group"] or None, due=due if any(due) else None,
        key=given["key"] or None, id_prefix=given["id_prefix"],
        where=[line for line in given["where"].splitlines() if line.strip()],
    )  # fmt: skip


async def _results(request: Request, store: RedisStore, topic: str, criteria: Criteria, after: str) -> Results:
    search = Search(store, topic, criteria, after=after)
    found = await part_of(request, search, _MOST)
    now_ms = await backend_of(request).do(namespace.now_ms(store.session))
    return Results([_line(one) for one in found], search, now_ms)


def _line(found: FoundJob) -> Line:
    job = found.job
    error = next((progress.error for progress in job.groups.values() if progress.error), "")
    return Line(job, f"{as_shown(found.shown)} {job.id}", _excerpt(found), error)


def _excerpt(found: FoundJob) -> str:
    if not found.has_body:
        return "(large)"
    if why := found.job.why_unreadable:
        return f"({why})"
    return found.job.json[: 4 * _EXCERPT_CHARS].decode(errors="ignore")[:_EXCERPT_CHARS]


# -- the buttons


async def _act(request: Request, topic: str, did: str, action: Action) -> Response:
    """Acts on the ticked jobs; then searches again, as before."""
    form = await form_of(request)
    given = {field: form.get(field, [""])[0] for field in _FIELDS}
    if given["group"]:
        about(request, group=given["group"])
    jobs = []
    for value in form.get("job", []):
        shown, _, id = value.partition(" ")
        jobs.append((id, shown))
    acted, _ = await acted_on(backend_of(request), topic, given["group"] or None, jobs, action)
    outcome: dict[str, Any] = {"did": did, "n": acted.done, "left": acted.left_alone}
    return redirect(f"{base_of(request)}/topics/{segment(topic)}/search?{urlencode({**given, **outcome})}")


@post(router, _TOPIC + "/search/cancel", Role.PRODUCER, every_group=True)
async def found_cancel(request: Request, topic: TopicPath) -> Response:
    return await _act(request, topic, "found-cancelled", lambda search, tell: cancel_found(search, tell=tell))


@post(router, _TOPIC + "/search/reschedule", Role.PRODUCER, every_group=True)
async def found_reschedule(request: Request, topic: TopicPath) -> Response:
    form = await form_of(request)
    delay = form.get("delay", [""])[0].strip()
    try:
        to_ms(delay or "none", "delay")
    except InvalidInput as error:
        given = {field: form.get(field, [""])[0] for field in _FIELDS}
        wrong = str(error).removeprefix("delay: ") if delay else "enter how long from now, such as 10m"
        return await _search_view(request, topic, given, "", 422, delay, wrong)
    return await _act(
        request, topic, "found-rescheduled", lambda search, tell: reschedule_found(search, delay, tell=tell)
    )


@post(router, _TOPIC + "/search/kick", every_group=True)
async def found_kick(request: Request, topic: TopicPath) -> Response:
    return await _act(request, topic, "found-kicked", kick_found)


@post(router, _TOPIC + "/search/purge", every_group=True)
async def found_purge(request: Request, topic: TopicPath) -> Response:
    return await _act(request, topic, "found-purged", purge_found)
