"""Keys: their hash tags, and which shard a job is in."""

from __future__ import annotations

from collections import Counter

import pytest
from redis.crc import key_slot

from streamdq.keys import NamespaceKeys, ShardKeys, shard_of


def every_key(shard: ShardKeys) -> list[str]:
    fixed = [
        getattr(shard, slot) for slot in ShardKeys.__slots__ if slot not in ("namespace", "topic", "shard", "prefix")
    ]
    return [*fixed, shard.ready_of("g"), shard.dead_of("g")]


def test_all_keys_of_a_shard_share_a_slot_and_differ() -> None:
    keys = every_key(NamespaceKeys("ns").shard("order.close", 3))
    assert all(key.startswith("ns:{order.close:3}:") for key in keys)
    assert len(set(keys)) == len(keys)
    assert len({key_slot(key.encode()) for key in keys}) == 1


def test_shards_topics_and_namespaces_share_no_key() -> None:
    shards = [NamespaceKeys(ns).shard(t, i) for ns in ("a", "b") for t in ("x", "x:0") for i in (0, 1)]
    keys = [key for shard in shards for key in every_key(shard)]
    assert len(set(keys)) == len(keys)


def test_keys_of_a_namespace_share_a_slot() -> None:
    names = NamespaceKeys("ns")
    assert (names.topics, names.mover, names.wake) == ("{ns}:topics", "{ns}:mover", "{ns}:wake")


@pytest.mark.parametrize(
    ("id", "shards", "shard"),
    [("order-42", 1, 0), ("order-42", 4, 2), ("order-43", 4, 0), ("", 4, 0), ("支付", 8, 6), ("a", 256, 67)],
)
def test_where_a_job_lives_never_changes(id: str, shards: int, shard: int) -> None:
    """Jobs in Redis were put there by this function: another answer loses them."""
    assert shard_of(id, shards) == shard


def test_ids_spread_evenly() -> None:
    spread = Counter(shard_of(f"order-{i}", 8) for i in range(8000))
    assert len(spread) == 8
    assert max(spread.values()) < 1.15 * min(spread.values())
