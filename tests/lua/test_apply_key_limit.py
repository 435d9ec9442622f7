"""apply_key_limit: a changed limit of keys is applied to the jobs that wait for their keys."""

from __future__ import annotations

import pytest

from tests.lua.shard import Shard


def waiting(shard: Shard) -> int:
    return shard.redis("ZCARD", shard.k.key_waiting)


def test_a_higher_limit_lets_more_out(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    for key in ("a", "b"):
        shard.enqueue(*(f"{key}{n}" for n in range(5)), key=key)
    assert waiting(shard) == 8
    shard.topic(key_concurrency=3)
    assert waiting(shard) == 4
    shard.move()
    assert len(shard.claim().rows) == 6


def test_without_a_limit_all_jobs_are_admitted(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    for part in "jk":
        shard.enqueue(*(f"{part}{n}" for n in range(60)), key="a")
    shard.enqueue(*(f"l{n}" for n in range(30)), key="b", delay="1h")
    assert waiting(shard) == 148
    shard.topic(key_concurrency=0)
    assert waiting(shard) == 0
    shard.move()
    assert len(shard.claim(count=200).rows) == 120
    shard.enqueue("more", key="a")
    assert waiting(shard) == 0


def test_a_lower_limit_takes_places_from_what_is_not_due(shard: Shard) -> None:
    shard.topic(key_concurrency=60)
    shard.enqueue(*(f"j{n}" for n in range(58)), key="a", delay="1h")
    shard.enqueue("due", key="a")
    shard.topic(key_concurrency=2)
    assert waiting(shard) == 57
    shard.move()
    (row,) = shard.claim().rows
    assert row.id == b"due"


def test_a_step_goes_on_where_the_last_one_ended(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    for n in range(6):
        shard.enqueue(f"a{n}", f"b{n}", key=f"key {n}")
    shard.checked = False
    shard.redis("HSET", shard.k.settings, "key_limit", 2, "limit_applied_to", "")
    steps = 0
    while shard.run(shard.scripts.apply_key_limit(shard.k, 2)):
        steps += 1
    assert steps == 3
    assert waiting(shard) == 0
    assert shard.redis("HEXISTS", shard.k.settings, "limit_applied_to") == 0
    assert shard.run(shard.scripts.apply_key_limit(shard.k, 2)) is False
    shard.check()


@pytest.mark.parametrize("limit", [0, 3])
def test_the_process_that_changes_it_is_killed_and_another_goes_on(shard: Shard, limit: int) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("a", "b", "c", key="k")
    shard.redis("HSET", shard.k.settings, "key_limit", limit, "limit_applied_to", "")
    shard.topic(key_concurrency=limit)
    assert waiting(shard) == 0


@pytest.mark.thorough
def test_a_step_gives_a_hundred_places_at_most(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    for n in range(110):
        shard.enqueue(f"a{n}", f"b{n}", key=f"key {n}")
    shard.checked = False
    shard.redis("HSET", shard.k.settings, "key_limit", 2, "limit_applied_to", "")
    left = []
    while shard.run(shard.scripts.apply_key_limit(shard.k, 500)):
        left.append(waiting(shard))
    assert left == [10]
    assert waiting(shard) == 0


def test_what_is_due_keeps_its_place_if_nobody_moved_it(shard: Shard) -> None:
    shard.topic(key_concurrency=2)
    shard.enqueue("a", "b", key="k", delay="1s")
    shard.clock.advance("1s")
    shard.topic(key_concurrency=1)
    assert waiting(shard) == 0


def test_removing_a_limit_leaves_alone_what_has_a_place(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("a", key="k", delay="1h")
    shard.checked = False
    shard.redis("HSET", shard.k.settings, "key_limit", 0, "limit_applied_to", "")
    shard.redis("XTRIM", shard.k.wake, "MAXLEN", 0)
    assert shard.run(shard.scripts.apply_key_limit(shard.k, 10)) is False
    assert shard.wakeup_ms() is None


@pytest.mark.parametrize(("delay", "kept"), [("1h", 2), (0, 120)])
def test_of_many_places_all_are_taken_away_that_can_be(shard: Shard, delay: str | int, kept: int) -> None:
    """Those of jobs that are due can't; then it ends all the same."""
    shard.topic(key_concurrency=120)
    for part in "ab":
        shard.enqueue(*(f"{part}{n}" for n in range(60)), key="k", delay=delay)
    shard.checked = False
    shard.redis("HSET", shard.k.settings, "key_limit", 2, "limit_applied_to", "")
    steps = 1
    while shard.run(shard.scripts.apply_key_limit(shard.k, 1)):
        steps += 1
        assert steps < 10
    assert waiting(shard) == 120 - kept
