"""The dead letters of a group: list them, send them back, delete them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...config import DEFAULT_GROUP
from ...errors import InvalidInput
from ...job.job import Job
from ...keys import ShardKeys
from ...link.session import Op
from ...store import dead_letters
from ...store.batches import most_jobs
from ...store.jobs import ordered
from ...store.jobs.members import id_in
from ...store.redis_store import RedisStore
from ..jobs.get import job_of, shard_with
from ..jobs.large_bodies import fetched
from ..known import known_group
from .kick_throttle import SLICE, KickThrottle

_PURGE_BATCH = 100
_DeadScript = Callable[[ShardKeys, str, int, Sequence[str]], Op[int]]  # kick or purge: group, limit, ids


def dead(store: RedisStore, topic: str, group: str = DEFAULT_GROUP, limit: int = 100) -> Op[list[Job]]:
    """The group's dead letters in the order of their burial, at most ``limit``; reason and error are in
    ``job.groups[group]``.

    Raises:
        UnknownTopic, UnknownGroup
    """
    yield from known_group(store, topic, group, anew=True)
    shards = store.topics.shards(topic)
    found = yield from ordered.by_rank(store.session, [(shard.dead_of(group), 0) for shard in shards], limit)
    buried = [(at_ms, id, shard) for shard, rows in zip(shards, found, strict=True) for at_ms, id in rows]
    jobs: list[Job] = []
    for _, raw, shard in sorted(buried, key=lambda one: one[:2])[:limit]:
        id = id_in(raw)
        found_job = yield from store.scripts.get(shard, id)
        if (job := job_of(topic, id, found_job, store.session.bodies)) is not None:
            jobs.append(job)
    yield from fetched(jobs)
    return jobs


def kick(
    store: RedisStore, topic: str, id: str | None = None, group: str = DEFAULT_GROUP, *, all: bool = False
) -> Op[int]:
    """Sends a dead job back, or all dead jobs of the group; returns how many. They are ready at once. Many jobs go in
    slices, as fast as they are claimed, so that they don't delay due jobs. If the call is interrupted, the rest stays
    dead. Without ``id``, all of them are meant.
    """
    if all and id is not None:
        raise InvalidInput("kick: pass an id or all=True, not both")
    throttle = KickThrottle(store.session)
    return (yield from _each_dead(store, store.scripts.kick, topic, id, group, SLICE, throttle))


def purge(
    store: RedisStore, topic: str, id: str | None = None, *, group: str = DEFAULT_GROUP, all: bool = False
) -> Op[int]:
    """Deletes a dead job permanently, or with ``all`` all dead jobs of the group; returns how many.

    Raises:
        InvalidInput: neither an id nor ``all`` is given, or both; nothing was deleted.
    """
    if (id is None) != all:
        raise InvalidInput("purge: pass either the id of a dead job, or all=True for all dead jobs of the group")
    return (yield from _each_dead(store, store.scripts.purge, topic, id, group, _PURGE_BATCH, None))


def _each_dead(
    store: RedisStore,
    script: _DeadScript,
    topic: str,
    id: str | None,
    group: str,
    most: int,
    throttle: KickThrottle | None,
) -> Op[int]:
    settings = yield from known_group(store, topic, group, anew=True)
    if id is not None:
        shard = yield from shard_with(store, topic, settings, id)
        return (yield from script(shard, group, 0, [id]))
    total, most = 0, most_jobs(most, len(settings.groups))
    for shard in store.topics.shards(topic):
        # Kick no more jobs than are dead now, or a job that dies again at once would be kicked forever.
        left = yield from dead_letters.dead_now(store.session, shard, group)
        while left > 0:
            if throttle and total:
                yield from throttle.wait(shard, group)
            done = yield from script(shard, group, min(left, most), [])
            total += done
            left = left - done if done else 0
    return total
