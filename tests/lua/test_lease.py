"""lease: which mover is at work."""

from __future__ import annotations

from tests.lua.shard import Shard


def lease(shard: Shard, name: str, lease_ms: int = 500_000, asked: str | None = None) -> tuple[bool, int]:
    reply: tuple[bool, int] = shard.run(shard.scripts.lease(name, lease_ms, asked=asked))
    return reply


def asks(shard: Shard) -> list[bytes]:
    """Who has asked."""
    return [fields[1] for _, fields in shard.redis("XRANGE", shard.session.keys.asked, "-", "+")]


def left_ms(shard: Shard) -> int:
    left: int = shard.redis("PTTL", shard.session.keys.mover)
    return left


def test_a_free_lease_is_taken(shard: Shard) -> None:
    assert lease(shard, "a") == (True, 500_000)
    assert shard.redis("GET", shard.session.keys.mover) == b"a"
    assert 400_000 < left_ms(shard) <= 500_000


def test_the_holder_renews_it(shard: Shard) -> None:
    lease(shard, "a", 100_000)
    assert lease(shard, "a", 6_000_000) == (True, 6_000_000)
    assert left_ms(shard) > 5_900_000


def test_another_leaves_it_as_it_is(shard: Shard) -> None:
    lease(shard, "a", 6_000_000)
    held, left = lease(shard, "b", 9_000_000)
    assert not held
    assert 5_900_000 < left <= 6_000_000
    assert shard.redis("GET", shard.session.keys.mover) == b"a"
    assert left_ms(shard) <= 6_000_000


def test_a_long_one_is_cut_and_its_holder_asked(shard: Shard) -> None:
    lease(shard, "a", 6_000_000)
    assert lease(shard, "b", 500_000, shard.session.keys.asked) == (False, 500_000)
    assert shard.redis("GET", shard.session.keys.mover) == b"a"
    assert 400_000 < left_ms(shard) <= 500_000
    assert asks(shard) == [b"b"]
    held, left = lease(shard, "c", 1_000_000, shard.session.keys.asked)
    assert not held
    assert left <= 500_000
    assert asks(shard) == [b"b"], "it is no longer long"
    shard.redis("PEXPIRE", shard.session.keys.mover, 6_000_000)
    lease(shard, "c", 500_000, shard.session.keys.asked)
    assert asks(shard) == [b"c"], "only one is kept"


def test_one_without_an_end_gets_one(shard: Shard) -> None:
    shard.redis("SET", shard.session.keys.mover, "a")
    assert lease(shard, "b", 500_000) == (False, 500_000)
    assert 400_000 < left_ms(shard) <= 500_000
    assert asks(shard) == []
