"""forget_key: forgets what is kept of a key for which no job waits."""

from __future__ import annotations

from tests.lua.shard import Shard


def forget(shard: Shard, key: str, *, only_count: bool = False) -> int:
    count: int = shard.run(shard.scripts.forget_key(shard.k, key, only_count=only_count))
    return count


def test_a_pause_and_the_next_start_go(shard: Shard) -> None:
    shard.topic(key_rate="1/h")
    shard.enqueue("a", key="k")
    shard.move()
    shard.finish(shard.take())
    shard.call("pause_key", shard.settings, "k", True)
    shard.call("pause_key", shard.settings, "other", True)
    assert forget(shard, "k", only_count=True) == 2
    assert forget(shard, "k") == 2
    assert forget(shard, "k") == 0, "again"
    assert shard.redis("ZRANGE", shard.k.key_paused, 0, -1) == [b"other"]
    assert shard.redis("ZCARD", shard.k.key_next_start) == 0


def test_a_key_for_which_jobs_wait_is_left_alone(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.call("pause_key", shard.settings, "k", True)
    shard.enqueue("a", key="k")
    assert forget(shard, "k") == 0
    assert shard.redis("ZRANGE", shard.k.key_paused, 0, -1) == [b"k"]
