"""schedule: writes a schedule in place of the version that was read."""

from __future__ import annotations

from dataclasses import replace

from streamdq.store.replies import Written
from tests.lua.schedules import known, look, stored, there, write
from tests.lua.shard import START_MS, Shard


def wakeups(shard: Shard) -> list[int]:
    return [int(fields[1]) - START_MS for _, fields in shard.redis("XRANGE", shard.k.wake, "-", "+")]


def test_what_is_written_is_read(shard: Shard) -> None:
    given = stored(1_000, 2_000, body={"at": "{due}", "n": "ü\n"})
    assert write(shard, given) is Written.YES
    assert there(shard) == replace(given, version=1)
    assert look(shard) == 1_000
    assert wakeups(shard) == [1_000]


def test_only_the_version_that_was_read_is_replaced(shard: Shard) -> None:
    first = stored(1_000)
    assert write(shard, first) is Written.YES
    assert write(shard, first) is Written.CHANGED_MEANWHILE, "also when its own call is repeated"
    later = replace(stored(5_000), version=1)
    assert write(shard, later) is Written.YES
    assert write(shard, later) is Written.CHANGED_MEANWHILE
    assert there(shard) == replace(later, version=2)
    assert look(shard) == 5_000


def test_a_version_of_what_is_gone_is_not_written(shard: Shard) -> None:
    assert write(shard, replace(stored(1_000), version=3)) is Written.CHANGED_MEANWHILE
    assert known(shard) is None
    assert look(shard) is None


def test_without_an_occurrence_nothing_looks_at_it(shard: Shard) -> None:
    write(shard, stored(1_000))
    assert write(shard, replace(stored(), version=1, state="paused")) is Written.YES
    assert look(shard) is None
    assert there(shard).state == "paused"


def test_only_what_is_earlier_than_all_others_wakes_the_mover(shard: Shard) -> None:
    write(shard, stored(2_000), "a")
    write(shard, stored(2_000), "b")
    write(shard, stored(3_000), "c")
    assert wakeups(shard) == [2_000]
    write(shard, stored(1_000), "d")
    assert wakeups(shard) == [1_000]
    write(shard, stored(-5_000), "e")
    assert wakeups(shard) == [0], "what is due already, now"


def test_one_missed_occurrence_is_counted(shard: Shard) -> None:
    write(shard, stored(1_000), missed=1)
    assert shard.redis("HGET", shard.k.counts, "missed") == b"1"


def test_missed_occurrences_are_counted(shard: Shard) -> None:
    write(shard, stored(1_000), missed=3)
    write(shard, stored(1_000), missed=5)  # refused
    write(shard, stored(1_000), "other", missed=2)
    assert shard.redis("HGET", shard.k.counts, "missed") == b"5"
    shard.check()


def test_an_outdated_number_of_shards_is_refused(shard: Shard) -> None:
    assert write(shard, stored(1_000), shards=2) is Written.OUTDATED
    assert known(shard) is None
