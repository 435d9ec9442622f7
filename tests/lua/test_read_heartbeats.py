"""read_heartbeats: when consumers sent their last heartbeats."""

from __future__ import annotations

import pytest

from streamdq.errors import StreamdqError
from tests.lua.shard import START_MS, Shard


def read(shard: Shard, *consumers: str) -> tuple[int, list[int | None]]:
    reply: tuple[int, list[int | None]] = shard.run(shard.scripts.read_heartbeats(consumers, 0.5))
    return reply


def test_signs_come_in_the_order_asked_for(shard: Shard) -> None:
    shard.run(shard.scripts.heartbeat("a", 5.0))
    shard.clock.advance("1s")
    shard.run(shard.scripts.heartbeat("b", 5.0))
    shard.clock.advance("1s")
    assert read(shard, "b", "stranger", "a") == (START_MS + 2_000, [START_MS + 1_000, None, START_MS])


def test_nobody_has_given_any(shard: Shard) -> None:
    assert read(shard, "a") == (START_MS, [None])
    assert read(shard) == (START_MS, [])
    assert shard.redis("EXISTS", shard.session.keys.heartbeats) == 0


def test_it_changes_nothing(shard: Shard) -> None:
    for consumer in ("a", "x"):
        shard.run(shard.scripts.heartbeat(consumer, 5.0))
    assert read(shard, "a", "x") == read(shard, "a", "x") == (START_MS, [START_MS, START_MS])


def test_it_fails_where_nobody_could_sign(shard: Shard) -> None:
    """Otherwise all would be taken for dead who could not write."""
    if shard.is_fake or shard.moving or shard.cutting:
        pytest.skip("only a server on its own becomes a replica, to which nothing can be written back")
    shard.run(shard.scripts.heartbeat("a", 5.0))
    shard.redis("REPLICAOF", "127.0.0.1", 1)
    try:
        with pytest.raises(StreamdqError):
            read(shard, "a")
    finally:
        shard.redis("REPLICAOF", "NO", "ONE")
