"""Which jobs a job waits for, and which wait for it, for its page."""

from __future__ import annotations

from ...config import TopicSettings
from ...job.after import PER_FIELD, Dependencies, Dependency
from ...keys import ShardKeys
from ...link.session import Op
from ...store.jobs import linked, lookup
from ...store.jobs.links import Follower
from ...store.redis_store import RedisStore

_SHOWN_PARENTS = 50


def links_of(
    store: RedisStore, shard: ShardKeys, id: str, settings: TopicSettings
) -> Op[tuple[Dependencies | None, list[Follower]]]:
    """What the job waits for, and who waits for it."""
    if not settings.linked:
        return None, []
    (record,) = yield from lookup.records(store.session, [(shard, id)])
    waits_for = (yield from linked.dependencies(store.session, shard, id, record, PER_FIELD)) if record else None
    return waits_for, (yield from linked.followers(store.session, shard, id))


def unfinished_first(waits_for: Dependencies | None) -> list[Dependency]:
    jobs = waits_for.jobs if waits_for else ()
    return sorted(jobs, key=lambda one: one.outcome == "done")[:_SHOWN_PARENTS]
