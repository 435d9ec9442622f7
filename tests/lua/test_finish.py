"""finish: running -> done, a batch of one group's claims."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq.config import MAX_BATCH
from streamdq.store.replies import ClaimedRow, Refused
from tests.lua.shard import START_MS, Shard


def test_a_batch_leaves_nothing_behind(shard: Shard) -> None:
    shard.enqueue("i", "j", "k")
    rows = shard.claim().rows
    assert shard.finish(*rows) == (START_MS, frozenset(), frozenset())
    assert shard.empty()
    assert shard.counts == {"enqueued": 3, "done:default": 3}
    assert shard.history() == [[f"row of {id}", str(START_MS)] for id in "ijk"]


def test_the_record_stays_until_the_last_group_is_through(two: Shard) -> None:
    two.enqueue("j")
    first, second = two.take("a"), two.take("b")
    two.finish(first, group="a")
    assert (two.state("j", "a"), two.state("j", "b")) == ("done", "running")
    assert two.counts == {"enqueued": 1, "done:a": 1, "running:b": 1}
    two.finish(second, group="b")
    assert two.empty()
    assert two.counts == {"enqueued": 1, "done:a": 1, "done:b": 1}


def test_a_retried_attempt_of_one_group_ends_after_the_other_group_did(two: Shard) -> None:
    two.enqueue("j")
    two.retry(two.take("a"))
    two.finish(two.take("b"), group="b")
    two.move()
    row = two.take("a")
    assert row.entry != b""
    assert row.main != b"-"
    two.finish(row)
    assert two.empty()


def test_a_retried_attempt_of_a_single_group(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take())
    assert shard.entries(shard.k.ready) == []
    shard.move()
    shard.finish(shard.take())
    assert shard.empty()
    assert shard.counts == {"enqueued": 1, "moved": 1, "done:default": 1, "retried:default": 1}


def test_twice_is_refused_and_changes_nothing(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.finish(row)
    before = shard.counts
    assert shard.finish(row).stale == {0}
    assert shard.counts == before
    assert len(shard.history()) == 1


def test_a_batch_with_one_that_was_taken_over(shard: Shard) -> None:
    shard.enqueue("short", ttr="1s")
    shard.enqueue("i", "j")
    short, i, j = shard.claim().rows
    shard.clock.advance("2s")
    assert shard.reclaim().reclaimed == 1
    assert shard.finish(i, short, j).stale == {1}
    assert (shard.state("short"), shard.state("i"), shard.state("j")) == ("ready", "gone", "gone")
    again = shard.claim(consumer="other").rows
    assert shard.finish(short).stale == {0}
    assert shard.finish(*again).stale == frozenset()
    assert shard.empty()


def test_the_same_claim_twice_in_one_batch_counts_once(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    assert len(shard.finish(row, row).stale) == 1
    assert shard.counts["done:default"] == 1


def test_a_claim_that_was_taken_over_and_its_own_successor_in_one_batch(shard: Shard) -> None:
    """A consumer whose handler ran over the TTR may get the job again, and end both attempts at once."""
    shard.enqueue("j")
    old = shard.take()
    shard.clock.advance("60s")
    shard.reclaim()
    new = shard.take()
    assert shard.finish(old, new).stale == {0}
    assert shard.empty()


def test_the_claim_of_another_group_is_refused(two: Shard) -> None:
    two.enqueue("j")
    row = two.take("a")
    assert two.finish(row, group="b").stale == {0}
    assert two.state("j", "a") == "running"


def test_a_large_batch_takes_off_what_lies_below_the_oldest_running_job(shard: Shard) -> None:
    shard.enqueue(*(f"i{n:03}" for n in range(131)))
    rows = shard.claim(130).rows
    shard.finish(*rows[:60])
    assert len(shard.entries(shard.k.ready)) == 71
    shard.finish(*rows[65:125])  # five older ones still run: what overtook them stays a while
    assert len(shard.entries(shard.k.ready)) == 71
    shard.finish(*rows[60:65])
    assert len(shard.entries(shard.k.ready)) == 6
    shard.finish(*rows[125:])
    assert len(shard.entries(shard.k.ready)) == 1, "what was not delivered yet"
    shard.finish(shard.take())
    assert shard.empty()
    assert shard.counts == {"enqueued": 131, "done:default": 131}


@pytest.mark.parametrize("end", ["finish", "bury"])
def test_what_overtook_the_last_running_job_goes_with_it(shard: Shard, end: str) -> None:
    shard.enqueue(*(f"i{n:03}" for n in range(61)))
    slow, *others = shard.claim(61).rows
    shard.finish(*others)
    assert len(shard.entries(shard.k.ready)) == 61
    getattr(shard, end)(slow)
    assert shard.entries(shard.k.ready) == []


def test_what_overtakes_a_slow_job_is_bounded(shard: Shard) -> None:
    shard.enqueue(*(f"i{n:03}" for n in range(61)))
    slow, *others = shard.claim(61).rows
    shard.redis("HSET", shard.k.settings, "overtaken", 10_000 - 59)
    shard.finish(*others)
    assert len(shard.entries(shard.k.ready)) == 1, "from then on each is deleted"
    assert shard.redis("HGET", shard.k.settings, "overtaken") == b"9941"
    shard.finish(slow)
    assert shard.empty()
    assert not shard.redis("HEXISTS", shard.k.settings, "overtaken")


def test_once_many_overtook_a_slow_job_each_that_ends_is_deleted(shard: Shard) -> None:
    shard.enqueue("slow", "j")
    _, row = shard.claim().rows
    shard.redis("HSET", shard.k.settings, "overtaken", 10_000)
    shard.finish(row)
    assert [member[12:] for member in shard.entries(shard.k.ready)] == [b"slow"]
    assert shard.redis("HGET", shard.k.settings, "overtaken") == b"10000"


def test_entries_kept_for_a_second_group_outlast_it(two: Shard) -> None:
    two.enqueue("kept", *(f"i{n:03}" for n in range(61)))
    rows = two.claim(62, "a").rows
    two.retry(rows[0], group="a")
    two.topic(groups=["a"])
    two.finish(*rows[1:61], group="a")
    # One runs; the other waits for its retry, and a new group may still want it.
    assert len(two.entries(two.k.ready)) == 2
    two.topic(groups=["a", "c"])
    assert [row.id for row in two.claim(9, "c").rows] == [b"kept", b"i060"]


@pytest.mark.parametrize(("ended", "left"), [(1, [b"i00"]), (49, [b"i00"]), (50, None)])
def test_few_that_overtake_a_slow_job_are_deleted_and_of_many_it_is_noted_how_many_stay(
    shard: Shard, ended: int, left: list[bytes] | None
) -> None:
    ids = [f"i{n:02}" for n in range(ended + 1)]
    shard.enqueue(*ids)
    _, *others = shard.claim(100).rows
    shard.finish(*others)
    assert [member[12:] for member in shard.entries(shard.k.ready)] == (left or [id.encode() for id in ids])
    overtaken = shard.redis("HGET", shard.k.settings, "overtaken")
    assert overtaken == (None if left else b"%d" % ended)


@pytest.mark.parametrize("two", [False, True])
def test_a_single_one_that_overtook_another_goes_with_it(shard: Shard, two: bool) -> None:
    shard.enqueue(*(f"i{n:02}" for n in range(52)))
    rows = shard.claim(51 + two).rows
    shard.finish(*rows[:49], rows[50])
    assert shard.redis("HGET", shard.k.settings, "overtaken") == b"1"
    if two:
        shard.finish(rows[51])
        assert shard.redis("HGET", shard.k.settings, "overtaken") == b"2"
    shard.finish(rows[49])
    if not two:
        assert not shard.redis("HEXISTS", shard.k.settings, "overtaken")
        shard.finish(shard.take())
    assert shard.entries(shard.k.ready) == []
    assert not shard.redis("HEXISTS", shard.k.settings, "overtaken")


def receipts_of(shard: Shard) -> dict[str, int]:
    flat = shard.redis("ZRANGE", shard.k.receipts, 0, -1, "WITHSCORES")
    return {claim.decode(): int(float(at)) for claim, at in zip(flat[::2], flat[1::2], strict=True)}


def finish_with_receipt(shard: Shard, row: ClaimedRow) -> Refused:
    claim = [row.main, row.entry, row.id.decode(), "row"]
    refused: Refused = shard.run(
        shard.scripts.finish(shard.k, "default", shard.generation("default"), "me", claim, receipts=True)
    )
    return refused


def has_receipt(shard: Shard, row: ClaimedRow, group: str = "default") -> bool:
    return shard.run(shard.scripts.ended(shard.k, group, row.main, row.entry)) == "done"


def test_a_receipt_is_left_where_it_is_wanted_and_the_claim_was_held(shard: Shard) -> None:
    shard.enqueue("i", "j", "k")
    first, second, third = shard.claim().rows
    shard.finish(first)
    assert not shard.redis("EXISTS", shard.k.receipts)
    assert finish_with_receipt(shard, first).stale == {0}
    assert not has_receipt(shard, first)
    assert finish_with_receipt(shard, second).stale == frozenset()
    assert [has_receipt(shard, row) for row in (first, second, third)] == [False, True, False]
    assert not has_receipt(shard, second, "other")
    assert finish_with_receipt(shard, second).stale == {0}
    assert list(receipts_of(shard).values()) == [START_MS]
    assert 0 < shard.redis("PTTL", shard.k.receipts) <= 600_000


def test_a_retried_attempt_has_a_receipt_of_its_own(shard: Shard) -> None:
    shard.enqueue("j")
    first = shard.take()
    shard.retry(first)
    shard.move()
    second = shard.take()
    finish_with_receipt(shard, second)
    assert (has_receipt(shard, first), has_receipt(shard, second)) == (False, True)


@pytest.mark.parametrize(
    ("script", "more", "ended"),
    [
        ("retry", [1000, 1, "Oops", ""], "retry"),
        ("retry", [1000, -1, "later", ""], "snoozed"),
        ("bury", ["buried", "Oops", ""], "dead"),
        ("release", [], "released"),
    ],
)
def test_each_end_leaves_a_receipt_of_its_own(shard: Shard, script: str, more: list[Any], ended: str) -> None:
    shard.enqueue("i", "j")
    first, second = shard.claim().rows
    for row, receipts in ((first, True), (second, False)):
        claim = [row.main, row.entry, row.id.decode(), "row", *more]
        end = getattr(shard.scripts, script)
        for stale in ([], [0]):
            refused = shard.run(end(shard.k, "default", shard.generation("default"), "me", claim, receipts))
            assert list(refused.stale) == stale
    assert shard.run(shard.scripts.ended(shard.k, "default", first.main, first.entry)) == ended
    assert shard.run(shard.scripts.ended(shard.k, "default", second.main, second.entry)) is None
    assert len(receipts_of(shard)) == 1


def test_old_receipts_go_and_there_are_ten_thousand_at_most(shard: Shard) -> None:
    shard.redis("ZADD", shard.k.receipts, *[v for n in range(11) for v in (START_MS - 600_000, f"old-{n}")])
    shard.enqueue("i", "j", "k")
    first, second, third = shard.claim().rows
    for row in (first, second):
        finish_with_receipt(shard, row)
        assert len(receipts_of(shard)) == 2
    assert [has_receipt(shard, row) for row in (first, second)] == [True, True]
    shard.redis("ZADD", shard.k.receipts, *[v for n in range(10_000) for v in (START_MS - 1, f"new-{n}")])
    finish_with_receipt(shard, third)
    assert len(receipts_of(shard)) == 10_000
    assert has_receipt(shard, third)


def test_a_batch_by_the_last_of_many_groups_leaves_nothing_behind(shard: Shard) -> None:
    groups = [f"g{n:02}" for n in range(40)]
    shard.topic(groups=groups)
    shard.checked = False  # an audit after each of so many steps
    ids = [f"j{n}" for n in range(150)]
    shard.enqueue(*ids)
    for group in groups[1:]:
        shard.finish(*shard.claim(count=200, group=group).rows, group=group)
    rows = shard.claim(count=200, group="g00").rows
    assert shard.redis("HLEN", shard.k.progress) == len(groups) * shard.redis("HLEN", shard.k.jobs) == 40 * len(ids)
    shard.finish(*rows[1:], group="g00")  # 6000 fields: more than Lua hands on at once
    assert shard.redis("HKEYS", shard.k.jobs) == [rows[0].id]
    assert shard.redis("HLEN", shard.k.progress) == len(groups)
    shard.finish(rows[0], group="g00")
    assert shard.empty()
    assert shard.counts == {"enqueued": 150} | {f"done:{group}": 150 for group in groups}
    shard.check()


def test_as_many_jobs_as_one_call_takes_end_for_one_of_many_groups(shard: Shard) -> None:
    """Lua can pass no more than 8,000 values at once: fewer than there are progresses to look at."""
    shard.checked = False
    shard.topic(groups=[f"g{n:02}" for n in range(17)])
    shard.enqueue(*(f"j{n}" for n in range(MAX_BATCH)))
    rows = shard.claim(MAX_BATCH, group="g00").rows
    assert len(rows) * 17 > 8_000
    assert shard.finish(*rows, group="g00").stale == frozenset()
    assert shard.redis("HLEN", shard.k.progress) == shard.counts["done:g00"] == MAX_BATCH
