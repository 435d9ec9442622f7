"""Pauses one key of a topic."""

from __future__ import annotations

from ...errors import InvalidInput
from ...job.job import check_key, check_topic
from ...keys import shard_of
from ...link.session import Op
from ...store.redis_store import RedisStore
from ...store.replies import OUTDATED
from ...store.topics.changes import until_nothing_starts
from ...store.topics.topics import changing
from ..jobs.get import REPAIRS

_NO_LIMIT, _MORE = -1, 0


def pause_key(store: RedisStore, topic: str, key: str, paused: bool) -> Op[None]:
    """Pauses a key, or lets it go on. Safe to repeat. If the call that lets it go on is killed, jobs may wait until
    others of their key have ended; repeat it.
    """
    settings = yield from store.topics.get(check_topic(topic))
    key = check_key(key)
    for _ in range(REPAIRS):
        shard = store.session.keys.shard(topic, shard_of("", settings.shards, key))
        done = _MORE
        while done == _MORE:
            done = yield from store.scripts.pause_key(shard, settings, key, paused)
        if done == _NO_LIMIT:
            raise InvalidInput(f"key: topic {topic!r} has no limit of keys; set key_concurrency, 10000 if in doubt")
        if done != OUTDATED:
            if paused:
                yield from until_nothing_starts(store.topics, topic)
            return
        renewed = yield from store.topics.renew(topic)
        if renewed is None:
            raise store.topics.unknown(topic)
        settings = renewed
    raise changing(topic)
