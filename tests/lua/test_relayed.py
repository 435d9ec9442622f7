"""relayed: reads what became of jobs that relay enqueued."""

from __future__ import annotations

from tests.lua.shard import Shard
from tests.lua.test_relay import relay, rows


def ask(shard: Shard, *ids: str, shards: int = 1) -> list[int] | None:
    found: list[int] | None = shard.call("relayed", shards, [value for id in ids for value in (id, f"{id}'s")])
    return found


def test_it_tells_live_ended_and_unknown_jobs_apart(shard: Shard) -> None:
    relay(shard, rows("done", "dead", "running") + rows("late", "cancelled", delay=60))
    shard.move()
    done, dead, _running = shard.claim().rows
    shard.finish(done)
    shard.bury(dead)
    shard.call("cancel", "cancelled")
    ids = ("done", "dead", "running", "late", "cancelled", "unknown")
    assert ask(shard, *ids) == [2, 1, 1, 1, 2, 0]


def test_what_redis_lost_is_unknown(shard: Shard) -> None:
    relay(shard, rows("a", delay=60))
    shard.redis("DEL", shard.k.jobs, shard.k.outbox, shard.k.bucket, shard.k.counts)
    shard.checked = False
    assert ask(shard, "a") == [0]


def test_outdated_settings_are_refused(shard: Shard) -> None:
    relay(shard, rows("a"))
    assert ask(shard, "a", shards=2) is None
