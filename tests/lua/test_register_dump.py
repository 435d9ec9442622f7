"""register_dump: a dump is registered with a shard's history, and its mark moves on."""

from __future__ import annotations

from streamdq.store.replies import DumpRegistration
from tests.lua.shard import Shard


def end_one(shard: Shard, id: str) -> bytes:
    """Leaves one row of history; returns its entry."""
    shard.enqueue(id)
    shard.finish(shard.take())
    entries = shard.redis("XREVRANGE", shard.k.history, "+", "-", "COUNT", 1)
    return entries[0][0]


def register(shard: Shard, dump: str, mark: str, written: int) -> DumpRegistration:
    """By a dump that knows the stream."""
    since = shard.redis("HGET", shard.k.settings, "history_since") or b""
    held: DumpRegistration = shard.call("register_dump", dump, mark, written, since.decode())
    return held


def dumps(shard: Shard) -> set[bytes]:
    return set((shard.redis("HGET", shard.k.settings, "dumps") or b"").split(b","))


def test_it_tells_what_the_stream_is(shard: Shard) -> None:
    assert register(shard, "d1", "0-0", 0) == (False, "", 0, 0, "", 0)
    first, _, third = (end_one(shard, id) for id in "abc")
    assert register(shard, "d1", "0-0", 0) == (True, first.decode(), 3, 3, third.decode(), 0)
    shard.redis("XTRIM", shard.k.history, "MAXLEN", 0)
    assert register(shard, "d1", third.decode(), 3) == (True, first.decode(), 3, 0, "", 0)


def test_every_row_counts_once_by_any_writer(shard: Shard) -> None:
    shard.enqueue("a", "b", "c", "d")
    rows = shard.claim(4).rows
    shard.finish(*rows[:2])
    shard.finish(rows[0])  # refused
    shard.retry(rows[2])
    shard.bury(rows[3])
    shard.call("kick", "default", 10, ["d"])
    shard.enqueue("e", delay=1000)
    shard.call("cancel", "e")
    assert register(shard, "d1", "0-0", 0).written == 6 == shard.redis("XLEN", shard.k.history)


def test_dumps_are_registered_side_by_side_and_apart(shard: Shard) -> None:
    for id in "abc":
        end_one(shard, id)
    register(shard, "d1", "5-1", 1)
    register(shard, "d2", "0-0", 0)
    assert register(shard, "d1", "7-0", 3).known
    assert dumps(shard) == {b"d1:7-0:3", b"d2:0-0:0"}
    assert shard.call("register_dump", "d1").known
    assert dumps(shard) == {b"d2:0-0:0"}
    assert not shard.call("register_dump", "d1").known
    assert shard.call("register_dump", "d2").known
    assert shard.redis("HEXISTS", shard.k.settings, "dumps") == 0


def test_it_survives_a_change_of_the_topic(shard: Shard) -> None:
    end_one(shard, "a")
    register(shard, "d1", "5-1", 1)
    shard.topic(ttr="5s", groups=["default", "more"])
    assert dumps(shard) == {b"d1:5-1:1"}


def test_a_shard_that_is_made_keeps_its_rows_for_the_dumps_of_the_namespace(shard: Shard) -> None:
    shard.scripts._history = 10
    shard.call("configure_shard", shard.settings, {"d1"})
    assert dumps(shard) == {b""}, "it was there before"
    first = shard.k
    shard.k = shard.session.keys.shard("t", 1)
    shard.call("register_dump", "d1", "0-0", 0)  # by a dump that has found the topic already
    shard.call("configure_shard", shard.settings.model_copy(update={"most_shards": 2}), {"d1", "d2"})
    assert dumps(shard) == {b"d1:0-0:0", b"d2:0-0:0"}
    shard.k = first


def test_a_topic_that_is_made_again_soon_keeps_its_rows_for_a_dump_that_has_found_it(shard: Shard) -> None:
    deleting, version = {"deleting": "force"}, shard.settings.version
    shard.run(shard.scripts.drop_shard(shard.k, shard.settings.model_copy(update=deleting)))
    shard.run(shard.scripts.register_dump(shard.k, "d1", "0-0", 0))
    again = shard.settings.model_copy(update={"version": version + 1})
    shard.run(shard.scripts.configure_shard(shard.k, again, {"d2"}))
    assert dumps(shard) == {b"d1:0-0:0", b"d2:0-0:0"}


def test_a_mark_of_another_life_or_of_later_holds_everything(shard: Shard) -> None:
    since = end_one(shard, "a").decode()
    shard.call("register_dump", "d1", "9-9", 1, "4-4")
    assert dumps(shard) == {b"d1:0-0:0"}
    shard.call("register_dump", "d1", "9-9", 2, since)
    assert dumps(shard) == {b"d1:0-0:0"}
    shard.call("register_dump", "d1", "9-9", 1, since)
    assert dumps(shard) == {b"d1:9-9:1"}


def test_while_a_dump_is_registered_nothing_is_cut(shard: Shard) -> None:
    shard.scripts._history = 10
    register(shard, "d1", "0-0", 0)
    for batch in range(4):
        ids = [f"{batch}-{n}" for n in range(100)]
        shard.enqueue(*ids)
        shard.finish(*shard.claim(100).rows)
    assert shard.redis("XLEN", shard.k.history) == 400
    shard.call("register_dump", "d1")
    end_one(shard, "last")
    assert shard.redis("XLEN", shard.k.history) <= 200
