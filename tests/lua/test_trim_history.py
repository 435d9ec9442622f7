"""trim_history: old history goes, beyond a length and an age, and never what a registered dump does not have."""

from __future__ import annotations

import time

import pytest

from streamdq.config import Settings
from tests.lua.shard import Shard

DAY_MS = 86_400_000
NODE = 100  # entries of a stream that go together


def write(shard: Shard, count: int, days_ago: float = 0) -> list[str]:
    """Rows as the scripts leave them, some days ago; returns their entries."""
    begin = int(time.time() * 1000 - days_ago * DAY_MS)
    entries = [f"{begin + n}-0" for n in range(count)]
    for entry in entries:
        shard.redis("XADD", shard.k.history, entry, "e", "row")
    shard.redis("HINCRBY", shard.k.counts, "history", count)
    return entries


def hold(shard: Shard, dump: str, mark: str, written: int) -> None:
    """By a dump that knows the stream."""
    shard.redis("HSET", shard.k.settings, "history_since", "1-1")
    shard.call("register_dump", dump, mark, written, "1-1")


def left(shard: Shard) -> list[str]:
    return [entry.decode() for entry, _ in shard.redis("XRANGE", shard.k.history, "-", "+")]


def trim(shard: Shard, length: int, age_s: int) -> int:
    shard.session.settings = Settings(history_length=length, history_age_s=age_s)
    gone: int = shard.call("trim_history")
    return gone


def test_what_is_older_than_the_age_goes(shard: Shard) -> None:
    write(shard, 3 * NODE, days_ago=3)
    recent = write(shard, 50, days_ago=1)
    assert trim(shard, 100_000, 10 * 86_400) == 0
    gone = trim(shard, 100_000, 2 * 86_400)
    assert 3 * NODE - NODE <= gone <= 3 * NODE
    assert left(shard)[-50:] == recent
    assert trim(shard, 100_000, 2 * 86_400) == 0


@pytest.mark.parametrize("length", [0, 100_000])
def test_0_sets_no_limit(shard: Shard, length: int) -> None:
    write(shard, 3 * NODE, days_ago=3000)
    assert trim(shard, length, 0) == 0


@pytest.mark.parametrize("length", [1, NODE])
def test_what_is_beyond_the_length_goes(shard: Shard, length: int) -> None:
    entries = write(shard, 4 * NODE)
    assert trim(shard, length, 0) == 3 * NODE
    assert left(shard) == entries[-NODE:]


@pytest.mark.parametrize(("length", "age_s"), [(10, 0), (100_000, 3600), (10, 3600)])
def test_what_no_dump_has_stays(shard: Shard, length: int, age_s: int) -> None:
    entries = write(shard, 4 * NODE, days_ago=2)
    hold(shard, "d1", "0-0", 0)
    assert trim(shard, length, age_s) == 0
    hold(shard, "d1", entries[249], 250)
    assert trim(shard, length, age_s) == 2 * NODE
    assert left(shard) == entries[2 * NODE :]
    hold(shard, "d2", entries[0], 1)
    hold(shard, "d1", entries[-1], 400)
    assert trim(shard, length, age_s) == 0, "the other dump lacks them"
    shard.call("register_dump", "d2")
    assert trim(shard, length, age_s) >= NODE


def test_a_mark_within_a_millisecond_counts_its_sequence(shard: Shard) -> None:
    for n in range(3 * NODE):
        shard.redis("XADD", shard.k.history, f"1700000000000-{n}", "e", "row")
    shard.redis("HINCRBY", shard.k.counts, "history", 3 * NODE)
    hold(shard, "d1", "1700000000000-150", 151)
    assert trim(shard, 0, 60) == NODE
    assert left(shard)[0] == "1700000000000-100"


@pytest.mark.parametrize("marks", [("0-150", "0-250"), ("0-250", "0-150"), ("0-150", "1-0")])
def test_of_several_marks_the_earliest_counts(shard: Shard, marks: tuple[str, str]) -> None:
    for n in range(3 * NODE):
        shard.redis("XADD", shard.k.history, f"1700000000000-{n}", "e", "row")
    shard.redis("HINCRBY", shard.k.counts, "history", 3 * NODE)
    for dump, mark in zip(("d1", "d2"), marks, strict=True):
        hold(shard, dump, f"170000000000{mark}", 3 * NODE)
    assert trim(shard, 0, 60) == NODE


def test_an_age_beyond_the_beginning_of_time_removes_nothing(shard: Shard) -> None:
    write(shard, 3 * NODE, days_ago=3000)
    assert trim(shard, 0, 10**10) == 0


def test_without_history_there_is_nothing_to_do(shard: Shard) -> None:
    assert trim(shard, 10, 60) == 0
    hold(shard, "d1", "0-0", 0)
    assert trim(shard, 10, 60) == 0
