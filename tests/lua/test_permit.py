"""permit: how many jobs of a topic with a rate may get ready now."""

from __future__ import annotations

import pytest

from tests.lua.shard import START_MS, Shard


def permit(shard: Shard, wanted: int) -> tuple[int, int, int]:
    reply: tuple[int, int, int] = shard.run(shard.scripts.permit(shard.k, wanted))
    return reply


def grants_within(shard: Shard, ms: int, wanted: int = 500) -> list[tuple[int, int]]:
    """(when, how many), asked at each moment at which it is worth it."""
    end, grants = shard.clock.now_ms + ms, []
    while shard.clock.now_ms < end:
        granted, now_ms, free_ms = permit(shard, wanted)
        grants += [(now_ms, granted)] if granted else []
        shard.clock.now_ms = max(free_ms, now_ms + 1)
    return grants


def most_in_a_second(grants: list[tuple[int, int]]) -> int:
    return max(sum(count for at, count in grants if begin <= at < begin + 1000) for begin, _ in grants)


@pytest.mark.parametrize(("rate", "most"), [(0.5, 1), (1, 1), (2, 2), (2.5, 3), (3, 3), (19, 19), (20, 20), (200, 200)])
def test_no_second_has_more_than_the_rate(shard: Shard, rate: float, most: int) -> None:
    shard.topic(rate=rate)
    grants = grants_within(shard, 20_000)
    assert most_in_a_second(grants) == most
    assert 0.98 * rate * 20 <= sum(count for _, count in grants) <= rate * 20 + 1


def test_above_20_a_second_one_more_portion_may_fall_into_one(shard: Shard) -> None:
    """When few want permits, and then many."""
    shard.topic(rate=100)
    grants = grants_within(shard, 985, wanted=1) + grants_within(shard, 2_000)
    assert 100 < most_in_a_second(grants) <= 105


def test_nothing_is_saved_up(shard: Shard) -> None:
    shard.topic(rate=40)
    shard.clock.advance("1h")
    assert permit(shard, 500) == (2, START_MS + 3_600_000, START_MS + 3_600_050)
    assert permit(shard, 500) == (0, START_MS + 3_600_000, START_MS + 3_600_050)


def test_to_ask_for_nothing_costs_nothing(shard: Shard) -> None:
    shard.topic(rate=2)
    assert permit(shard, 0)[0] == 0
    assert shard.redis("HGET", shard.k.settings, "rate_at") is None
    assert permit(shard, 1) == (1, START_MS, START_MS + 500)
    assert permit(shard, 0) == (0, START_MS, START_MS + 500)


def test_the_next_is_granted_when_it_was_announced_and_no_earlier(shard: Shard) -> None:
    shard.topic(rate=2)
    permit(shard, 1)
    for late_ms, granted, free_ms in ((-1, 0, 500), (0, 1, 1000), (501, 1, 1501)):
        shard.clock.now_ms = START_MS + 500 + late_ms
        assert permit(shard, 1) == (granted, START_MS + 500 + late_ms, START_MS + free_ms)


def test_what_a_grant_waited_for_a_whole_millisecond_is_given_back(shard: Shard) -> None:
    shard.topic(rate=3)
    for ms in (0, 334, 667, 1000):
        assert permit(shard, 1)[:2] == (1, START_MS + ms)
        shard.clock.now_ms = permit(shard, 1)[2]


def test_without_a_rate_all_is_granted(shard: Shard) -> None:
    assert permit(shard, 500) == (500, START_MS, START_MS)
    shard.redis("DEL", shard.k.settings)
    assert permit(shard, 500) == (500, START_MS, START_MS), "nor while its settings are lost"


def test_a_clock_set_back_a_little_stalls_nothing(shard: Shard) -> None:
    shard.topic(rate=0.1)
    assert [permit(shard, 1)[0] for _ in range(2)] == [1, 0]
    shard.clock.now_ms -= 5
    assert permit(shard, 1)[0] == 1


def test_a_clock_set_back_and_a_faster_rate_stall_nothing(shard: Shard) -> None:
    shard.topic(rate=2)
    permit(shard, 1)
    shard.clock.now_ms -= 3_600_000
    assert permit(shard, 1)[0] == 1
    shard.topic(rate=0.001)
    shard.clock.advance("1s")
    assert permit(shard, 1)[0] == 1
    shard.topic(rate=10)
    assert permit(shard, 1)[0] == 1
