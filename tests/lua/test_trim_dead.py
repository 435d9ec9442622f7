"""trim_dead: dead -> gone, those that are older than the topic keeps them."""

from __future__ import annotations

from datetime import timedelta

from tests.lua.shard import Shard
from tests.lua.test_kick import bury_all


def trim(shard: Shard, limit: int = 100, group: str = "default") -> int:
    count: int = shard.call("trim_dead", group, limit)
    return count


def test_without_an_age_all_stay(shard: Shard) -> None:
    bury_all(shard, "a")
    shard.clock.advance(timedelta(days=3650))
    assert trim(shard) == 0


def test_those_that_are_older_go_and_their_ids_are_free(shard: Shard) -> None:
    shard.topic(dead_for="90d")
    bury_all(shard, "a", "b")
    shard.clock.advance(timedelta(days=89))
    bury_all(shard, "c")
    assert trim(shard) == 0
    shard.clock.advance(timedelta(days=1))
    assert trim(shard, limit=1) == 1
    assert trim(shard) == 1
    assert [shard.state(id) for id in "abc"] == ["gone", "gone", "dead"]
    assert shard.counts["purged:default"] == 2
    shard.topic(dead_for=0)
    shard.clock.advance(timedelta(days=90))
    assert trim(shard) == 0


def test_the_other_group_keeps_the_job(two: Shard) -> None:
    two.topic(dead_for="1h")
    two.enqueue("j")
    two.bury(two.take("a"))
    two.clock.advance(timedelta(hours=1))
    assert trim(two, group="a") == 1
    assert (two.state("j", "a"), two.state("j", "b")) == ("ended", "ready")
    two.finish(two.take("b"), group="b")
    assert two.empty()
