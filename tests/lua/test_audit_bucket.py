"""audit_bucket: what waits without a record, a page at a time."""

from __future__ import annotations

from tests.lua.shard import Shard


def walk(shard: Shard, limit: int = 250) -> list[str]:
    found, cursor = [], b"0"
    while True:
        cursor, page = shard.run(shard.scripts.audit_bucket(shard.k, cursor, limit))
        found += page
        if cursor == b"0":
            return sorted(found)


def test_first_deliveries_and_retries_without_a_record_are_found(shard: Shard) -> None:
    shard.enqueue("retried", "fine again")
    for row in shard.claim().rows:
        shard.retry(row, delay_ms=1000)
    shard.enqueue("first", "fine", delay="1s")
    assert walk(shard) == []
    shard.redis("HDEL", shard.k.jobs, "retried", "first")
    assert walk(shard) == ["first", "retried"]


def test_pages_are_all_there_is(shard: Shard) -> None:
    shard.checked = False
    ids = [f"j{n:03}" for n in range(300)]
    shard.enqueue(*ids, delay="1s")
    shard.redis("DEL", shard.k.jobs)
    assert walk(shard, 10) == ids
