"""The pages: all topics, one topic, one job. Each costs Redis the same however many jobs there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from ...config import TopicSettings
from ...errors import InvalidInput
from ...job.flow import FLOWS
from ...job.job import Job, JobState, check_id, check_topic
from ...keys import ShardKeys
from ...link.session import Op
from ...operations.checks.problems import Problem, in_order, problems_of
from ...operations.find.conditions import is_condition
from ...operations.history.job_history import LOOKBACK_ROWS, ended_rows, rows_of, with_failures
from ...operations.jobs.get import job_of, shard_with
from ...operations.jobs.large_bodies import fetched
from ...operations.keys.busiest import KeyLoad, busiest
from ...store.entries import ms_of
from ...store.history.rows import HistoryRow
from ...store.jobs.progress import Phase
from ...store.redis_store import RedisStore
from .. import redact
from ..activity import Activity
from ..api.route import IdPath, TopicPath, backend_of, who_asks
from ..auth import Identity
from ..backend import Backend
from ..problems import ProblemError
from ..topic_cache import TopicReading
from . import charts
from .job_lists import listed
from .links import links_of, shown_links
from .overview import HORIZONS, Load, TopicSummary, coming_load, consumers, page_of, stands_still, summary, totals
from .page_routes import PageRoute, get, redirect
from .planned import plan_ahead
from .render import base_of, page, segment, shown_body
from .results import shown_result
from .timeline import Attempt, Story, brief, story_of, why

router = APIRouter(route_class=PageRoute)
_STATES = (JobState.DELAYED, JobState.READY, JobState.RUNNING, JobState.DEAD)
PASTS: dict[str, tuple[int, int]] = {"1h": (60_000, 60), "1d": (1_800_000, 48)}
"""How far charts of the past go back: the length of a step in ms, and how many there are."""

_KEYS = 10
Text = Annotated[str, Query(max_length=4096)]


@get(router, "/", sifts=True)
async def overview(
    request: Request, q: Text = "", after: Text = "", horizon: Text = "1h", past: Text = "1h"
) -> Response:
    backend = backend_of(request)
    store = await backend.store()
    who = who_asks(request)
    known = _seen(who, await backend.do(store.topics.registry()))
    reading = await backend.topic_cache.latest()
    concerns = redact.concerns(who, known, reading)
    names, following = page_of(sorted((why, name) for name, why in concerns.items()), known, q, after)
    found = [redact.summary(who, one) for one in await backend.do(summary(store, names))]
    now_ms = _now_ms(found)
    coming = await _coming(backend, store, found, horizon, now_ms)
    part = len(found) < len(known)
    asked = "" if who.topics.is_all and who.groups.is_all else None
    activity = await _ran(backend, found, past, asked, "", who.groups.holds)
    whole = redact.stats(who, reading.stats) if part and reading else totals(one.stats for one in found)
    return page(
        request, "overview.html", here="topics", topics=found,
        problems=_problems(who, reading, found), totals=whole, chart=charts.coming(coming), coming=coming, now=now_ms,
        **_charts(activity, past),
        horizon=horizon, horizons=list(HORIZONS), q=q, after=after, next=following, known=len(known), part=part,
        age_s=reading and reading.age_s,
        still=await backend.do(stands_still(store, coming)),
    )  # fmt: skip


def _seen(who: Identity, known: Mapping[str, TopicSettings]) -> dict[str, TopicSettings]:
    """The topics that the token allows."""
    return {name: known[name] for name in redact.topics(who, known)}


def _now_ms(found: Sequence[TopicSummary]) -> int:
    return max((one.now_ms for one in found), default=0)


def _problems(who: Identity, reading: TopicReading | None, found: Sequence[TopicSummary]) -> list[Problem]:
    """Of the topics that are shown as of now, of the others as of the last reading."""
    shown = {one.name for one in found}
    others = [] if reading is None else [one for one in reading.problems if one.topic not in shown]
    fresh = [problem for one in found for problem in problems_of(one.name, one.stats, one.died)]
    return in_order([*redact.problems(who, others), *fresh])


def _charts(activity: Activity | None, past: str) -> dict[str, Any]:
    """What the templates' charts of the past take."""
    ran, late = (charts.ran(activity), charts.lateness(activity)) if activity else (None, None)
    return {"activity": activity, "ran": ran, "late": late, "past": past, "pasts": list(PASTS)}


async def _coming(
    backend: Backend, store: RedisStore, topics: Sequence[TopicSummary], horizon: str, now_ms: int
) -> Load:
    load = await backend.do(coming_load(store, topics, _horizon(horizon), now_ms))
    await backend.do(plan_ahead(store, topics, load))
    return load


def _horizon(name: str) -> str:
    if name not in HORIZONS:
        raise InvalidInput(f"horizon: is not one of {', '.join(HORIZONS)}")
    return name


async def _ran(
    backend: Backend,
    shown: Sequence[TopicSummary],
    past: str,
    topic: str | None,
    group: str,
    groups: Callable[[str], bool],
) -> Activity | None:
    """What ran lately: of Prometheus, if there is one that knows it, else of the history. None: neither has it.
    ``topic``: what to ask Prometheus for, '' for everything; None: Prometheus lacks what is shown.
    """
    if past not in PASTS:
        raise InvalidInput(f"past: is not one of {', '.join(PASTS)}")
    step_ms, steps = PASTS[past]
    if backend.prometheus is not None and topic is not None:
        found = await backend.prometheus.of(topic, group, step_ms, steps)
        if found is not None:
            return found
    store = await backend.store()
    shards = [shard for one in shown for shard in store.topics.all_shards(one.name) if shard not in one.lost]
    if not shards or not store.session.settings.history_length:
        return None
    return await backend.recent.of(shards, groups, max(one.now_ms for one in shown), step_ms, steps)


@get(router, "/topics/{topic:segment}")
async def topic_page(
    request: Request,
    topic: TopicPath,
    state: JobState = JobState.DELAYED,
    group: Text = "",
    cursor: Annotated[str, Query(alias="from", max_length=4096)] = "",
    horizon: Text = "1h",
    past: Text = "1h",
) -> Response:
    if state not in _STATES:
        raise InvalidInput("state: only the history has jobs that are done")
    backend = backend_of(request)
    store = await backend.store()
    settings = await _settings(backend, store, topic)
    who = who_asks(request)
    group = redact.group(who, settings, group)
    one = redact.summary(who, (await backend.do(summary(store, [topic])))[0])
    jobs = redact.listed(who, await backend.do(listed(store, topic, group, state, cursor, one.lost)))
    coming = await _coming(backend, store, [one], horizon, one.now_ms)
    activity = await _ran(backend, [one], past, topic, group, group.__eq__)
    return page(
        request, "topic.html", topic=topic, one=one, problems=in_order(problems_of(topic, one.stats, one.died)),
        settings=settings, group=group, state=state.value, jobs=jobs,
        cursor=cursor, states=[s.value for s in _STATES], chart=charts.coming(coming),
        **_charts(activity, past), coming=coming, now=one.now_ms,
        horizon=horizon, horizons=list(HORIZONS), stats=one.stats.groups[group],
        consumers=await backend.do(consumers(store, one, group)), still=await backend.do(stands_still(store, coming)),
        keys=await backend.do(_keys(store, one, group)), searches=who.groups.is_all,
    )  # fmt: skip


def _keys(store: RedisStore, one: TopicSummary, group: str) -> Op[list[KeyLoad]]:
    """The keys for which most jobs wait, if any do."""
    waits = one.stats.groups[group].waiting_for_key > 0
    shards = [shard for shard in store.topics.shards(one.name) if shard not in one.lost] if waits else []
    return (yield from busiest(store, shards, "waiting", group, _KEYS))


async def _settings(backend: Backend, store: RedisStore, topic: str) -> TopicSettings:
    """The topic's settings, read anew because they may have changed elsewhere."""
    topic = check_topic(topic)
    known = await backend.do(store.topics.registry())
    if topic not in known:
        raise ProblemError("unknown-topic", "It was deleted, or never made. Check the spelling of its name.")
    return known[topic]


@get(router, "/topics/{topic:segment}/find")
async def find_job(request: Request, topic: TopicPath, id: Text = "") -> Response:
    """Redirects from the search field: to a job's page, or to a search if it is a condition, such as body.user=7."""
    base, asked = f"{base_of(request)}/topics/{segment(topic)}", id.strip()
    if is_condition(asked):
        return redirect(f"{base}/search?where={segment(asked)}")
    return redirect(f"{base}/jobs/{segment(check_id(asked))}" if asked else base)


@get(router, "/topics/{topic:segment}/jobs/{id:segment}")
async def job_page(request: Request, topic: TopicPath, id: IdPath) -> Response:
    if topic == FLOWS:
        return redirect(f"{base_of(request)}/flows/{segment(id)}")
    return await job_view(request, topic, id)


async def job_view(
    request: Request, topic: str, id: str, *, status: int = 200, delay: str = "", wrong: str = ""
) -> Response:
    """The job's page. ``wrong``: what is wrong with the ``delay`` that was entered."""
    backend = backend_of(request)
    store = await backend.store()
    id = check_id(id)
    settings = await _settings(backend, store, topic)
    shard = await backend.do(shard_with(store, topic, settings, id))
    job, moved, now_ms = await backend.do(_look(store, shard, id, settings))
    looked = rows_of(store, shard, id, job.created_ms) if job else ended_rows(store, shard, id)
    rows, complete = await backend.do(looked)
    who = who_asks(request)
    rows = redact.rows(who, rows)
    job = job and redact.job(who, job)
    links = await backend.do(links_of(store, shard, id, settings)) if job else (None, [])
    if job is None and not rows:
        raise ProblemError(
            "no-job", "It is not in the topic, and the history as far as it was looked through has no trace of it."
        )
    story = story_of(await backend.do(with_failures(store, topic, rows)), job, moved, now_ms)
    story.complete = complete
    body = await asyncio.to_thread(shown_body, job) if job else ""
    return page(
        request, "job.html", status, delay=delay, wrong=wrong, topic=topic, id=id, job=job,
        story=story, body=body, now=now_ms, settings=settings,
        **shown_links(who, *links),
        results=[await shown_result(backend, store, shard, name, id) for name in who.groups.of(settings.results)],
        events=_events(story, settings), lookback=LOOKBACK_ROWS,
        ttrs=settings.by_value(lambda group: brief(settings.ttr_of(group))),
        retries=settings.by_value(lambda group: str(settings.retry_of(group))),
    )  # fmt: skip


_PARTS = {"mover": "until it was ready", "worker": "waited for a worker", "ran": "ran"}
_GANTT_WIDTH, _LEAST_WIDTH = 600.0, 4.0


def _events(story: Story, settings: TopicSettings) -> list[dict[str, Any]]:
    """The timeline's events in order."""
    many = len(settings.groups) > 1
    return [
        {"attempt": None, "row": one, "groups": many}
        if isinstance(one, HistoryRow)
        else {
            "attempt": one,
            "groups": many,
            "why": why(one, story.now_ms, settings.paused),
            "error": ": ".join(filter(None, (one.reason, one.error))),
            "bar": gantt(one, story.now_ms),
        }
        for one in story.events
    ]


def gantt(attempt: Attempt, now_ms: int) -> list[dict[str, Any]]:
    """The attempt's waits and run as parts of one bar; each is visible, however short. Empty before it is due."""
    gaps = [] if attempt.due_ms is not None and attempt.due_ms > now_ms else attempt.gaps(attempt.ended_ms or now_ms)
    total = sum(ms for _, ms in gaps)
    room = _GANTT_WIDTH - _LEAST_WIDTH * len(gaps)
    parts, x = [], 0.0
    for kind, ms in gaps:
        width = _LEAST_WIDTH + (room * ms / total if total else 0)
        parts.append({"kind": kind, "label": _PARTS[kind], "ms": ms, "x": round(x, 2), "width": round(width, 2)})
        x += width
    return parts


def _look(
    store: RedisStore, shard: ShardKeys, id: str, settings: TopicSettings
) -> Op[tuple[Job | None, dict[str, int], int]]:
    """The job, when each group's running attempt became ready, and Redis's time."""
    now_ms = (yield from store.scripts.stats(shard, settings.group_names)).now_ms
    found = yield from store.scripts.get(shard, id)
    moved = {}
    for group, progress, _ in found.groups if found else ():
        if progress is not None and progress.phase is Phase.RUNNING:
            moved[group] = ms_of(progress.claimed_from)
    job = job_of(shard.topic, id, found, store.session.bodies)
    if job is not None:
        yield from fetched([job])
    return job, moved, now_ms
