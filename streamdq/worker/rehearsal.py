"""Checks the bodies of waiting jobs against a worker's handlers, before a release. It changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from ..errors import BodyUnreadable, UnknownTopic
from ..job.job import Job
from ..keys import ShardKeys
from ..link.session import Op
from ..operations.attempts.error_text import is_a, kept_text, why_invalid
from ..operations.schedules.run_now import jobs_to_come
from ..store.jobs import lookup
from ..store.jobs.progress import Phase, Progress
from ..store.jobs.records import job_in
from ..store.redis_store import RedisStore
from .handlers import Handler, called

_PAGE = 250
_SHOWN = 20
_STATES = {Phase.RUNNING: "running", Phase.WAITING: "retrying", Phase.DEAD: "dead"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A job that the handler would not get."""

    id: str
    state: str  # delayed, ready, retrying, running or dead; schedule: a job that it will make
    why: str


@dataclass(slots=True)
class Rehearsed:
    """What became of one topic's jobs. ``refusals``: the first ones."""

    topic: str
    checked: int = 0
    refused: int = 0
    complete: bool = True  # False: it stopped at the limit
    refusals: list[Refusal] = field(default_factory=list)


def rehearse(
    store: RedisStore,
    handler: Handler,
    group: str,
    most: int | None,
    tell: Callable[[int], None] = lambda _: None,
    declared: Collection[tuple[str, str]] = (),
) -> Op[Rehearsed]:
    """Checks the jobs of one topic that the group has not ended, dead ones included; about ``most`` at most. Jobs that
    come meanwhile may be left out. Before them, the next job of each schedule, but for those that the worker itself has
    ``declared`` (topic and id) and will change. ``tell`` is called with the number of jobs so far.
    """
    found = Rehearsed(handler.topic)
    try:
        settings = yield from store.topics.latest(handler.topic)
    except UnknownTopic:
        return found
    if settings.scheduled:
        yield from _check_schedules(store, found, handler, declared)
    for shard in store.topics.shards(handler.topic):
        now_ms = (yield from store.scripts.stats(shard, ())).now_ms
        cursor = b"0"
        while True:
            cursor, page = yield from lookup.jobs_page(store.session, shard, cursor, _PAGE)
            jobs = [job_in(handler.topic, id, record, store.session.bodies) for id, record in page]
            states = yield from _states(store, shard, group, settings.group_names, jobs, now_ms)
            _check_each(found, handler, zip(jobs, states, strict=True))
            tell(found.checked)
            if cursor == b"0":
                break
            if most is not None and found.checked >= most:
                found.complete = False
                return found
    return found


def _check_schedules(
    store: RedisStore, found: Rehearsed, handler: Handler, declared: Collection[tuple[str, str]]
) -> Op[None]:
    for id, job in (yield from jobs_to_come(store, handler.topic)).items():
        if (handler.topic, id) not in declared:
            _check(found, handler, job, "schedule", id)


def _states(
    store: RedisStore, shard: ShardKeys, group: str, groups: Sequence[str], jobs: Sequence[Job], now_ms: int
) -> Op[list[str | None]]:
    """The state of each job in the group; None: the group does not have it."""
    own = yield from lookup.progress(store.session, [(shard, group, job.id) for job in jobs])
    others = [(shard, other, job.id) for job in jobs for other in groups if other != group]
    theirs = yield from lookup.progress(store.session, others)
    width = len(groups) - (group in groups)
    return [
        _state(job, progress, theirs[i * width : (i + 1) * width], now_ms)
        for i, (job, progress) in enumerate(zip(jobs, own, strict=True))
    ]


def _state(job: Job, own: Progress | None, others: Sequence[Progress | None], now_ms: int) -> str | None:
    if own is not None:
        return _STATES.get(own.phase)
    if any(one is not None and one.main == "-" for one in others):
        return None  # restored for other groups alone
    return "delayed" if job.due_ms > now_ms else "ready"


def _check_each(found: Rehearsed, handler: Handler, jobs: Iterable[tuple[Job, str | None]]) -> None:
    for job, state in jobs:
        if state is not None:
            _check(found, handler, job, state)


def _check(found: Rehearsed, handler: Handler, job: Job, state: str, id: str | None = None) -> None:
    found.checked += 1
    _, error = called(handler.accept, job)
    if error is None:
        return
    found.refused += 1
    if len(found.refusals) < _SHOWN:
        found.refusals.append(Refusal(id or job.id, state, _why(job, error)))


def _why(job: Job, error: BaseException) -> str:
    if is_a(error, ValidationError):
        return why_invalid(error, hidden=job.is_hidden)
    return error.why if is_a(error, BodyUnreadable) else kept_text(job, error)
