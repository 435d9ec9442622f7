"""audit_bucket: what waits without a record, a page at a time."""

from __future__ import annotations

from streamdq.config import topic_patch
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


def test_what_waits_for_a_group_that_is_leaving_is_about_to_go(shard: Shard) -> None:
    shard.topic(groups=["a", "b"])
    shard.enqueue("x")
    shard.retry(shard.take("b"), delay_ms=1000, group="b")
    settings = shard.run(shard.scripts.register_topic("t", topic_patch({}, {}, ["b"])))
    shard.topics.known["t"] = settings
    shard.call("configure_shard", settings)
    shard.finish(shard.take("a"), group="a")
    assert shard.redis("ZCARD", shard.k.bucket) == 1
    assert walk(shard) == []
    shard.enqueue("first", delay="1s")
    shard.checked = False
    shard.redis("HDEL", shard.k.jobs, "first")
    assert walk(shard) == ["first"]


def test_pages_are_all_there_is(shard: Shard) -> None:
    shard.checked = False
    ids = [f"j{n:03}" for n in range(300)]
    shard.enqueue(*ids, delay="1s")
    shard.redis("DEL", shard.k.jobs)
    assert walk(shard, 10) == ids
