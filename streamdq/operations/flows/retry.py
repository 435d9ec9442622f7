"""Sends the dead letters of a flow back."""

from __future__ import annotations

from ...errors import UnknownTopic
from ...job.job import check_id
from ...keys import ShardKeys
from ...link.session import Op
from ...store.flows import reading, shards
from ...store.redis_store import RedisStore
from ..dead_letters.kick_throttle import SLICE, KickThrottle


def retry_flow(store: RedisStore, name: str) -> Op[int | None]:
    """Sends all jobs of the flow back that are dead, in each group; returns how many. They are ready at once. Many go
    in slices, as fast as they are claimed. What waits for them continues when they are done. If the call is
    interrupted, the rest stays dead. None: there is no such flow.
    """
    runs = yield from shards.found(store.session, store.topics, check_id(name))
    total, throttle = 0, KickThrottle(store.session)
    for run in runs:
        dead: dict[ShardKeys, list[str]] = {}
        for one in (yield from reading.members(store.session, run)):
            if one.outcome == "dead":
                dead.setdefault(store.session.keys.shard(one.topic, one.shard), []).append(one.id)
        for shard, ids in dead.items():
            total += yield from _kick(store, shard, ids, throttle)
    return total if runs else None


def _kick(store: RedisStore, shard: ShardKeys, ids: list[str], throttle: KickThrottle) -> Op[int]:
    try:
        settings = yield from store.topics.get(shard.topic, anew=True)
    except UnknownTopic:  # it was deleted meanwhile
        return 0
    total = 0
    for group in settings.group_names:
        for begin in range(0, len(ids), SLICE):
            if begin:
                yield from throttle.wait(shard, group)
            total += yield from store.scripts.kick(shard, group, 0, ids[begin : begin + SLICE])
    return total
