"""lease: which mover is at work."""

from __future__ import annotations

from tests.lua.shard import Shard


def lease(shard: Shard, name: str, lease_ms: int = 5_000) -> tuple[bool, int]:
    reply: tuple[bool, int] = shard.run(shard.scripts.lease(name, lease_ms))
    return reply


def left_ms(shard: Shard) -> int:
    left: int = shard.redis("PTTL", shard.session.keys.mover)
    return left


def test_a_free_lease_is_taken(shard: Shard) -> None:
    assert lease(shard, "a") == (True, 5_000)
    assert shard.redis("GET", shard.session.keys.mover) == b"a"
    assert 4_000 < left_ms(shard) <= 5_000


def test_the_holder_renews_it(shard: Shard) -> None:
    lease(shard, "a", 1_000)
    assert lease(shard, "a", 60_000) == (True, 60_000)
    assert left_ms(shard) > 59_000


def test_another_leaves_it_as_it_is(shard: Shard) -> None:
    lease(shard, "a", 60_000)
    held, left = lease(shard, "b", 90_000)
    assert not held
    assert 59_000 < left <= 60_000
    assert shard.redis("GET", shard.session.keys.mover) == b"a"
    assert left_ms(shard) <= 60_000
