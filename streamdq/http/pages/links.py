"""Which jobs a job waits for, and which wait for it, for its page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...config import TopicSettings
from ...job.after import PER_FIELD, Dependencies, Dependency
from ...job.flow import FLOWS
from ...keys import ShardKeys
from ...link.session import Op
from ...store.jobs import linked, lookup
from ...store.jobs.links import Follower
from ...store.redis_store import RedisStore
from .. import redact
from ..auth import Identity

_SHOWN_PARENTS, _SHOWN_DONE = 50, 10


def links_of(
    store: RedisStore, shard: ShardKeys, id: str, settings: TopicSettings
) -> Op[tuple[Dependencies | None, list[Follower]]]:
    """What the job waits for, and who waits for it."""
    if not settings.linked:
        return None, []
    (record,) = yield from lookup.records(store.session, [(shard, id)])
    waits_for = (yield from linked.dependencies(store.session, shard, id, record, PER_FIELD)) if record else None
    return waits_for, (yield from linked.followers(store.session, shard, id))


def may_see_flows(who: Identity) -> bool:
    """A flow may have jobs in any topic, and for any group."""
    return who.topics.is_all and who.groups.is_all


def unfinished_first(waits_for: Dependencies | None) -> list[Dependency]:
    """Those that are shown: failed ones, those that have not ended, and some that are done."""
    jobs = waits_for.jobs if waits_for else ()
    left = sorted((one for one in jobs if one.outcome != "done"), key=lambda one: one.outcome is None)
    done = [one for one in jobs if one.outcome == "done"]
    return [*left[:_SHOWN_PARENTS], *done[: max(0, _SHOWN_DONE - len(left))]]


def shown_links(who: Identity, waits_for: Dependencies | None, followers: Sequence[Follower]) -> dict[str, Any]:
    """Which jobs it waits for, and which wait for it, of those that the token allows."""
    waits_for = waits_for and redact.dependencies(who, waits_for)
    flow = next((one.id for one in followers if one.topic == FLOWS), "") if may_see_flows(who) else ""
    return {
        "waits_for": waits_for,
        "shown_parents": unfinished_first(waits_for),
        "followers": [one for one in followers if one.topic != FLOWS and who.topics.holds(one.topic)],
        "flow": flow,
    }
