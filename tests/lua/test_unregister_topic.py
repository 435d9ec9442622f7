"""unregister_topic: the topic leaves the registry, once its shards are gone."""

from __future__ import annotations

from streamdq.config import TopicSettings, topic_patch
from tests.lua.shard import Shard


def begin_to_delete(shard: Shard) -> TopicSettings:
    """As the first step of deleting the topic."""
    settings: TopicSettings = shard.run(shard.scripts.register_topic("t", topic_patch({"deleting": "empty"}, {})))
    return settings


def test_it_is_gone_and_wakes_the_mover(shard: Shard) -> None:
    deleting = begin_to_delete(shard)
    before = shard.redis("XREVRANGE", shard.session.keys.wake, "+", "-")
    assert shard.run(shard.scripts.unregister_topic("t", deleting.version))
    assert shard.redis("HEXISTS", shard.session.keys.topics, "t") == 0
    wakeups = shard.redis("XREVRANGE", shard.session.keys.wake, "+", "-")
    assert wakeups != before
    assert wakeups[0][1] == [b"topic", b"t"]
    assert shard.run(shard.scripts.unregister_topic("t", 1)), "repeated"


def test_one_that_was_changed_since_stays(shard: Shard) -> None:
    deleting = begin_to_delete(shard)
    assert not shard.run(shard.scripts.unregister_topic("t", deleting.version - 1))
    assert shard.redis("HEXISTS", shard.session.keys.topics, "t") == 1


def test_one_that_has_the_same_version_after_a_loss_of_data_stays(shard: Shard) -> None:
    """Redis lost the deletion with the end of its append-only file, and another change got the same version."""
    assert not shard.run(shard.scripts.unregister_topic("t", shard.settings.version))
    assert shard.redis("HEXISTS", shard.session.keys.topics, "t") == 1
