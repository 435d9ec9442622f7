"""rotate_secret: a new signing secret beside the one before."""

from __future__ import annotations

from tests.lua.shard import START_MS, Shard


def rotate(shard: Shard, new: str) -> str:
    """What is kept now."""
    before = shard.redis("GET", shard.session.keys.secret)
    reply = shard.run(shard.scripts.rotate_secret(new))
    kept = (shard.redis("GET", shard.session.keys.secret) or b"").decode()
    assert reply == ((before or b"").decode(), kept)
    return kept


def test_the_current_one_becomes_the_previous(shard: Shard) -> None:
    assert rotate(shard, "aa") == "aa"
    assert rotate(shard, "bb") == f"bb {START_MS} aa"
    assert shard.redis("PTTL", shard.session.keys.secret) == -1


def test_repeated_it_changes_nothing(shard: Shard) -> None:
    rotate(shard, "aa")
    assert rotate(shard, "aa") == "aa"
    before = rotate(shard, "bb")
    shard.clock.advance(5)
    assert rotate(shard, "bb") == before


def test_none_takes_the_place_of_a_previous_one(shard: Shard) -> None:
    rotate(shard, "aa")
    before = rotate(shard, "bb")
    shard.clock.advance(5)
    assert rotate(shard, "cc") == before
    assert rotate(shard, "") == "bb"
    assert rotate(shard, "cc") == f"cc {START_MS + 5_000} bb"


def test_the_previous_one_is_dropped(shard: Shard) -> None:
    assert rotate(shard, "") == ""
    rotate(shard, "aa")
    rotate(shard, "bb")
    assert rotate(shard, "") == "bb"
    assert rotate(shard, "") == "bb"
