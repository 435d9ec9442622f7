"""What failed, across topics: dead letters and jobs that wait for a retry, with a filter; and what can be done to all
dead letters that match: first how many they are, then the action.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from ...errors import InvalidInput
from ...job.job import check_id
from ...keys import candidate_shards
from ...operations.dead_letters.failed import (
    MOST_PLACES,
    FailedFilter,
    State,
    act_on_failed,
    action_in,
    count_failed,
    failed,
    places_of,
)
from ...store import namespace
from ...store.jobs import lookup
from .. import redact
from ..api.route import backend_of, who_asks
from ..backend import Backend
from ..problems import ProblemError
from .page_routes import PageRoute, form_of, get, post, redirect
from .render import base_of, page, segment

router = APIRouter(route_class=PageRoute)
_PAGE = 50
_COUNTS_S, _ACTS_S = 2.0, 20.0
_FIGURES = {"dead": "dead", "retrying": "retrying"}
_FIELDS = ("in_topic", "in_group", "error", "id")  # not "topic", which a token must be for
_MOST_HITS = 100
Text = Annotated[str, Query(max_length=600)]


async def _figures(request: Request, backend: Backend, state: State) -> Mapping[tuple[str, str], int] | None:
    reading = await backend.topic_cache.latest()
    return None if reading is None else redact.failed(who_asks(request), reading.stats, _FIGURES[state])


def _which(
    state: State, places: list[tuple[str, str]], given: Mapping[str, str], until_ms: int | None = None
) -> FailedFilter:
    return FailedFilter(state, places, given["error"].strip(), given["id"].strip(), until_ms)


@get(router, "/failed", sifts=True)
async def failed_page(
    request: Request,
    state: Literal["dead", "retrying"] = "dead",
    in_topic: Text = "",
    in_group: Text = "",
    error: Text = "",
    id: Text = "",
    cursor: Annotated[str, Query(alias="from", max_length=40)] = "",
) -> Response:
    backend = backend_of(request)
    given = dict(zip(_FIELDS, (in_topic.strip(), in_group.strip(), error, id), strict=True))
    counts = {name: await _figures(request, backend, name) for name in ("dead", "retrying")}
    figures = counts[state]
    places = places_of(figures or {}, given["in_topic"], given["in_group"])
    store = await backend.store()
    await backend.do(store.topics.registry())
    which = _which(state, places[:MOST_PLACES], given)
    part = await backend.search(request, lambda: backend.do(failed(store, which, _PAGE, cursor)))
    return page(
        request, "failed.html", state=state, given=given, part=part, cursor=cursor, here="failed",
        totals={name: sum(found.values()) if found else 0 for name, found in counts.items()},
        known=figures is not None, left_out=max(0, len(places) - MOST_PLACES), most=MOST_PLACES,
        now=await backend.do(namespace.now_ms(store.session)), filtered=any(given.values()),
    )  # fmt: skip


# -- the action


async def _filter(request: Request, backend: Backend, given: Mapping[str, str], until_ms: int) -> FailedFilter:
    """Of all topics, as of now: the counted jobs are those that are acted on."""
    stats = await (await backend.queue()).stats()
    figures = redact.failed(who_asks(request), stats, "dead")
    return _which("dead", places_of(figures, given["in_topic"], given["in_group"]), given, until_ms)


@get(router, "/failed/plan", sifts=True)
async def plan_page(
    request: Request, do: Text = "", in_topic: Text = "", in_group: Text = "", error: Text = "", id: Text = ""
) -> Response:
    """How many dead letters match, before anything is done to them."""
    if not who_asks(request).may(()):
        raise ProblemError("forbidden", "this takes the role admin")
    backend, action = backend_of(request), action_in(do)
    given = dict(zip(_FIELDS, (in_topic.strip(), in_group.strip(), error, id), strict=True))
    store = await backend.store()
    now_ms = await backend.do(namespace.now_ms(store.session))
    which = await _filter(request, backend, given, now_ms)
    tally = await backend.search(request, lambda: backend.do(count_failed(store, which, _COUNTS_S)))
    return page(
        request, "failed_plan.html", action=action, given=given, tally=tally, until=now_ms, here="failed",
        places=sorted(tally.of.items(), key=lambda one: -one[1]),
    )  # fmt: skip


@post(router, "/failed/act", sifts=True)
async def act(request: Request) -> Response:
    """Acts on the dead letters that match, of those that the plan has counted."""
    form = await form_of(request)
    given = {name: form.get(name, [""])[0] for name in _FIELDS}
    action, until = action_in(form.get("do", [""])[0]), form.get("until", [""])[0]
    if not (until.isascii() and until.isdigit() and len(until) < 16):
        raise InvalidInput("until: is no time")
    backend = backend_of(request)
    which = await _filter(request, backend, given, int(until))
    done = await backend.do(act_on_failed(await backend.store(), which, action, _ACTS_S))
    query = {**{name: value for name, value in given.items() if value}, "did": f"failed-{action}", "n": done.total}
    query |= {"left": done.left_alone} if done.left_alone or not done.total else {}
    if not done.whole:
        return redirect(f"{base_of(request)}/failed/plan?{urlencode({'do': action, **query})}")
    return redirect(f"{base_of(request)}/failed?{urlencode(query)}")


# -- by id, over all topics


@get(router, "/job", sifts=True)
async def find_anywhere(request: Request, id: Annotated[str, Query(max_length=255)] = "") -> Response:
    """Finds the job with this id, whatever its topic: one lookup for each topic, or shard of one with keys."""
    backend, asked = backend_of(request), check_id(id.strip())
    store = await backend.store()
    known = await backend.do(store.topics.registry())
    shards = []
    for name in redact.topics(who_asks(request), known):
        settings = known[name]
        candidates = candidate_shards(asked, settings.shards, settings.former)
        all = store.topics.shards(name)
        shards += all if settings.sharded_by_key else [store.session.keys.shard(name, number) for number in candidates]
    hits = list(dict.fromkeys(shard.topic for shard in await backend.do(lookup.with_job(store.session, shards, asked))))
    if len(hits) == 1:
        return redirect(f"{base_of(request)}/topics/{segment(hits[0])}/jobs/{segment(asked)}")
    return page(
        request, "job_found.html", 200 if hits else 404, id=asked, hits=hits[:_MOST_HITS], count=len(hits),
        topics=len(known), here="",
    )  # fmt: skip
