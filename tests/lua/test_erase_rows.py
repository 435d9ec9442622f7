"""erase_rows: removes rows of the history, with the failures under their ids."""

from __future__ import annotations

from tests.lua.shard import Shard
from tests.lua.test_register_dump import end_one, register


def test_the_rows_named_go_with_their_failures(shard: Shard) -> None:
    first, second = (end_one(shard, id).decode() for id in "ab")
    shard.redis("XADD", shard.k.failures, first, "e", "it failed")
    assert shard.call("erase_rows", [first, "1-1"]) == (1, 1)
    assert shard.redis("XLEN", shard.k.failures) == 0
    assert [entry.decode() for entry, _ in shard.redis("XRANGE", shard.k.history, "-", "+")] == [second]
    assert shard.call("erase_rows", [first]) == (0, 0), "again"


def test_for_a_dump_that_lacks_them_they_count_as_dumped(shard: Shard) -> None:
    first, second, third = (end_one(shard, id).decode() for id in "abc")
    register(shard, "has1", first, 1)
    register(shard, "has2", second, 2)
    assert shard.call("erase_rows", [first, third]) == (2, 0)
    assert register(shard, "has1", first, 1).erased == 1
    assert register(shard, "has2", second, 2).erased == 1
    assert register(shard, "has2", second, 2).erased == 1, "until the mark moves on"
    assert register(shard, "has1", third, 3).erased == 0
    assert shard.call("erase_rows", [second]) == (1, 0)
    assert register(shard, "has2", second, 2).erased == 1


def test_a_dump_that_has_nothing_yet(shard: Shard) -> None:
    shard.call("register_dump", "new", "0-0", 0, "")
    first = end_one(shard, "a").decode()
    assert shard.call("erase_rows", [first]) == (1, 0)
    assert shard.call("register_dump", "new", "0-0", 0, "").erased == 1
