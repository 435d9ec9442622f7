"""The actions of the page's buttons. Each redirects to a page, which says what was done."""

from __future__ import annotations

import re
from urllib.parse import unquote

from fastapi import APIRouter, Request, Response

from ...config import DEFAULT_GROUP
from ...errors import InvalidInput
from ...job.job import check_id
from ...operations.dead_letters.failed import act_on_shown, action_in
from ...operations.jobs.abort import AbortResult
from ..api.route import IdPath, TopicPath, backend_of, check_every_group, check_group_scope, refused, who_asks
from ..audit_log import about
from ..auth import Role
from ..problems import ProblemError
from .page_routes import PageRoute, form_of, get, post, redirect, sign_in, sign_out
from .pages import job_view
from .render import base_of, page, segment
from .signed_in import signed_in_user

router = APIRouter(route_class=PageRoute)
_TOPIC = "/topics/{topic:segment}"
_JOB = _TOPIC + "/jobs/{id:segment}"
_SHOWN = re.compile(r"(\d{1,6})\.([0-9a-f]{12}/\d{1,9}(?:\+\d{1,9})?) (.+)", re.ASCII | re.DOTALL)


def _back(request: Request, topic: str, id: str | None, did: str, count: int | None = None, more: str = "") -> Response:
    path = f"{base_of(request)}/topics/{segment(topic)}" + (f"/jobs/{segment(id)}" if id is not None else "")
    return redirect(f"{path}?did={did}" + (f"&n={count}" if count is not None else "") + more)


@post(router, _TOPIC + "/pause", every_group=True)
async def pause(request: Request, topic: TopicPath) -> Response:
    await (await backend_of(request).queue()).pause(topic)
    return _back(request, topic, None, "paused")


@post(router, _TOPIC + "/resume", every_group=True)
async def resume(request: Request, topic: TopicPath) -> Response:
    await (await backend_of(request).queue()).resume(topic)
    return _back(request, topic, None, "resumed")


def _group_in(request: Request, form: dict[str, list[str]]) -> str:
    group = form.get("group", [DEFAULT_GROUP])[0]
    about(request, group=group)
    check_group_scope(who_asks(request), group)
    return group


@post(router, _TOPIC + "/dead")
async def dead_letters(request: Request, topic: TopicPath) -> Response:
    """Kicks or purges the selected dead letters, unless they have changed since they were shown; or all dead letters of
    the group.
    """
    form = await form_of(request)
    group = _group_in(request, form)
    action = action_in(form.get("do", [""])[0])
    left = 0
    if "all" in form:
        queue = await backend_of(request).queue()
        count = await (
            queue.kick(topic, None, group) if action == "kick" else queue.purge(topic, group=group, all=True)
        )
    else:
        backend, chosen = backend_of(request), set(form.get("id", []))
        shown = [one for one in map(_shown_in, form.get("shown", [])) if one[2] in chosen]
        count, left = await backend.do(act_on_shown(await backend.store(), topic, group, shown, action))
    more = f"&state=dead&group={segment(group)}" + (f"&left={left}" if count and left else "")
    return _back(request, topic, None, "kicked" if action == "kick" else "purged", count, more)


def _shown_in(text: str) -> tuple[int, str, str]:
    """Shard, delivery and id of a dead letter that the page has shown."""
    found = _SHOWN.fullmatch(text)
    if found is None:
        raise InvalidInput("shown: not a value that a page has sent")
    return int(found[1]), found[2], check_id(found[3])


@post(router, _JOB + "/kick")
async def kick(request: Request, topic: TopicPath, id: IdPath) -> Response:
    group = _group_in(request, await form_of(request))
    count = await (await backend_of(request).queue()).kick(topic, id, group)
    return _back(request, topic, id, "kicked", count)


@post(router, _JOB + "/purge")
async def purge(request: Request, topic: TopicPath, id: IdPath) -> Response:
    group = _group_in(request, await form_of(request))
    count = await (await backend_of(request).queue()).purge(topic, id, group=group, all=id is None)
    return _back(request, topic, None, "purged", count, f"&state=dead&group={segment(group)}")


@post(router, _JOB + "/cancel", Role.PRODUCER)
async def cancel(request: Request, topic: TopicPath, id: IdPath) -> Response:
    if not await (await backend_of(request).queue()).cancel(topic, id):
        raise ProblemError("job-busy", "The job can't be cancelled: it has ended, or is running or dead.")
    return _back(request, topic, None, "cancelled")


@post(router, _JOB + "/abort", Role.PRODUCER)
async def abort(request: Request, topic: TopicPath, id: IdPath) -> Response:
    check_every_group(who_asks(request))
    result = await (await backend_of(request).queue()).abort(topic, id)
    if result is AbortResult.ENDED:
        raise ProblemError("job-busy", "The job can't be aborted: it has ended, or is dead.")
    return _back(request, topic, id, "aborting" if result is AbortResult.ABORTING else "cancelled")


@post(router, _JOB + "/reschedule", Role.PRODUCER)
async def reschedule(request: Request, topic: TopicPath, id: IdPath) -> Response:
    """To the delay that was entered; if it can't be read, the job's page says so beside the field."""
    delay = (await form_of(request)).get("delay", [""])[0].strip()
    try:
        if not delay:
            raise InvalidInput("delay: enter how long from now, such as 10m")
        done = await (await backend_of(request).queue()).reschedule(topic, id, delay=delay)
    except InvalidInput as error:
        wrong = str(error).removeprefix("delay: ")
        return await job_view(request, topic, id, status=422, delay=delay, wrong=wrong[:1].upper() + wrong[1:])
    if not done:
        raise ProblemError("job-busy", "The job can't be rescheduled: it has ended, or is running or dead.")
    return _back(request, topic, id, "rescheduled")


@post(router, _JOB + "/run", Role.PRODUCER)
async def run_now(request: Request, topic: TopicPath, id: IdPath) -> Response:
    if not await (await backend_of(request).queue()).reschedule(topic, id, delay=0):
        raise ProblemError("job-busy", "The job can't be run now: it has ended, or is running or dead.")
    return _back(request, topic, id, "due-now")


# -- signing in and out


def _own_path(request: Request, path: str) -> str:
    """The page to go to after signing in; always one of this app, whatever the address says."""
    base = base_of(request) + "/"
    fine = path.startswith(base) and not path.startswith("//") and "\\" not in path and path.isprintable()
    segments = unquote(re.split("[?#]", path, maxsplit=1)[0]).split("/")
    return path if fine and not {".", ".."} & set(segments) else base  # a browser goes up at those


@get(router, "/login", open=True)
async def login_page(request: Request) -> Response:
    backend = backend_of(request)
    if not backend.tokens.required or signed_in_user(request) is not None:
        return redirect(f"{base_of(request)}/")
    request.state.who = None  # whatever the cookie says: a page that is open to everyone asks Redis nothing
    return page(request, "login.html", next=request.query_params.get("next", ""), refused="")


@post(router, "/login", role=None)
async def login(request: Request) -> Response:
    form = await form_of(request)
    token, asked = form.get("token", [""])[0].strip(), form.get("next", [""])[0]
    who = backend_of(request).tokens.identify(token)
    request.state.who = who
    if who is not None:
        backend_of(request).rates.came(who.name)
    if who is None or not who.may((Role.VIEWER,)):
        unknown = backend_of(request).tokens.why_not(token)
        why = (
            f"{unknown[0].upper()}{unknown[1:]}."
            if who is None
            else "This token may not view pages: it needs the role viewer or admin."
        )
        error = refused(request, ProblemError("unauthenticated" if who is None else "forbidden", why))
        request.state.who = None
        if error.kind == "rate-limited":
            raise error
        return page(request, "login.html", 403, next=asked, refused=why)
    response = redirect(_own_path(request, asked))
    await sign_in(request, response, token)
    return response


@post(router, "/logout", role=None)
async def logout(request: Request) -> Response:
    response = redirect(f"{base_of(request)}/login")
    await sign_out(request, response)
    return response
