"""record_flows: rows about flows that have ended."""

from __future__ import annotations

from tests.lua.shard import Shard


def rows(shard: Shard) -> list[bytes]:
    return [fields[1] for _, fields in shard.redis("XRANGE", shard.k.history, "-", "+")]


def record(shard: Shard, seen: tuple[str, str], *added: str) -> bool:
    found: bool = shard.run(shard.scripts.record_flows(shard.k, seen, added))
    return found


def test_rows_are_added_and_how_far_the_mover_has_looked_is_noted(shard: Shard) -> None:
    assert record(shard, ("", "1-1"), "one", "two")
    assert rows(shard) == [b"one", b"two"]
    assert shard.redis("HGET", shard.k.settings, "flows_recorded") == b"1-1"
    assert shard.redis("HGET", shard.k.counts, "history") == b"2"
    assert record(shard, ("1-1", "1-5"))
    assert len(rows(shard)) == 2


def test_what_another_mover_has_recorded_is_not_repeated(shard: Shard) -> None:
    assert record(shard, ("", "1-1"), "one")
    assert not record(shard, ("", "1-1"), "one")
    assert not record(shard, ("1-0", "1-2"), "two")
    assert rows(shard) == [b"one"]
    assert shard.redis("HGET", shard.k.settings, "flows_recorded") == b"1-1"


def test_a_topic_that_was_deleted_meanwhile_stays_deleted(shard: Shard) -> None:
    shard.redis("DEL", shard.k.settings)
    assert not record(shard, ("", "1-1"), "one")
    assert shard.redis("EXISTS", shard.k.settings, shard.k.history) == 0
