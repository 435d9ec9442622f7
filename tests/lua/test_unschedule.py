"""unschedule: a schedule goes; its jobs stay."""

from __future__ import annotations

from dataclasses import replace

from tests.lua.schedules import fire, known, look, stored, there, waiting, write
from tests.lua.shard import Shard


def removals(shard: Shard) -> bytes | None:
    found: bytes | None = shard.redis("HGET", shard.k.counts, "unscheduled")
    return found


def test_it_goes_and_its_jobs_stay(shard: Shard) -> None:
    write(shard, stored(0, 1_000))
    fire(shard)
    assert shard.run(shard.scripts.unschedule(shard.k, "s")) is True
    assert known(shard) is None
    assert look(shard) is None
    assert waiting(shard) == [("s@0", 0)]
    assert removals(shard) == b"1"
    assert shard.run(shard.scripts.unschedule(shard.k, "s")) is False
    assert removals(shard) == b"1"


def test_others_stay(shard: Shard) -> None:
    write(shard, stored(1_000), "a")
    write(shard, stored(1_000), "b")
    assert shard.run(shard.scripts.unschedule(shard.k, "a")) is True
    assert look(shard, "b") == 1_000


def test_not_while_the_job_of_an_occurrence_to_come_is_enqueued(shard: Shard) -> None:
    """The mover may have enqueued it after the caller has taken the last one back."""
    write(shard, stored(5_000, 90_000), ahead_ms=10_000)
    fire(shard, ahead_ms=10_000)
    before = known(shard), look(shard)
    assert shard.run(shard.scripts.unschedule(shard.k, "s")) is None
    assert (known(shard), look(shard), removals(shard)) == (*before, None)
    shard.clock.now_ms += 4_999
    assert shard.run(shard.scripts.unschedule(shard.k, "s")) is None
    shard.clock.now_ms += 1
    assert shard.run(shard.scripts.unschedule(shard.k, "s")) is True, "once it is due, it is one of the past"
    assert waiting(shard) == [("s@5000", 5_000)]


def paused(shard: Shard) -> int:
    return int(shard.redis("HGET", shard.k.counts, "paused") or 0)


def test_those_that_are_paused_are_counted(shard: Shard) -> None:
    for id in ("a", "b", "c"):
        write(shard, stored(1_000, state="paused" if id != "c" else "active"), id)
    assert paused(shard) == 2
    write(shard, replace(there(shard, "a"), last_ms=1), "a")
    write(shard, stored(1_000, state="paused"), "c")  # as if it was not there: refused
    assert paused(shard) == 2
    write(shard, replace(there(shard, "a"), state="active"), "a")
    assert paused(shard) == 1
    assert shard.run(shard.scripts.unschedule(shard.k, "c")) is True
    assert paused(shard) == 1
    assert shard.run(shard.scripts.unschedule(shard.k, "b")) is True
    assert paused(shard) == 0
