"""The fence: a worker that ends an attempt must hold its claim, and an entry is acknowledged only with its claim."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamdq.store.replies import ClaimedRow, Refused
from tests.lua.shard import Shard

ENDS = [Shard.finish, Shard.retry, Shard.bury, Shard.release]


def lose_claim(shard: Shard, row: ClaimedRow) -> None:
    """Redis loses a claim, as in a failover: the entry is to be delivered again."""
    with_group = shard.k.ready, "default"
    shard.redis("HDEL", shard.k.progress, b"default\x1f" + row.id)
    shard.redis("HINCRBY", shard.k.counts, "running:default", -1)
    shard.redis("HINCRBY", shard.k.counts, "ready:default", 1)
    shard.redis("XACK", *with_group, row.main)
    before = f"{int(row.main.partition(b'-')[0]) - 1}-0"
    shard.redis("XGROUP", "SETID", *with_group, before)


def read_again(shard: Shard) -> None:
    shard.redis("XREADGROUP", "GROUP", "default", "me", "COUNT", 1, "STREAMS", shard.k.ready, ">")


@pytest.mark.parametrize("others", [0, 2], ids=["alone", "in a batch"])
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_an_entry_that_was_read_again_stays_pending(shard: Shard, end: Callable[..., Refused], others: int) -> None:
    """A stale outcome does not acknowledge it: nobody would ever claim it."""
    shard.enqueue("j", *(f"other{n}" for n in range(others)))
    row, *rest = shard.claim().rows
    lose_claim(shard, row)
    read_again(shard)
    assert end(shard, *rest, row).stale == {others}
    assert [entry for entry, *_ in shard.pending(shard.k.ready)] == [row.main]
    assert shard.state("j") == "ready"
    assert shard.counts.get("running:default", 0) == 0


@pytest.mark.parametrize("others", [0, 2], ids=["alone", "in a batch"])
@pytest.mark.parametrize("end", [*ENDS, Shard.touch], ids=lambda end: end.__name__)
def test_the_same_entry_claimed_by_another_is_the_other_s(
    shard: Shard, end: Callable[..., Refused], others: int
) -> None:
    """Otherwise what the other completes could become a dead letter."""
    shard.enqueue("j", *(f"other{n}" for n in range(others)))
    row, *rest = shard.claim().rows
    lose_claim(shard, row)
    (again,) = shard.claim(1, consumer="another").rows
    assert again.main == row.main
    assert end(shard, *rest, row, consumer="me").stale == {others}
    assert shard.state("j") == "running"
    assert shard.touch(again).stale == frozenset()
    assert shard.finish(again).stale == frozenset()
    assert shard.state("j") == "gone"


def test_on_a_retry_the_consumer_counts_as_well(shard: Shard) -> None:
    """Its progress notes when it was due behind the consumer."""
    shard.enqueue("j")
    shard.retried()
    row = shard.take(consumer="another")
    assert row.entry
    assert shard.finish(row, consumer="me").stale == {0}
    assert shard.finish(row, consumer="other").stale == {0}
    assert shard.finish(row).stale == frozenset()


@pytest.mark.parametrize("end", [*ENDS, Shard.touch], ids=lambda end: end.__name__)
def test_a_claim_that_passed_is_not_the_next_one_of_the_same_consumer(two: Shard, end: Callable[..., Refused]) -> None:
    """The job is still in the shared stream, for the other group; only the entry it was claimed from is another."""
    two.enqueue("j")
    first = two.take()
    two.clock.advance("60s")
    two.reclaim()
    second = two.take()
    assert (second.main, second.entry != first.entry) == (first.main, True)
    assert end(two, first).stale == {0}
    assert two.finish(second).stale == frozenset()


@pytest.mark.parametrize("end", [*ENDS, Shard.touch], ids=lambda end: end.__name__)
def test_a_claim_of_a_job_that_has_ended_is_not_one_of_the_next_job_with_its_id(
    shard: Shard, end: Callable[..., Refused]
) -> None:
    shard.enqueue("j")
    first = shard.take()
    shard.finish(first)
    shard.enqueue("j")
    second = shard.take()
    assert (second.entry, second.main != first.main) == (first.entry, True)
    assert end(shard, first, consumer="me").stale == {0}
    assert shard.finish(second).stale == frozenset()
