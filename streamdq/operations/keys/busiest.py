"""Which keys have most to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...config import DEFAULT_GROUP
from ...errors import InvalidInput
from ...keys import ShardKeys
from ...link.session import Op
from ...store.keys import key_reads
from ...store.redis_store import RedisStore
from ..known import known_group

_MOST = 1000
By = Literal["waiting", "running", "paused"]


@dataclass(frozen=True, slots=True)
class KeyLoad:
    """What one group has to do for a key. ``waiting``: jobs that wait for a place of the key, due or not. ``running``:
    jobs that are claimed and have one. ``paused``: by ``pause``.
    """

    key: str
    waiting: int
    running: int
    paused: bool = False


def keys(
    store: RedisStore, topic: str, by: By = "waiting", group: str = DEFAULT_GROUP, limit: int = 20
) -> Op[list[KeyLoad]]:
    """The keys for which most jobs of the group wait, or run, or those that are paused; at most ``limit``. Jobs that
    were enqueued while the topic had no limit of keys (``configure``) don't count.

    Raises:
        UnknownTopic, UnknownGroup
    """
    if by not in ("waiting", "running", "paused"):
        raise InvalidInput(f"by: {by!r} is not one of 'waiting', 'running', 'paused'")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MOST:
        raise InvalidInput(f"limit: {limit!r} is not between 1 and {_MOST}")
    settings = yield from known_group(store, topic, group, anew=True)
    shards = store.topics.shards(topic) if settings.key_limited else ()
    return (yield from busiest(store, shards, by, group, limit))


def busiest(store: RedisStore, shards: Sequence[ShardKeys], by: By, group: str, limit: int) -> Op[list[KeyLoad]]:
    """Of the keys in these shards, those for which most jobs of the group wait, or run."""
    found: list[KeyLoad] = []
    for shard in shards:
        found += yield from _in_shard(store, shard, by, group, limit)
    order = "waiting" if by == "paused" else by
    return sorted(found, key=lambda load: (-getattr(load, order), load.key))[:limit]


def _in_shard(store: RedisStore, shard: ShardKeys, by: By, group: str, limit: int) -> Op[list[KeyLoad]]:
    session = store.session
    running = yield from key_reads.running(session, shard, group)
    if by == "waiting":
        waiting = yield from key_reads.most_waiting(session, shard, group, limit)
    else:
        most = [key for key, _ in running.most_common(limit)]
        chosen = most if by == "running" else (yield from key_reads.paused(session, shard, limit))
        counts = yield from key_reads.waiting(session, [(shard, key) for key in chosen], group)
        waiting = dict(zip(chosen, counts, strict=True))
    paused = yield from key_reads.are_paused(session, [(shard, key) for key in waiting])
    return [
        KeyLoad(key, count, running[key], is_paused)
        for (key, count), is_paused in zip(waiting.items(), paused, strict=True)
    ]
