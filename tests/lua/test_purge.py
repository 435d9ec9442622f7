"""purge: dead -> gone, for one group."""

from __future__ import annotations

from streamdq.store.find.wanted import Wanted
from tests.lua.shard import Shard
from tests.lua.test_kick import bury_all


def test_it_is_gone_and_its_id_is_free(shard: Shard) -> None:
    bury_all(shard, "j")
    assert shard.call("purge", "default", 0, ["j"]) == 1
    assert shard.empty()
    assert shard.counts == {"enqueued": 1, "dead:default": 1, "purged:default": 1}
    shard.enqueue("j")
    assert shard.take().past == b""


def test_the_longest_dead_first_up_to_the_limit(shard: Shard) -> None:
    bury_all(shard, "c", "a", "b")
    assert shard.call("purge", "default", 2, []) == 2
    assert (shard.state("a"), shard.state("b"), shard.state("c")) == ("gone", "dead", "gone")


def test_who_is_not_dead_is_not_purged(shard: Shard) -> None:
    shard.enqueue("ready")
    assert shard.call("purge", "default", 0, ["ready", "unknown"]) == 0
    assert shard.state("ready") == "ready"


def test_the_other_group_keeps_the_job(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    assert two.call("purge", "a", 0, ["j"]) == 1
    assert (two.state("j", "a"), two.state("j", "b")) == ("ended", "ready")
    two.finish(two.take("b"), group="b")
    assert two.empty()


def test_dead_in_both_groups(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    two.bury(two.take("b"), group="b")
    assert two.call("purge", "b", 10, []) == 1
    assert two.state("j", "a") == "dead"
    assert two.call("purge", "a", 10, []) == 1
    assert two.empty()


def test_buried_kicked_and_purged(shard: Shard) -> None:
    bury_all(shard, "j")
    shard.call("kick", "default", 10, [])
    shard.bury(shard.take())
    shard.call("purge", "default", 10, [])
    assert shard.empty()


def test_those_named_and_no_others(shard: Shard) -> None:
    bury_all(shard, "a", "b", "c")
    assert shard.call("purge", "default", 3, ["c", "a"]) == 2
    assert [shard.state(id) for id in "abc"] == ["gone", "dead", "gone"]


# -- as it was shown


def test_only_letters_as_they_were_shown(shard: Shard) -> None:
    shard.enqueue("again", "gone", "same")
    shard.bury(*shard.claim().rows)
    page = shard.run(shard.scripts.find_jobs(shard.k, b"0", 10, Wanted(state="dead")))
    shown = sorted((match.id, match.deliveries.partition(":d")[2]) for match in page.matches)
    shard.call("purge", "default", 0, ["gone"])
    shard.call("kick", "default", 0, ["again"])
    shard.bury(shard.take())
    assert shard.run(shard.scripts.purge_each(shard.k, "default", shown)) == [0, 0, 1]
    shard.check()
    assert (shard.state("again"), shard.state("same")) == ("dead", "gone")
