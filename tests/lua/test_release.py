"""release: running -> ready, handed back unfinished; the attempt does not count."""

from __future__ import annotations

from tests.lua.shard import START_MS, Shard


def test_it_is_ready_at_once_and_the_attempt_is_not_counted(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    assert shard.release(row) == (START_MS, frozenset())
    assert shard.state("j") == "ready"
    again = shard.take(consumer="other")
    assert again.past.split(b"|")[:3] == [b"1", b"0", b"0"]
    assert shard.finish(row).stale == {0}
    shard.finish(again)
    assert shard.empty()
    assert [row[0] for row in shard.history()] == ["row of j", "row of j"]


def test_a_retried_attempt_keeps_its_place_in_the_schedule(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take())
    shard.move()
    shard.release(shard.take())
    assert shard.take().past.split(b"|")[:3] == [b"2", b"1", b"0"]


def test_only_its_own_group_gets_it_again(two: Shard) -> None:
    two.enqueue("j")
    two.release(two.take("a"))
    two.finish(two.take("b"), group="b")
    assert two.claim(group="b").rows == []
    two.finish(two.take("a"))
    assert two.empty()


def test_while_the_topic_is_paused_it_waits(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.run(shard.operations.pause("t"))
    shard.release(row)
    assert shard.state("j") == "delayed"
    shard.run(shard.operations.resume("t"))
    shard.move()
    assert shard.take().past.split(b"|")[0] == b"1"


def test_a_stale_claim_is_refused(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.retry(row, delay_ms=1000)
    assert shard.release(row).stale == {0}
    assert shard.state("j") == "delayed"
