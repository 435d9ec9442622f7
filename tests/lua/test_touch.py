"""touch: the claim's TTR starts again."""

from __future__ import annotations

import pytest

from tests.lua.shard import START_MS, Shard

FIELD = b"default\x1fj"


def test_the_deadline_moves(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.clock.advance("50s")
    assert shard.touch(row, ttr_ms=30_000) == (START_MS + 50_000, frozenset(), frozenset())
    job = shard.job("j")
    assert job.groups["default"].deadline_ms == START_MS + 80_000
    shard.clock.advance("29999ms")
    assert shard.reclaim().reclaimed == 0
    shard.clock.advance("1ms")
    assert shard.reclaim().reclaimed == 1


def test_a_retried_attempt(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retried()
    row = shard.take()
    assert shard.touch(row).stale == frozenset()
    assert shard.finish(row).stale == frozenset()


def test_a_retried_attempt_keeps_its_due_time(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take(), delay_ms=5_000)
    shard.clock.advance("5s")
    shard.move()
    row = shard.take()
    shard.touch(row)
    shard.release(row)
    assert shard.take().past == b"2|1|0|%d" % (START_MS + 5_000)


def test_it_resets_the_idle_time_and_counts_no_delivery(timed: Shard) -> None:
    timed.enqueue("long", "short")
    long, short = timed.claim().rows
    timed.touch(short, ttr_ms=10_000)
    timed.touch(long, ttr_ms=600_000)
    (_, owner, long_idle, deliveries), (_, _, short_idle, _) = timed.pending(timed.k.ready)
    assert (owner, deliveries) == (b"me", 1)
    assert long_idle < 10_000
    assert 50_000 <= short_idle < 60_000


def test_ended_claims_and_strangers_are_refused(shard: Shard) -> None:
    shard.enqueue("i", "j", "k")
    i, j, k = shard.claim().rows
    shard.finish(i)
    shard.retry(j, delay_ms=1000)
    assert shard.touch(i, j, k).stale == {0, 1}
    assert shard.state("j") == "delayed"
    assert shard.finish(k).stale == frozenset()


def test_a_claim_that_was_taken_over_is_refused(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.clock.advance("60s")
    shard.reclaim()
    assert shard.touch(row).stale == {0}
    again = shard.take(consumer="other")
    assert shard.touch(row).stale == {0}
    assert shard.touch(again).stale == frozenset()


def test_a_retried_attempt_keeps_its_due_time_and_a_first_one_has_none(shard: Shard) -> None:
    shard.enqueue("i", "j")
    first, second = shard.claim().rows
    shard.retry(second, delay_ms=1000)
    shard.clock.advance("1s")
    shard.move()
    second = shard.take()
    shard.touch(first, second)
    notes = [
        value.split(b"|", 9)[9] for value in shard.redis("HMGET", shard.k.progress, b"default\x1fi", b"default\x1fj")
    ]
    assert notes == [b"me", b"me|%d" % (START_MS + 1000)]


@pytest.mark.parametrize(
    ("place", "value"), [(0, b"w"), (4, b"0-1"), (6, b"0-1")], ids=["waits", "another-main", "another-entry"]
)
def test_a_claim_that_the_progress_does_not_name_is_refused(shard: Shard, place: int, value: bytes) -> None:
    """As after a failover that lost the claim: its entry was read again, and is pending."""
    shard.enqueue("j")
    row = shard.take()
    held = shard.redis("HGET", shard.k.progress, FIELD)
    parts = held.split(b"|")
    parts[place] = value
    shard.checked = False
    shard.redis("HSET", shard.k.progress, FIELD, b"|".join(parts))
    assert shard.touch(row).stale == {0}
    shard.redis("HDEL", shard.k.progress, FIELD)
    assert shard.touch(row).stale == {0}
    shard.redis("HSET", shard.k.progress, FIELD, held)
    assert shard.touch(row).stale == frozenset()


def test_a_claim_whose_entry_is_not_pending_is_refused(shard: Shard) -> None:
    """Another client has acknowledged it."""
    shard.enqueue("j")
    row = shard.take()
    main = row.parts()[0]
    shard.checked = False
    shard.redis("XACK", shard.k.ready, "default", main)
    assert shard.touch(row).stale == {0}
    shard.redis("XCLAIM", shard.k.ready, "default", "me", 0, main, "FORCE")
    assert shard.touch(row).stale == frozenset()
