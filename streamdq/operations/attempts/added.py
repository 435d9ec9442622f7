"""Adds jobs to the flow of a job that runs. Nothing is written before its attempt ends: ``finish`` commits what was
added together with that end (store/flows/children.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import InvalidInput, JobExists, StaleClaim
from ...forks import ModuleLock
from ...job.after import MAX_PARENTS, NEVER_MS, After, Parent, Waits, parents_of
from ...job.flow import FLOWS, FlowJob
from ...job.job import NewJob, Priority, check_own_topic
from ...job.retry import RetryInput
from ...keys import candidate_shards
from ...link.connection import AsyncLink, Link
from ...link.session import Op, arun, run
from ...options import suggesting
from ...store.flows.children import Child, children_text, is_added_to
from ...store.jobs import linked, lookup
from ...store.jobs.links import Follower
from ...store.jobs.records import Encoded, as_waiting, encode, nonce_of
from ...store.redis_store import RedisStore
from ...store.topics.changes import expect_links
from ...times.durations import Duration
from ..jobs.enqueue import NO_BODY
from ..jobs.enqueue_many import as_new_job
from ..jobs.large_bodies import put_away
from .claimed import ClaimedJob

if TYPE_CHECKING:
    from ...job.job import Job

MOST_CHILDREN = 1_000
"""That an attempt can add."""
MOST_BYTES = 1024 * 1024
"""Of their bodies, and of what else is stored of them: it is one text."""
_adding = ModuleLock()


def add(
    store: RedisStore, held: ClaimedJob, topic: str, new: Iterable[NewJob], before: After | None
) -> Op[list[FlowJob]]:
    """Adds all of them, or none.

    Raises:
        InvalidInput: an argument is; or the job belongs to no flow.
        JobExists: another job has the id.
        StaleClaim: the attempt has ended.
    """
    topic, job = check_own_topic(topic), held.job
    _check_goes_on(held)
    if held.shard is None:
        raise InvalidInput("flow: a handler in a process can't add jobs to its flow; use one in a thread, or async def")
    followers = yield from linked.followers(store.session, held.shard, job.id)
    own = next((one for one in followers if one.topic == FLOWS), None)
    if own is None:
        raise InvalidInput(f"flow: job {job.id!r} of topic {job.topic!r} belongs to no flow")
    flow = yield from linked.parents_head(store.session, store.session.keys.shard(FLOWS, own.shard), own.id)
    if flow is None:
        raise InvalidInput(f"flow: the flow of job {job.id!r} of topic {job.topic!r} was forgotten, as it has ended")
    waiting = yield from _before(store, job, followers, () if before is None else parents_of(before, "before"))
    children, made = list[Child](), list[FlowJob]()
    for encoded in (_encoded(store, topic, one) for one in new):
        # Those that are to wait for one of an earlier attempt may not know of it, if a failover has undone that end.
        life = yield from _existing(store, topic, encoded, (job, own))
        child = yield from _child(store, topic, _of_life(encoded, life) if life else encoded, waiting)
        children.append(child)
        _check_most(children)
        made.append(FlowJob(topic, child.id, child.key, child.nonce))
    with _adding:
        # Another task or thread of the handler may have added some meanwhile, or the attempt has ended.
        _check_goes_on(held)
        _keep(held, children, MAX_PARENTS - flow[1])
    return made


def _check_goes_on(held: ClaimedJob) -> None:
    if held.ended:
        raise StaleClaim(f"job {held.job.id!r}: its attempt has ended, and can't add jobs to its flow")


def _child(store: RedisStore, topic: str, job: Encoded, before: tuple[tuple[str, str], ...]) -> Op[Child]:
    (kept,) = yield from put_away(store.session, topic, [job])
    delay_ms = job.waits.delay_ms if job.waits else 0
    return Child(topic, job.id, job.key, job.nonce, delay_ms, before, job.priority, kept.rest)


def _check_most(children: Sequence[Child]) -> None:
    if len(children) > MOST_CHILDREN:
        raise InvalidInput(f"flow: a job can add at most {MOST_CHILDREN} jobs; let one of these add more")


def _keep(held: ClaimedJob, children: Sequence[Child], most: int) -> None:
    """Adds them to what the attempt has added, all or none. ``most``: for which the flow has room."""
    names = {(one.topic, one.id) for one in held.children}
    for one in children:
        if (one.topic, one.id) in names:
            raise JobExists(one.topic, one.id, ", as this attempt has added it", in_flow=True)
        names.add((one.topic, one.id))
    together = [*held.children, *children]
    _check_most(together)
    if len(together) > most:
        raise InvalidInput(f"flow: with these jobs, the flow has more than {MAX_PARENTS}, the most")
    size = held.children_bytes + len(children_text(children))
    if size > MOST_BYTES:
        raise InvalidInput(f"flow: the jobs that a job adds can have at most {MOST_BYTES} bytes together")
    held.children, held.children_bytes = together, size


def _before(
    store: RedisStore, job: Job, followers: Sequence[Follower], parents: Sequence[Parent]
) -> Op[tuple[tuple[str, str], ...]]:
    """Those of them that are meant, by nonce and id."""
    by_name = {(one.topic, one.id): one for one in followers if one.topic != FLOWS}
    found: list[Follower] = []
    for parent in parents:
        one = by_name.get((parent.topic, parent.id))
        if one is None:
            raise InvalidInput(
                f"before: job {parent.id!r} of topic {parent.topic!r} does not wait for job {job.id!r} of {job.topic!r}"
            )
        found.append(one)
    keys = store.session.keys
    records = yield from lookup.records(store.session, [(keys.shard(one.topic, one.shard), one.id) for one in found])
    for one, record in zip(found, records, strict=True):
        if not record or nonce_of(record) != one.nonce or record[12:25] != b"%d" % NEVER_MS:
            raise InvalidInput(f"before: job {one.id!r} of topic {one.topic!r} has started or ended")
    return tuple((one.nonce, one.id) for one in found)


def _encoded(store: RedisStore, topic: str, new: NewJob) -> Encoded:
    bodies = store.session.bodies
    if new.after is not None:
        raise InvalidInput("after: a job that is added at run time waits for the running one alone; pass before")
    # For the checks of what does not go together with a flow.
    job = encode(replace(new, after=(FLOWS, "any")), bodies.most_json_bytes, bodies.seal(topic))
    return _of_life(job, os.urandom(8).hex())


def _of_life(job: Encoded, life: str) -> Encoded:
    return as_waiting(job, Waits((), "block", job.waits.delay_ms if job.waits else 0), life)


def _existing(store: RedisStore, topic: str, new: Encoded, of: tuple[Job, Follower]) -> Op[str]:
    """The life of the job with this id, if it has been added to this flow; "": there is none. ``of``: the job that
    runs, and its flow's own.

    Raises:
        JobExists: it is another job.
    """
    settings = yield from expect_links(store.topics, topic, has_keys=new.key is not None)
    if new.has_new_id:
        return ""
    running, own = of
    for number in candidate_shards(new.id, settings.shards, settings.former, new.key):
        shard = store.session.keys.shard(topic, number)
        (record,) = yield from lookup.records(store.session, [(shard, new.id)])
        if record:
            followers = yield from linked.followers(store.session, shard, new.id)
            if (running.topic, running.id) == (topic, new.id) or not is_added_to(followers, own):
                raise JobExists(topic, new.id, in_flow=True)
            return nonce_of(record)
    return ""


class JobFlow:
    """The flow of a job that runs: its handler adds jobs to it. They are committed together with the end of the
    attempt, if that is done. Otherwise nothing is left of them.
    """

    def __init__(self, link: Link, store: RedisStore, held: ClaimedJob) -> None:
        self._link, self._store, self._held = link, store, held

    @suggesting
    def enqueue(
        self,
        topic: str,
        body: Any = NO_BODY,
        *,
        before: After | None = None,
        delay: Duration | None = None,
        id: str | None = None,
        ttr: Duration | None = None,
        retry: RetryInput | None = None,
        url: str | None = None,
        expire: Duration | None = None,
        version: int = 1,
        key: str | None = None,
        priority: Priority | None = None,
    ) -> FlowJob:
        """Adds a job. ``before``: those that wait for the running job and are to wait for the new one, too. ``delay``:
        from the end of the running job. The other arguments are those of ``Queue.enqueue``.

        Raises:
            InvalidInput: an argument is invalid, the running job belongs to no flow, or a job in ``before`` does not
                wait for it.
            JobExists: another job has the id.
            StaleClaim: the attempt has ended.
        """
        new = NewJob(
            body, delay, id, ttr=ttr, retry=retry, url=url, expire=expire, version=version, key=key, priority=priority
        )
        return run(self._link, add(self._store, self._held, topic, [new], before))[0]

    def enqueue_many(
        self, topic: str, jobs: Iterable[NewJob | Mapping[str, Any]], *, before: After | None = None
    ) -> list[FlowJob]:
        """Adds all of these, or none. ``jobs``: as for ``Queue.enqueue_many``. Raises the same as ``enqueue``."""
        return run(self._link, add(self._store, self._held, topic, map(as_new_job, jobs), before))


class AsyncJobFlow:
    """Like JobFlow. Its methods are awaited."""

    def __init__(self, link: AsyncLink, store: RedisStore, held: ClaimedJob) -> None:
        self._link, self._store, self._held = link, store, held

    @suggesting
    async def enqueue(
        self,
        topic: str,
        body: Any = NO_BODY,
        *,
        before: After | None = None,
        delay: Duration | None = None,
        id: str | None = None,
        ttr: Duration | None = None,
        retry: RetryInput | None = None,
        url: str | None = None,
        expire: Duration | None = None,
        version: int = 1,
        key: str | None = None,
        priority: Priority | None = None,
    ) -> FlowJob:
        """Like JobFlow.enqueue."""
        new = NewJob(
            body, delay, id, ttr=ttr, retry=retry, url=url, expire=expire, version=version, key=key, priority=priority
        )
        return (await arun(self._link, add(self._store, self._held, topic, [new], before)))[0]

    async def enqueue_many(
        self, topic: str, jobs: Iterable[NewJob | Mapping[str, Any]], *, before: After | None = None
    ) -> list[FlowJob]:
        """Like JobFlow.enqueue_many."""
        return await arun(self._link, add(self._store, self._held, topic, map(as_new_job, jobs), before))
