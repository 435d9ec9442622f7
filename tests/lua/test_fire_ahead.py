"""fire: jobs of occurrences are enqueued before they are due."""

from __future__ import annotations

import pytest

from tests.lua.schedules import AGAIN_MS, LATE_MS, at, fire, look, stored, there, waiting, write
from tests.lua.shard import START_MS, Shard

AHEAD_MS = 10_000


def test_a_job_is_in_the_bucket_before_it_is_due(shard: Shard) -> None:
    write(shard, stored(AHEAD_MS + 1, 90_000), ahead_ms=AHEAD_MS)
    assert look(shard) == 1
    assert fire(shard, ahead_ms=AHEAD_MS)[2:] == (START_MS + 1, 0, 0, []), "a millisecond too soon"
    shard.clock.now_ms += 1
    assert fire(shard, ahead_ms=AHEAD_MS)[2:] == (START_MS + 80_000, 1, 0, [])
    assert waiting(shard) == [(f"s@{AHEAD_MS + 1}", AHEAD_MS + 1)]
    assert shard.move().moved == 0
    found = there(shard)
    assert (found.ahead, found.previous, found.plan) == (at(AHEAD_MS + 1)[0], "", at(90_000))
    assert found.totals == (1, 0, 0)
    assert found.last_ms == START_MS + AHEAD_MS + 1


def test_seen_before_it_is_due_it_is_an_occurrence_to_come(shard: Shard) -> None:
    write(shard, stored(5_000), ahead_ms=AHEAD_MS)
    fire(shard, ahead_ms=AHEAD_MS)
    found = there(shard)
    assert found.state == "ended", "none follows"
    early, late = found.seen_at(START_MS + 4_999), found.seen_at(START_MS + 5_000)
    assert (early.state, early.plan, early.previous, early.totals) == ("active", at(5_000), "", (0, 0, 0))
    assert (late.state, late.plan, late.previous, late.totals) == ("ended", [], "s@5000", (1, 0, 0))
    assert late.seen_at(START_MS) is late


def test_one_is_ahead_at_a_time(shard: Shard) -> None:
    write(shard, stored(1_000, 2_000, 3_000), ahead_ms=AHEAD_MS)
    assert fire(shard, ahead_ms=AHEAD_MS)[2:4] == (START_MS + 1_000, 1)
    shard.clock.now_ms += 999
    assert fire(shard, ahead_ms=AHEAD_MS).fired == 0
    shard.clock.now_ms += 1
    assert fire(shard, ahead_ms=AHEAD_MS)[2:4] == (START_MS + 2_000, 1)
    assert waiting(shard) == [("s@1000", 1_000), ("s@2000", 2_000)]
    assert there(shard).previous == "s@1000"


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_one_that_may_have_to_wait_is_decided_when_it_is_due(shard: Shard, overlap: str) -> None:
    write(shard, stored(0, 1_000, 90_000, overlap=overlap))
    assert fire(shard, ahead_ms=AHEAD_MS)[2:] == (START_MS + 1_000, 1, 0, []), "the first may still run by then"
    shard.move()
    row = shard.take()
    shard.clock.now_ms += 999
    assert fire(shard, ahead_ms=AHEAD_MS)[2:] == (START_MS + 1_000, 0, 0, [])
    shard.finish(row)
    shard.clock.now_ms += 1
    assert fire(shard, ahead_ms=AHEAD_MS)[2:5] == (START_MS + 80_000, 1, 0)
    assert waiting(shard) == [("s@1000", 1_000)]
    assert there(shard).previous == "s@1000"


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_one_whose_predecessor_has_ended_goes_ahead(shard: Shard, overlap: str) -> None:
    write(shard, stored(0, 1_000, overlap=overlap))
    fire(shard)
    shard.move()
    shard.finish(shard.take())
    assert fire(shard, ahead_ms=AHEAD_MS).fired == 0, "it was to be looked at when it is due"
    write(shard, there(shard), ahead_ms=AHEAD_MS)
    assert fire(shard, ahead_ms=AHEAD_MS).fired == 1
    assert there(shard).ahead == at(1_000)[0]


def test_none_goes_ahead_of_one_that_waits(shard: Shard) -> None:
    write(shard, stored(0, 1_000, 5_000, overlap="queue"))
    fire(shard)
    shard.move()
    shard.take()
    shard.clock.now_ms += 1_000
    assert fire(shard, ahead_ms=AHEAD_MS)[2:4] == (START_MS + 1_000 + AGAIN_MS, 0)
    assert (there(shard).held, there(shard).plan) == (at(1_000)[0], at(5_000))


def test_what_is_ahead_counts_as_the_predecessor_once_it_is_due(shard: Shard) -> None:
    write(shard, stored(1_000, 2_000, overlap="skip"), ahead_ms=AHEAD_MS)
    assert fire(shard, ahead_ms=AHEAD_MS).fired == 1
    shard.clock.now_ms += 2_000
    assert fire(shard, ahead_ms=AHEAD_MS)[3:5] == (0, 1), "it has not run yet"


def test_a_plan_for_another_number_of_shards_does_not_go_ahead(shard: Shard) -> None:
    write(shard, stored(5_000, 60_000, shards=3), ahead_ms=AHEAD_MS)
    assert fire(shard, ahead_ms=AHEAD_MS)[3:] == (0, 0, ["s"])


def test_what_a_full_call_leaves_goes_ahead_in_the_next(shard: Shard) -> None:
    for id in "abc":
        write(shard, stored(5_000, 90_000, id=id), id, ahead_ms=AHEAD_MS)
    reply = fire(shard, limit=2, ahead_ms=AHEAD_MS)
    assert (reply.fired, reply.next_ms) == (2, START_MS - 5_000)
    assert fire(shard, limit=2, ahead_ms=AHEAD_MS)[2:4] == (START_MS + 80_000, 1)


def test_very_late_is_still_left_to_the_planner(shard: Shard) -> None:
    write(shard, stored(0, 60_000), ahead_ms=AHEAD_MS)
    shard.clock.now_ms += LATE_MS + 1
    assert fire(shard, ahead_ms=AHEAD_MS)[3:] == (0, 0, ["s"])
