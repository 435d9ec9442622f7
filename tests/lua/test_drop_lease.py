"""drop_lease: the mover stops."""

from __future__ import annotations

from tests.lua.shard import Shard


def drop(shard: Shard, name: str) -> bool:
    dropped: bool = shard.run(shard.scripts.drop_lease(name))
    return dropped


def test_the_holder_drops_it(shard: Shard) -> None:
    shard.run(shard.scripts.lease("a", 500_000, 0.5))
    assert drop(shard, "a")
    assert shard.redis("GET", shard.session.keys.mover) is None


def test_that_of_a_successor_stays_as_it_is(shard: Shard) -> None:
    shard.run(shard.scripts.lease("b", 500_000, 0.5))
    assert not drop(shard, "a")
    assert shard.redis("GET", shard.session.keys.mover) == b"b"
    assert 400_000 < shard.redis("PTTL", shard.session.keys.mover) <= 500_000


def test_one_that_nobody_holds(shard: Shard) -> None:
    assert not drop(shard, "a")
    assert shard.redis("EXISTS", shard.session.keys.mover) == 0
