"""Operators' operations: topics, stats, dead letters, pause and resume, the audit."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic_core import to_json

from ...config import TopicSettings
from ...errors import InvalidInput
from ...operations.json_out import audit_json, settings_json, stats_json
from ...operations.keys.busiest import By
from .. import redact
from ..audit_log import about
from ..auth import Role
from .dead_letters import dead_page
from .models.checks import AuditOut
from .models.dead_letters import CountOut, DeadIn, DeadOut
from .models.keys import KeysOut
from .models.topics import ScaleOut, StatsOut, TopicIn, TopicOut, TopicsOut, UpcomingOut
from .route import JSON, Route, TopicPath, backend_of, check_group_scope, operation, who_asks

router = APIRouter(route_class=Route)
_LOOK, _ADMIN = (Role.VIEWER,), (Role.ADMIN,)
_TOPIC = "/v1/topics/{topic:segment}"
_MAX_WINDOWS = 20
_WINDOW_CHARS = 20
_UNKNOWN = ["unknown-topic", "unknown-group"]
TopicQuery = Annotated[str | None, Query(description="One topic instead of all.", max_length=255)]
KeyQuery = Annotated[
    str | None, Query(description="Only this key's jobs, in a topic with a limit of keys.", max_length=200)
]
GroupQuery = Annotated[str, Query(description="The consumer group.", max_length=64)]


def _json(value: object) -> Response:
    return Response(to_json(value), media_type=JSON)


async def _settings(request: Request, topic: str) -> Response:
    backend = backend_of(request)
    return _json(_topic_json(topic, await backend.do((await backend.store()).topics.get(topic))))


def _topic_json(topic: str, settings: TopicSettings) -> dict[str, object]:
    return settings_json(topic, settings)


@operation(
    router, "GET", "/v1/topics", roles=(Role.VIEWER, Role.PRODUCER, Role.WORKER), tag="Topics", sifts=True,
    responses={200: {"description": "Every topic's settings.", "model": TopicsOut}},
)  # fmt: skip
async def list_topics(request: Request) -> Response:
    """List all topics that the token allows, with their settings."""
    backend, who = backend_of(request), who_asks(request)
    known = await backend.do((await backend.store()).topics.registry())
    seen = {name: redact.settings(who, known[name]) for name in redact.topics(who, known)}
    return await asyncio.to_thread(
        lambda: _json({"topics": [_topic_json(name, settings) for name, settings in seen.items()]})
    )


@operation(
    router, "PATCH", _TOPIC, roles=_ADMIN, takes=JSON, tag="Topics", notable=True, every_group=True,
    problems=["topic-not-empty", "too-many-topics"],
    responses={200: {"description": "All its settings.", "model": TopicOut}},
)  # fmt: skip
async def configure_topic(request: Request, topic: TopicPath, settings: TopicIn) -> Response:
    """Create a topic, or change its settings. Settings left out stay as they are."""
    queue = await backend_of(request).queue()
    found = await queue.configure(topic, create=True, **settings.model_dump())
    return _json(_topic_json(topic, found))


@operation(
    router, "DELETE", _TOPIC, roles=_ADMIN, tag="Topics", notable=True, every_group=True,
    problems=["unknown-topic", "topic-not-empty"],
    status=204, responses={204: {"description": "It is gone."}},
)  # fmt: skip
async def delete_topic(
    request: Request,
    topic: TopicPath,
    force: Annotated[
        bool, Query(description="Also if it holds jobs, which are deleted, too, or has consumers.")
    ] = False,
) -> Response:
    """Delete a topic, with its settings, figures and history.

    Enqueuing to it creates it again. Running attempts can no longer be ended.
    """
    await (await backend_of(request).queue()).delete_topic(topic, force=force)
    return Response(status_code=204)


@operation(
    router, "POST", _TOPIC + "/pause", roles=_ADMIN, tag="Topics", notable=True, every_group=True,
    problems=["unknown-topic"],
    responses={200: {"description": "It is paused; all its settings.", "model": TopicOut}},
)  # fmt: skip
async def pause_topic(request: Request, topic: TopicPath, key: KeyQuery = None) -> Response:
    """Pause a topic: no new attempt of its jobs starts until it is resumed; running ones go on."""
    await (await backend_of(request).queue()).pause(topic, key=key)
    return await _settings(request, topic)


@operation(
    router, "POST", _TOPIC + "/resume", roles=_ADMIN, tag="Topics", notable=True, every_group=True,
    problems=["unknown-topic"],
    responses={200: {"description": "It goes on; all its settings.", "model": TopicOut}},
)  # fmt: skip
async def resume_topic(request: Request, topic: TopicPath, key: KeyQuery = None) -> Response:
    """Resume a topic: jobs that came due meanwhile are delivered now."""
    await (await backend_of(request).queue()).resume(topic, key=key)
    return await _settings(request, topic)


@operation(
    router, "GET", "/v1/stats", roles=_LOOK, tag="Figures", sifts=True, problems=["unknown-topic"],
    responses={200: {"description": "The figures.", "model": StatsOut}},
)  # fmt: skip
async def get_stats(request: Request, topic: TopicQuery = None) -> Response:
    """Get the figures of one topic, or of all that the token allows."""
    found = redact.stats(who_asks(request), await (await backend_of(request).queue()).stats(topic))
    return await asyncio.to_thread(lambda: _json(stats_json(found)))  # of all topics: other requests must not wait


@operation(
    router, "GET", "/v1/upcoming", roles=_LOOK, tag="Figures", problems=["unknown-topic"],
    responses={200: {"description": "The coming load.", "model": UpcomingOut}},
)  # fmt: skip
async def get_upcoming(
    request: Request,
    topic: TopicQuery = None,
    windows: Annotated[
        str, Query(description=f"At most {_MAX_WINDOWS} durations, separated by commas.", max_length=400)
    ] = "1m,10m,1h,1d",
) -> Response:
    """Count the jobs that come due within each window from now.

    A job is counted once, whatever the number of groups.
    """
    names = windows.split(",")
    if len(names) > _MAX_WINDOWS or any(len(name) > _WINDOW_CHARS for name in names):
        raise InvalidInput(f"windows: pass at most {_MAX_WINDOWS} durations such as 10m, separated by commas")
    return _json({"windows": await (await backend_of(request).queue()).upcoming(topic, names)})


@operation(
    router, "GET", "/v1/scale/{topic:segment}", roles=_LOOK, tag="Figures", problems=_UNKNOWN,
    responses={200: {"description": "What the group needs.", "model": ScaleOut}},
)  # fmt: skip
async def get_scale(
    request: Request,
    topic: TopicPath,
    group: GroupQuery = "default",
    within: Annotated[str, Query(description="How far ahead to look, at most 1h.", max_length=_WINDOW_CHARS)] = "10m",
    slo: Annotated[str, Query(description="How late an attempt may start.", max_length=_WINDOW_CHARS)] = "5s",
    concurrency: Annotated[int, Query(description="How many jobs a replica runs at once.", ge=1, le=10_000)] = 100,
    attempt: Annotated[
        str | None,
        Query(description="How long an attempt takes; without it, as in the history.", max_length=_WINDOW_CHARS),
    ] = None,
) -> Response:
    """Tell how many replicas of a worker a group needs, so that each attempt starts in time.

    Those that are ready now, and those that are due soon. For autoscalers: KEDA reads `replicas`.
    """
    check_group_scope(who_asks(request), group)
    queue = await backend_of(request).queue()
    found = await queue.scale(topic, group, within=within, slo=slo, concurrency=concurrency, attempt=attempt)
    return _json(asdict(found))


@operation(
    router, "GET", _TOPIC + "/keys", roles=_LOOK, tag="Figures", problems=_UNKNOWN,
    responses={200: {"description": "The key with most of it first.", "model": KeysOut}},
)  # fmt: skip
async def list_keys(
    request: Request,
    topic: TopicPath,
    by: Annotated[By, Query(description="What there is to be most of.")] = "waiting",
    group: GroupQuery = "default",
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
) -> Response:
    """List the keys for which most jobs of a group wait, or run. For topics with a limit of keys."""
    check_group_scope(who_asks(request), group)
    found = await (await backend_of(request).queue()).keys(topic, by, group, limit)
    return _json({"keys": [asdict(load) for load in found]})


@operation(
    router, "GET", _TOPIC + "/dead", roles=_LOOK, tag="Dead letters", problems=_UNKNOWN,
    responses={200: {"description": "The longest dead first; why is in their groups.", "model": DeadOut}},
)  # fmt: skip
async def list_dead(
    request: Request,
    topic: TopicPath,
    group: GroupQuery = "default",
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    after: Annotated[
        str,
        Query(description="The `next` of the page before.", max_length=300, examples=["1767225600000.order-42"]),
    ] = "",
) -> Response:
    """List a group's dead letters.

    At most `limit`, and at most 1 MiB. Pass `next` as `after` to get the following page; it is null on the last one.
    """
    backend, who = backend_of(request), who_asks(request)
    check_group_scope(who, group)
    page = await backend.do(dead_page(await backend.store(), who, topic, group, limit, after))
    return Response(b'{"jobs":[' + b",".join(page.jobs) + b'],"next":' + to_json(page.next) + b"}", media_type=JSON)


@operation(
    router, "POST", _TOPIC + "/dead/kick", roles=_ADMIN, takes=JSON, tag="Dead letters", notable=True,
    problems=_UNKNOWN, responses={200: {"description": "How many went back.", "model": CountOut}},
)  # fmt: skip
async def kick_dead(request: Request, topic: TopicPath, which: DeadIn) -> Response:
    """Send dead letters back. They are ready at once, and their retry schedule starts again."""
    about(request, group=which.group)
    check_group_scope(who_asks(request), which.group)
    queue = await backend_of(request).queue()
    counts = [await queue.kick(topic, id, which.group) for id in _ids(which)]
    return _json({"count": sum(counts)})


@operation(
    router, "POST", _TOPIC + "/dead/purge", roles=_ADMIN, takes=JSON, tag="Dead letters", notable=True,
    problems=_UNKNOWN, responses={200: {"description": "How many are gone.", "model": CountOut}},
)  # fmt: skip
async def purge_dead(request: Request, topic: TopicPath, which: DeadIn) -> Response:
    """Delete dead letters permanently."""
    about(request, group=which.group)
    check_group_scope(who_asks(request), which.group)
    queue = await backend_of(request).queue()
    counts = [await queue.purge(topic, id, group=which.group, all=id is None) for id in _ids(which)]
    return _json({"count": sum(counts)})


def _ids(which: DeadIn) -> list[str | None]:
    """The ids, or None for all of them."""
    if which.all == bool(which.ids):
        raise InvalidInput("pass ids, or all: true")
    return [None] if which.all else list(which.ids or ())


@operation(
    router, "GET", "/v1/audit", roles=_ADMIN, tag="Figures", problems=["unknown-topic", "too-busy"],
    responses={200: {"description": "The accounts; look at `balanced`.", "model": AuditOut}},
)  # fmt: skip
async def get_audit(request: Request, topic: TopicQuery = None) -> Response:
    """Prove that no job is lost. Reads every job, so it takes long if there are many."""
    queue = await backend_of(request).queue()
    found = await backend_of(request).search(request, lambda: queue.audit(topic))
    return _json(audit_json(redact.audit(who_asks(request), found)))
