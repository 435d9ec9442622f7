"""release: running -> ready, handed back unfinished; the attempt does not count."""

from __future__ import annotations

from streamdq.operations.topics import configure
from tests.lua.shard import START_MS, Shard


def test_it_is_ready_at_once_and_the_attempt_is_not_counted(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    assert shard.release(row) == (START_MS, frozenset(), frozenset())
    assert shard.state("j") == "ready"
    job = shard.job("j")
    assert job.groups["default"].error is None
    assert shard.entries(shard.k.ready) == [], "with one group, the shared entry is needed no more"
    again = shard.take(consumer="other")
    assert again.past.split(b"|")[:3] == [b"1", b"0", b"0"]
    assert shard.finish(row).stale == {0}
    shard.finish(again)
    assert shard.empty()
    assert shard.history() == [["row of j", str(START_MS)]] * 2


def test_a_retried_attempt_keeps_its_place_in_the_schedule(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retried()
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
    shard.run(configure.pause(shard.store, "t"))
    shard.release(row)
    assert shard.state("j") == "delayed"
    shard.run(configure.resume(shard.store, "t"))
    shard.move()
    assert shard.take().past.split(b"|")[0] == b"1"


def test_in_a_shard_that_knows_of_no_rate_it_is_ready_at_once(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    shard.redis("HDEL", shard.k.settings, "rate")
    shard.clock.advance("1s")
    assert shard.move().moved == 1
    shard.release(shard.take())
    assert shard.state("j") == "ready"


def test_of_two_that_wait_for_a_permit_the_first_wakes_the_mover(shard: Shard) -> None:
    shard.enqueue("i", "j")
    i, j = shard.claim().rows
    shard.topic(rate=1)
    before = shard.last_wakeup()
    shard.release(i)
    first = shard.last_wakeup()
    assert first != before
    shard.release(j)
    assert shard.last_wakeup() == first


def test_a_stale_claim_is_refused(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.retry(row, delay_ms=1000)
    assert shard.release(row).stale == {0}
    assert shard.state("j") == "delayed"


def test_beside_a_stale_claim_another_is_handed_back(shard: Shard) -> None:
    shard.enqueue("stale", "held")
    stale, held = shard.claim().rows
    shard.finish(stale)
    assert shard.release(stale, held).stale == {0}
    assert shard.state("held") == "ready"


def test_it_is_as_old_as_before(shard: Shard) -> None:
    """Its expiry, and its lateness, count from when it was due, not from when it was handed back."""
    shard.enqueue("j", expire="10s")
    shard.clock.advance("6s")
    shard.release(shard.take())
    job = shard.job("j")
    assert job.groups["default"].due_ms == START_MS
    shard.clock.advance("4s")
    shard.release(shard.take())
    shard.clock.advance("1ms")
    assert shard.claim().expired == 1


def test_a_retry_is_as_old_as_its_step(shard: Shard) -> None:
    """A retry's expiry counts from when the retry was due, however often that is handed back."""
    shard.enqueue("j", expire="10s")
    shard.clock.advance("9s")
    shard.retry(shard.take(), delay_ms=5000)
    shard.clock.advance("14s")
    shard.move()
    for _ in range(2):
        row = shard.take()
        assert row.past == f"2|1|0|{START_MS + 14_000}".encode()
        shard.release(row)
    shard.clock.advance("1001ms")
    assert shard.claim().expired == 1
    assert shard.empty()


def test_with_a_rate_it_goes_by_the_bucket_as_the_oldest(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.topic(rate=2)
    shard.clock.advance("5s")
    shard.enqueue("younger")
    before = shard.last_wakeup()
    shard.release(row)
    assert shard.state("j") == "delayed"
    assert shard.last_wakeup() != before
    assert [float(score) for score in shard.redis("ZRANGE", shard.k.bucket, 0, -1, "WITHSCORES")[1::2]] == [
        START_MS, START_MS + 5000,
    ]  # fmt: skip
