"""bury: running -> dead, a batch of one group's claims."""

from __future__ import annotations

from tests.lua.shard import START_MS, Shard


def test_it_is_kept_with_why(shard: Shard) -> None:
    shard.enqueue("j")
    assert shard.bury(shard.take()) == (START_MS, frozenset(), frozenset())
    job = shard.job("j")
    progress = job.groups["default"]
    assert (progress.state, progress.attempt, progress.reason, progress.error) == (
        "dead", 1, "exhausted", "Oops: enough",
    )  # fmt: skip
    assert shard.redis("ZRANGE", shard.k.dead_of("default"), 0, -1, "WITHSCORES") == [b"j", str(START_MS).encode()]
    assert shard.counts == {"enqueued": 1, "dead:default": 1, "detached": 1}
    assert shard.history() == [["row of j", str(START_MS)]]


def test_a_retried_attempt(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retried()
    shard.bury(shard.take())
    assert shard.entries(shard.k.ready_of("default")) == []
    job = shard.job("j")
    assert (job.groups["default"].attempt, job.groups["default"].error) == (2, "Oops: enough")


def test_the_other_group_goes_on(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    assert (two.state("j", "a"), two.state("j", "b")) == ("dead", "ready")
    two.finish(two.take("b"), group="b")
    assert two.state("j", "a") == "dead"


def test_a_stale_claim_is_refused(shard: Shard) -> None:
    shard.enqueue("i", "j")
    i, j = shard.claim().rows
    shard.finish(i)
    assert shard.bury(i, j).stale == {0}
    assert shard.redis("ZRANGE", shard.k.dead_of("default"), 0, -1) == [b"j"]
    assert shard.bury(j).stale == {0}
    assert shard.counts["dead:default"] == 1


def test_an_error_with_the_separator_in_it_is_kept_whole(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.call("bury", "default", "1", "me", [row.main, row.entry, row.id, "row", "buried", "a|b|c", ""])
    job = shard.job("j")
    assert (job.groups["default"].reason, job.groups["default"].error) == ("buried", "a|b|c")


def test_where_many_overtook_a_slow_job_one_is_buried_like_any_other(shard: Shard) -> None:
    shard.enqueue("slow", "j")
    _, row = shard.claim().rows
    shard.checked = False
    shard.redis("HSET", shard.k.settings, "overtaken", 10_001)
    assert shard.bury(row).stale == frozenset()
    assert shard.redis("HGET", shard.k.settings, "overtaken") == b"10001"
