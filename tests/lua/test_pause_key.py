"""pause_key: one key's jobs wait, and go on in the order in which they were to start."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.lua.shard import Shard


def pause(shard: Shard, key: str = "k") -> None:
    assert shard.call("pause_key", shard.settings, key, True) == 1


def resume(shard: Shard, key: str = "k") -> None:
    assert shard.call("pause_key", shard.settings, key, False) == 1


def claimed(shard: Shard) -> list[bytes]:
    shard.move()
    return [row.id for row in shard.claim().rows]


@pytest.mark.parametrize("moved", [True, False])
def test_no_attempt_starts_until_it_goes_on(shard: Shard, moved: bool) -> None:
    """Neither of what waits, nor of what is ready; other keys are not concerned."""
    shard.topic(key_concurrency=2)
    shard.enqueue("a", "b", "c", key="k")
    shard.enqueue("other", key="l")
    if moved:
        shard.move()
    pause(shard)
    shard.enqueue("d", key="k")
    assert claimed(shard) == [b"other"]
    assert shard.redis("ZCARD", shard.k.key_waiting) == 4
    pause(shard)
    resume(shard)
    assert claimed(shard) == [b"a", b"b"]
    resume(shard)


def test_what_runs_goes_on(two: Shard) -> None:
    two.topic(key_concurrency=1)
    two.enqueue("a", "b", key="k")
    two.move()
    row = two.take()
    pause(two)
    two.finish(row)
    assert claimed(two) == []
    two.move()
    assert two.claim(group="b").rows == []
    resume(two)
    assert claimed(two) == [b"b"]
    assert [row.id for row in two.claim(group="b").rows] == [b"a"]


def test_a_retry_keeps_its_place_in_the_order(shard: Shard) -> None:
    """Nor is its next attempt too late for having waited: the time in which it expires begins when it is due again."""
    shard.topic(key_order=True)
    shard.enqueue("a", key="k", expire="2s")
    shard.enqueue("b", key="k")
    shard.move()
    shard.retry(shard.take(), delay_ms=5000)
    pause(shard)
    shard.clock.advance(5)
    assert claimed(shard) == []
    resume(shard)
    shard.move()
    row = shard.take()
    assert (row.id, shard.attempt("a")) == (b"a", 2)
    shard.finish(row)
    assert claimed(shard) == [b"b"]


def test_what_was_ready_waits_and_comes_back_as_it_was(shard: Shard) -> None:
    """Also if it is cancelled, rescheduled or lost there."""
    shard.topic(key_concurrency=4)
    shard.enqueue("a", "b", "c", "d", key="k")
    shard.move()
    pause(shard)
    assert claimed(shard) == []
    assert shard.call("cancel", "a") == 1
    assert shard.call("reschedule", "b", "+9000") == 1
    resume(shard)
    assert claimed(shard) == [b"c", b"d"]
    shard.clock.advance(9)
    assert claimed(shard) == [b"b"]


def test_a_job_without_a_place_of_the_key_is_not_concerned(shard: Shard) -> None:
    shard.enqueue("before", key="k")
    shard.move()
    shard.topic(key_concurrency=1)
    pause(shard)
    assert claimed(shard) == [b"before"]


def test_many_places_are_given_step_by_step(shard: Shard) -> None:
    shard.topic(key_concurrency=120)
    pause(shard)
    for part in "ab":
        shard.enqueue(*(f"{part}{n}" for n in range(65)), key="k")
    assert shard.redis("ZCARD", shard.k.key_admitted) == 0
    shard.checked = False
    assert [shard.call("pause_key", shard.settings, "k", False) for _ in range(3)] == [0, 0, 1]
    shard.check()
    assert shard.redis("ZCARD", shard.k.key_admitted) == 120


def test_refused(shard: Shard) -> None:
    assert shard.call("pause_key", shard.settings, "k", True) == -1
    assert shard.call("pause_key", shard.settings, "k", False) == 1
    shard.topic(key_concurrency=1)
    other = shard.settings.model_copy(update={"shards": 7})
    assert shard.call("pause_key", other, "k", True) == -2
    shard.topic(key_concurrency=0)
    assert shard.call("pause_key", shard.settings, "k", True) == -1
    assert shard.redis("EXISTS", shard.k.key_paused) == 0


def test_a_kicked_job_that_is_held_back_expires_as_before(shard: Shard) -> None:
    """Its due time is that of the kick, not that of its record."""
    shard.topic(key_concurrency=1)
    shard.enqueue("j", key="k", expire="1m")
    shard.move()
    shard.bury(shard.take())
    shard.clock.advance("1h")
    shard.call("kick", "default", 0, ["j"])
    shard.move()
    pause(shard)
    assert claimed(shard) == []
    resume(shard)
    assert claimed(shard) == [b"j"]


def test_what_goes_on_keeps_the_pace(shard: Shard) -> None:
    shard.topic(key_rate="5/s")
    shard.enqueue("a", "b", key="k")
    assert claimed(shard) == [b"a"]
    pause(shard)
    shard.clock.advance(0.1)
    resume(shard)
    assert claimed(shard) == []
    shard.clock.advance(0.1)
    assert claimed(shard) == [b"b"]


def test_a_call_gives_about_a_hundred_places_and_each_group_one(shard: Shard) -> None:
    shard.topic(groups=["a", "b", "c"], key_concurrency=100)
    pause(shard)
    for part in "xy":
        shard.enqueue(*(f"{part}{n}" for n in range(30)), key="k")
    shard.checked = False
    left = []
    while not (done := shard.call("pause_key", shard.settings, "k", False)):
        waiting = Counter(ticket[:1] for ticket in shard.redis("ZRANGE", shard.k.key_waiting, 0, -1))
        left.append([waiting[group] for group in (b"a", b"b", b"c")])
    assert left == [[9, 9, 59], [0, 0, 8]]
    assert done == 1
    shard.check()


def test_if_the_caller_is_killed_each_group_gets_all_jobs_all_the_same(shard: Shard) -> None:
    shard.topic(groups=["a", "b", "c"], key_concurrency=100)
    pause(shard)
    for part in "xy":
        shard.enqueue(*(f"{part}{n}" for n in range(30)), key="k")
    shard.checked = False
    assert shard.call("pause_key", shard.settings, "k", False) == 0
    done = 0
    while shard.move().moved:
        for group in "abc":
            rows = shard.claim(200, group=group).rows
            shard.finish(*rows, group=group)
            done += len(rows)
    assert done == 180
    assert shard.empty()


def test_there_is_more_to_do_though_the_last_group_has_nothing(shard: Shard) -> None:
    shard.topic(groups=["a"], key_concurrency=100)
    pause(shard)
    shard.enqueue(*(f"j{n}" for n in range(60)), key="k")
    shard.topic(groups=["a", "b"])
    shard.checked = False
    assert shard.call("pause_key", shard.settings, "k", False) == 0
    assert shard.call("pause_key", shard.settings, "k", False) == 1
    assert shard.redis("ZCARD", shard.k.key_waiting) == 0
    shard.check()
