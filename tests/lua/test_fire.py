"""fire: occurrences become jobs the moment they are due, each once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamdq.job.job import NewJob
from streamdq.store.jobs.records import encode
from streamdq.store.replies import Written
from tests.lua.schedules import AGAIN_MS, LATE_MS, at, fire, look, stored, there, waiting, write
from tests.lua.shard import START_MS, Shard


def outcome(shard: Shard) -> tuple[int, int]:
    """How many were enqueued and skipped, by the shard's counters."""
    fired, skipped = shard.redis("HMGET", shard.k.counts, "fired", "skipped")
    return int(fired or 0), int(skipped or 0)


def test_what_is_due_becomes_a_job_once(shard: Shard) -> None:
    write(shard, stored(1_000, 2_000))
    assert fire(shard)[2:] == (START_MS + 1_000, 0, 0, [])
    shard.clock.now_ms += 1_000
    assert fire(shard) == (True, START_MS + 1_000, START_MS + 2_000, 1, 0, [])
    assert waiting(shard) == [("s@1000", 1_000)]
    assert fire(shard).fired == 0
    found = there(shard)
    assert (found.plan, found.last_ms, found.previous, found.totals) == (
        at(2_000),
        START_MS + 1_000,
        "s@1000",
        (1, 0, 0),
    )
    assert look(shard) == 2_000
    assert shard.move().moved == 1
    job = shard.job("s@1000")
    assert (job.body, job.due_ms, job.created_ms) == ("at T1000", START_MS + 1_000, START_MS + 1_000)
    shard.finish(shard.take())


def test_the_text_stands_wherever_the_body_names_it(shard: Shard) -> None:
    write(shard, stored(0, body={"a": ["{due}", "{due} {due}"], "{due}": "{other}", "%": "%1"}))
    fire(shard)
    job = shard.job("s@0")
    assert job.body == {"a": ["T0", "T0 T0"], "T0": "{other}", "%": "%1"}


def test_in_the_url_no_plus_means_a_space(shard: Shard) -> None:
    (occurrence,) = at(0)
    job = encode(NewJob("{due}\n+", url="https://x.example/{due}?at={due}"), 10**6).rest
    write(shard, stored(plan=[occurrence._replace(text="T0+02:00")], job=job))
    fire(shard)
    job_made = shard.job("s@0")
    assert job_made.url == "https://x.example/T0%2B02:00?at=T0%2B02:00"
    assert job_made.body == "T0+02:00\n+"


def test_without_a_next_one_it_has_ended(shard: Shard) -> None:
    write(shard, stored(0))
    assert fire(shard).next_ms == -1
    assert there(shard).state == "ended"
    assert look(shard) is None


def test_who_has_more_than_is_planned_asks_for_a_plan(shard: Shard) -> None:
    write(shard, stored(0, 1_000, 2_000, more=True))
    assert fire(shard).unplanned == []
    shard.clock.now_ms += 1_000
    assert fire(shard)[2:] == (START_MS + 2_000, 1, 0, ["s"]), "while one is left"
    shard.clock.now_ms += 1_000
    assert fire(shard)[2:] == (START_MS + 2_000 + AGAIN_MS, 1, 0, ["s"])
    assert there(shard).state == "active"
    shard.clock.now_ms += AGAIN_MS
    assert fire(shard).unplanned == ["s"], "until there is one"


def test_all_that_are_due_run_in_their_order(shard: Shard) -> None:
    write(shard, stored(0, 3, 5, 60_000))
    shard.clock.now_ms += 10
    assert fire(shard).fired == 3
    assert waiting(shard) == [("s@0", 0), ("s@3", 3), ("s@5", 5)]
    assert outcome(shard) == (3, 0)


def test_what_is_late_waits_for_a_decision(shard: Shard) -> None:
    write(shard, stored(0, 5, 60_000))
    shard.clock.now_ms += LATE_MS + 3
    assert fire(shard)[2:] == (START_MS + LATE_MS + 3 + AGAIN_MS, 0, 0, ["s"])
    assert waiting(shard) == []
    write(shard, replace(stored(5, 60_000, late_ms=START_MS + 5), version=there(shard).version), missed=1)
    shard.clock.now_ms += 10 * LATE_MS
    assert fire(shard)[2:] == (START_MS + 10 * LATE_MS + LATE_MS + 3 + AGAIN_MS, 1, 0, ["s"]), "the next one is late"
    assert waiting(shard) == [("s@5", 5)]


def test_exactly_as_late_as_is_allowed_is_in_time(shard: Shard) -> None:
    write(shard, stored(0))
    shard.clock.now_ms += LATE_MS
    assert fire(shard).fired == 1


def test_a_plan_for_another_number_of_shards_is_not_carried_out(shard: Shard) -> None:
    """Its jobs' ids may belong to other shards."""
    write(shard, stored(0, 60_000, shards=3))
    assert fire(shard)[3:] == (0, 0, ["s"])
    write(shard, replace(stored(0, 60_000), version=there(shard).version))
    assert fire(shard).fired == 1


def test_outdated_settings_are_refused(shard: Shard) -> None:
    write(shard, stored(0))
    assert fire(shard, shards=2) == (False, START_MS, -1, 0, 0, [])
    assert waiting(shard) == []
    assert look(shard) == 0


@pytest.mark.parametrize("overlap", ["skip", "queue", "allow"])
def test_overlap(shard: Shard, overlap: str) -> None:
    write(shard, stored(0, 1_000, 2_000, 3_000, 90_000, overlap=overlap))
    fire(shard)
    shard.move()
    row = shard.take()
    for _ in range(3):
        shard.clock.now_ms += 1_000
        fire(shard)
    expected = {"skip": [], "queue": [], "allow": [("s@1000", 1_000), ("s@2000", 2_000), ("s@3000", 3_000)]}
    assert waiting(shard) == expected[overlap]
    assert look(shard) == (3_000 + AGAIN_MS if overlap == "queue" else 90_000)
    shard.finish(row)
    shard.clock.now_ms += AGAIN_MS
    assert fire(shard).fired == (1 if overlap == "queue" else 0)
    if overlap == "queue":  # the one that came first
        assert waiting(shard) == [("s@1000", 1_000)]
        assert there(shard).held is None
    assert look(shard) == 90_000
    assert outcome(shard) == {"skip": (1, 3), "queue": (2, 2), "allow": (4, 0)}[overlap]
    assert there(shard).totals == (*outcome(shard), 0)


def test_overlap_with_one_that_waits_was_tried_or_is_dead(two: Shard) -> None:
    """Dead and done is ended, whatever group; anything else is not."""
    write(two, stored(0, 1, 2, 3, 4, 5, overlap="skip"))
    fire(two)

    def skips() -> bool:
        two.clock.now_ms += 1
        return fire(two).skipped == 1

    assert skips(), "it is delayed"
    two.move()
    assert skips(), "it is ready"
    two.bury(two.take())
    assert skips(), "it is ready for another group"
    two.retry(two.take(group="b"), group="b", delay_ms=1_000)
    assert skips(), "it waits for its next attempt"
    two.clock.now_ms += 1_000
    two.move()
    two.finish(two.take(group="b"), group="b")
    assert fire(two).fired == 1, "it is dead in one group and done in the other"


def test_a_queued_one_runs_after_the_last_of_the_plan(shard: Shard) -> None:
    write(shard, stored(0, 1_000, overlap="queue"))
    fire(shard)
    shard.clock.now_ms += 1_000
    assert fire(shard).next_ms == START_MS + 1_000 + AGAIN_MS
    assert there(shard).state == "active"
    shard.move()
    shard.finish(shard.take())
    shard.clock.now_ms += 10 * LATE_MS
    assert fire(shard)[2:] == (-1, 1, 0, [])
    assert waiting(shard) == [("s@1000", 1_000)]
    assert there(shard).state == "ended"


def test_a_taken_id_is_skipped(shard: Shard) -> None:
    shard.enqueue("s@0", delay=60)
    write(shard, stored(0, 90_000))
    assert fire(shard)[3:5] == (0, 1)
    assert outcome(shard) == (0, 1)
    assert there(shard).previous == ""


def test_a_call_does_a_bounded_amount_of_work(shard: Shard) -> None:
    for id in "abc":
        write(shard, stored(0, 1, 2, id=id), id)
    shard.clock.now_ms += 10
    assert fire(shard, limit=4)[2:4] == (START_MS, 4)
    assert fire(shard, limit=4)[2:4] == (START_MS + 2, 4)
    assert fire(shard, limit=4)[2:4] == (-1, 1)
    assert len(waiting(shard)) == 9


def test_large_bodies_are_taken_in_parts(shard: Shard) -> None:
    for id in "abcd":
        write(shard, stored(0, id=id, body="x" * 150_000), id)
    assert [fire(shard).fired for _ in range(4)] == [1, 1, 1, 1]
    assert int(shard.redis("HGET", shard.k.settings, "largest")) > 150_000


def test_what_a_call_has_no_room_for_is_not_touched(shard: Shard) -> None:
    for id in "ab":
        write(shard, stored(0, 90_000, id=id), id)
    fire(shard, limit=1)
    assert (there(shard, "a").version, there(shard, "b").version) == (2, 1)


def test_large_bodies_leave_others_untouched(shard: Shard) -> None:
    for id in "ab":
        write(shard, stored(0, 90_000, id=id, body="x" * 300_000), id)
    fire(shard)
    assert (there(shard, "a").version, there(shard, "b").version) == (2, 1)


def test_skipped_ones_count_as_work(shard: Shard) -> None:
    for id in "ab":
        write(shard, stored(*range(10), id=id, overlap="skip"), id)
    shard.clock.now_ms += 20
    assert fire(shard, limit=4)[3:5] == (1, 3)
    assert there(shard, "b").version == 1


def test_one_that_is_not_worked_off_needs_no_plan_yet(shard: Shard) -> None:
    write(shard, stored(0, 1, 2, 90_000, more=True))
    shard.clock.now_ms += 10
    assert fire(shard, limit=2)[2:] == (START_MS + 2, 2, 0, [])


def test_one_that_comes_before_the_next_look_at_what_waits(shard: Shard) -> None:
    write(shard, stored(0, 1_000, 1_500, overlap="queue"))
    fire(shard)
    shard.move()
    shard.take()
    shard.clock.now_ms += 1_000
    assert fire(shard)[2:] == (START_MS + 1_500, 0, 0, [])
    assert there(shard).held == at(1_000)[0]


def test_it_wakes_the_mover_only_for_what_is_earlier_than_all_others(shard: Shard) -> None:
    write(shard, stored(3), "late")
    write(shard, stored(1), "early")
    write(shard, stored(2), "between")
    shard.clock.now_ms += 10
    assert fire(shard).fired == 3
    assert shard.wakeup_ms() == START_MS + 1
    first = shard.last_wakeup()
    write(shard, stored(20, 30, id="u"), "u", ahead_ms=100)
    looked = shard.last_wakeup()
    fire(shard, ahead_ms=100)
    assert shard.last_wakeup() == looked != first, "others are due before"


def test_it_wakes_the_mover_for_a_job_that_goes_ahead_of_those_that_wait(shard: Shard) -> None:
    shard.enqueue("far", delay=60)
    write(shard, stored(5_000), ahead_ms=10_000)
    before = shard.last_wakeup()
    fire(shard, ahead_ms=10_000)
    assert shard.last_wakeup() != before
    assert shard.wakeup_ms() == START_MS + 5_000


def test_the_largest_record_stays_the_largest(shard: Shard) -> None:
    shard.redis("HSET", shard.k.settings, "largest", 99_999)
    write(shard, stored(0))
    fire(shard)
    assert shard.redis("HGET", shard.k.settings, "largest") == b"99999"


def test_each_look_that_finds_something_is_a_version(shard: Shard) -> None:
    write(shard, stored(0, 90_000))
    fire(shard)
    assert there(shard).version == 2


def test_a_job_that_only_a_leaving_group_has_is_no_predecessor(shard: Shard) -> None:
    write(shard, stored(0, 1_000, 90_000, overlap="skip"))
    fire(shard)
    shard.move()
    shard.retry(shard.take(), delay_ms=60_000)
    shard.topic(groups=["default", "b"])
    shard.begin_to_leave("default")
    shard.clock.now_ms += 1_000
    assert fire(shard).fired == 1


def test_it_wakes_the_mover_for_the_earliest_whatever_was_looked_at_first(shard: Shard) -> None:
    write(shard, stored(5, id="a"), "a", ahead_ms=10)
    write(shard, stored(3, id="b"), "b")
    shard.clock.now_ms += 10
    assert fire(shard).fired == 2
    assert shard.wakeup_ms() == START_MS + 3


def test_a_schedule_that_another_client_deleted_is_forgotten(shard: Shard) -> None:
    write(shard, stored(0))
    shard.redis("HDEL", shard.k.schedules, "s")
    assert fire(shard).next_ms == -1
    assert look(shard) is None


def test_who_read_it_before_changes_nothing(shard: Shard) -> None:
    write(shard, stored(0, 1_000))
    before = there(shard)
    fire(shard)
    assert write(shard, before) is Written.CHANGED_MEANWHILE
    assert there(shard).plan == at(1_000)


def test_large_occurrences_of_one_schedule_are_taken_in_parts(shard: Shard) -> None:
    write(shard, stored(*range(10), body="x" * 150_000))
    shard.clock.now_ms += 10
    first = fire(shard)
    assert 0 < first.fired < 5
    assert first.next_ms <= first.now_ms
    while (again := fire(shard)).next_ms >= 0:
        assert 0 < again.fired < 5
    assert len(waiting(shard)) == 10


def test_one_that_waits_is_not_enqueued_with_the_id_for_another_number_of_shards(shard: Shard) -> None:
    held = at(0)[0]
    write(shard, stored(60_000, overlap="queue", shards=3, held=held))
    assert fire(shard)[3:] == (0, 0, ["s"])
    write(shard, replace(stored(60_000, overlap="queue", held=held), version=there(shard).version))
    assert fire(shard).fired == 1
