"""hold: a dump is registered with a shard's history, and its mark moves on."""

from __future__ import annotations

from tests.lua.shard import Shard


def end_one(shard: Shard, id: str) -> bytes:
    """Leaves one row of history; returns its entry."""
    shard.enqueue(id)
    shard.finish(shard.take())
    entries = shard.redis("XREVRANGE", shard.k.history, "+", "-", "COUNT", 1)
    return entries[0][0]


def test_it_tells_what_the_stream_is(shard: Shard) -> None:
    assert shard.call("hold", "d1", "0-0", 0) == (False, "", 0, 0, "")
    first, _, third = (end_one(shard, id) for id in "abc")
    held = shard.call("hold", "d1", "0-0", 0)
    assert held == (True, first.decode(), 3, 3, third.decode())
    shard.redis("XTRIM", shard.k.history, "MAXLEN", 0)
    assert shard.call("hold", "d1", third.decode(), 3) == (True, first.decode(), 3, 0, "")


def test_every_row_counts_once_whoever_wrote_it(shard: Shard) -> None:
    shard.enqueue("a", "b", "c", "d")
    rows = shard.claim(4).rows
    shard.finish(*rows[:2])
    shard.finish(rows[0])  # refused
    shard.retry(rows[2])
    shard.bury(rows[3])
    shard.call("kick", "default", 10, ["d"])
    shard.enqueue("e", delay=1000)
    shard.call("cancel", "e")
    assert shard.call("hold", "d1", "0-0", 0).written == 6 == shard.redis("XLEN", shard.k.history)


def test_dumps_are_registered_side_by_side_and_apart(shard: Shard) -> None:
    shard.call("hold", "d1", "5-1", 1)
    shard.call("hold", "d2", "0-0", 0)
    assert shard.call("hold", "d1", "7-0", 3).known
    assert set(shard.redis("HGET", shard.k.settings, "dumps").split(b",")) == {b"d1:7-0:3", b"d2:0-0:0"}
    assert shard.call("hold", "d1", "", 0).known
    assert shard.redis("HGET", shard.k.settings, "dumps") == b"d2:0-0:0"
    assert not shard.call("hold", "d1", "", 0).known
    assert shard.call("hold", "d2", "", 0).known
    assert shard.redis("HEXISTS", shard.k.settings, "dumps") == 0


def test_it_survives_a_change_of_the_topic(shard: Shard) -> None:
    shard.call("hold", "d1", "5-1", 1)
    shard.topic(ttr="5s", groups=["default", "more"])
    assert shard.call("hold", "d1", "5-1", 1).known


def test_while_a_dump_is_registered_nothing_is_cut(shard: Shard) -> None:
    shard.scripts._history = 10
    shard.call("hold", "d1", "0-0", 0)
    for batch in range(4):
        ids = [f"{batch}-{n}" for n in range(100)]
        shard.enqueue(*ids)
        shard.finish(*shard.claim(100).rows)
    assert shard.redis("XLEN", shard.k.history) == 400
    shard.call("hold", "d1", "", 0)
    end_one(shard, "last")
    assert shard.redis("XLEN", shard.k.history) <= 200
