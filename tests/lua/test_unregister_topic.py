"""unregister_topic: the topic leaves the registry, once its shards are gone."""

from __future__ import annotations

from tests.lua.shard import Shard


def test_it_is_gone_and_rings(shard: Shard) -> None:
    before = shard.redis("XREVRANGE", shard.session.keys.wake, "+", "-")
    assert shard.run(shard.scripts.unregister_topic("t", shard.settings.version))
    assert shard.redis("HEXISTS", shard.session.keys.topics, "t") == 0
    rings = shard.redis("XREVRANGE", shard.session.keys.wake, "+", "-")
    assert rings != before
    assert [fields for _, fields in rings] == [[b"topic", b"t"]]
    assert shard.run(shard.scripts.unregister_topic("t", 1)), "repeated"


def test_one_that_was_changed_since_stays(shard: Shard) -> None:
    assert not shard.run(shard.scripts.unregister_topic("t", shard.settings.version - 1))
    assert shard.redis("HEXISTS", shard.session.keys.topics, "t") == 1
