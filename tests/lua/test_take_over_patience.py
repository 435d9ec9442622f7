"""take_over gives a job's consumers more time to send a heartbeat, the more often it was lost with one: perhaps they
live, and the job itself keeps them from it.
"""

from __future__ import annotations

import pytest

from tests.lua.shard import Shard


def lose(shard: Shard, times: int) -> None:
    """The job is lost so often in a row, each time with another consumer."""
    for number in range(times):
        consumer = f"gone-{number}"
        (row,) = shard.claim(1, consumer=consumer).rows
        shard.clock.advance("1h")
        assert shard.take_over(consumer).taken == 1
        shard.clock.advance("10s")  # it is held back from the second time on
        shard.move()
        assert shard.finish(row, consumer=consumer).stale == {0}


@pytest.mark.parametrize(("lost", "silent_ms"), [(0, 3_000), (1, 6_000), (2, 12_000), (3, 24_000)])
def test_each_time_it_takes_twice_as_long(shard: Shard, lost: int, silent_ms: int) -> None:
    shard.enqueue("j", ttr="2h")
    lose(shard, lost)
    shard.claim(1)
    shard.clock.advance(f"{silent_ms - 1}ms")
    assert shard.take_over().taken == 0
    shard.clock.advance("1ms")
    assert shard.take_over().taken == 1


def test_before_it_would_be_buried_its_ttr_decides(shard: Shard) -> None:
    shard.enqueue("j", ttr="2h")
    lose(shard, shard.settings.max_deliveries - 1)
    (row,) = shard.claim(1).rows
    shard.clock.advance("7199s")
    for limit in (1, 100):
        assert shard.take_over(limit=limit) == (0, 0, 0, 0), "and nobody is asked to look again soon"
    assert shard.finish(row).stale == frozenset(), "its consumer was only silent"
    assert shard.empty()


def test_that_is_so_if_one_loss_is_enough(shard: Shard) -> None:
    shard.topic(max_deliveries=1)
    shard.enqueue("j", ttr="2h")
    (row,) = shard.claim(1).rows
    shard.clock.advance("1h")
    assert shard.take_over().taken == 0
    assert shard.finish(row).stale == frozenset()


def test_what_was_claimed_ahead_is_never_buried_for_it_and_goes_at_once(shard: Shard) -> None:
    shard.topic(max_deliveries=1)
    shard.enqueue("j", ttr="2h")
    shard.claim(1, at_once=0)
    shard.clock.advance("3s")
    assert shard.take_over().taken == 1
    (again,) = shard.claim(1, consumer="other").rows
    assert again.past == b"1|0|0|", "no crash"
