"""Which keys have most to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..config import DEFAULT_GROUP
from ..errors import InvalidInput
from ..keys import ShardKeys
from ..link.session import Op
from ..store import key_reads
from ..store.redis_store import RedisStore
from .inspect import known_group

_MOST = 1000
By = Literal["waiting", "running"]


@dataclass(frozen=True, slots=True)
class KeyLoad:
    """What one group has to do for a key. ``waiting``: jobs that wait for a place of the key, due or not. ``running``:
    jobs that are claimed and have one.
    """

    key: str
    waiting: int
    running: int


def keys(
    store: RedisStore, topic: str, by: By = "waiting", group: str = DEFAULT_GROUP, limit: int = 20
) -> Op[list[KeyLoad]]:
    """The keys for which most jobs of the group wait, or run, at most ``limit``. Jobs that were put in while the topic
    had no limit of keys (``configure``) don't count.

    Raises:
        UnknownTopic, UnknownGroup
    """
    if by not in ("waiting", "running"):
        raise InvalidInput(f"by: {by!r} is not one of 'waiting', 'running'")
    if isinstance(limit, bool) or not 1 <= limit <= _MOST:
        raise InvalidInput(f"limit: {limit!r} is not between 1 and {_MOST}")
    settings = yield from known_group(store, topic, group, anew=True)
    shards = store.topics.shards(topic) if settings.key_limited else ()
    return (yield from busiest(store, shards, by, group, limit))


def busiest(store: RedisStore, shards: Sequence[ShardKeys], by: By, group: str, limit: int) -> Op[list[KeyLoad]]:
    """Of the keys in these shards, those for which most jobs of the group wait, or run."""
    found: list[KeyLoad] = []
    for shard in shards:
        found += yield from _in_shard(store, shard, by, group, limit)
    return sorted(found, key=lambda load: (-getattr(load, by), load.key))[:limit]


def _in_shard(store: RedisStore, shard: ShardKeys, by: By, group: str, limit: int) -> Op[list[KeyLoad]]:
    running = yield from key_reads.running(store.session, shard, group)
    if by == "waiting":
        waiting = yield from key_reads.most_waiting(store.session, shard, group, limit)
    else:
        most = [key for key, _ in running.most_common(limit)]
        counts = yield from key_reads.waiting(store.session, [(shard, key) for key in most], group)
        waiting = dict(zip(most, counts, strict=True))
    return [KeyLoad(key, count, running[key]) for key, count in waiting.items()]
