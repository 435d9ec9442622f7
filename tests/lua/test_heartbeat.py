"""heartbeat: a consumer sends a heartbeat."""

from __future__ import annotations

from tests.lua.shard import START_MS, Shard

DAY_MS = 86_400_000


def heartbeat(shard: Shard, consumer: str = "me") -> int:
    now_ms: int = shard.run(shard.scripts.heartbeat(consumer, 5.0))
    return now_ms


def heartbeats(shard: Shard) -> dict[str, int]:
    flat = shard.redis("ZRANGE", shard.session.keys.heartbeats, 0, -1, "WITHSCORES")
    return {name.decode(): int(at) for name, at in zip(flat[::2], flat[1::2], strict=True)}


def test_the_last_sign_of_each_consumer_is_kept(shard: Shard) -> None:
    assert heartbeat(shard) == START_MS
    shard.clock.advance("2s")
    heartbeat(shard, "other")
    assert heartbeats(shard) == {"me": START_MS, "other": START_MS + 2_000}
    assert heartbeat(shard) == START_MS + 2_000
    assert heartbeats(shard) == {"me": START_MS + 2_000, "other": START_MS + 2_000}


def test_it_is_the_time_of_redis(timed: Shard) -> None:
    seconds, micros = timed.redis("TIME")
    at = heartbeat(timed)
    assert 0 <= at - (int(seconds) * 1000 + int(micros) // 1000) < 5_000
    assert heartbeats(timed) == {"me": at}


def test_a_clock_that_was_set_back_is_no_hindrance(shard: Shard) -> None:
    heartbeat(shard)
    shard.clock.now_ms -= 3_600_000
    heartbeat(shard)
    assert heartbeats(shard) == {"me": START_MS - 3_600_000}


def test_about_ten_thousand_are_kept_the_latest(shard: Shard) -> None:
    key = shard.session.keys.heartbeats
    for start in range(0, 10_000, 1_000):
        shard.redis("ZADD", key, *(part for i in range(start, start + 1_000) for part in (i, f"old-{i}")))
    for consumer in ("me", "other", "me"):
        heartbeat(shard, consumer)
        assert shard.redis("ZCARD", key) <= 10_001
    found = heartbeats(shard)
    assert {"me", "other", "old-2"} < found.keys()
    assert "old-0" not in found


def test_a_day_after_the_last_sign_nothing_is_left(shard: Shard) -> None:
    heartbeat(shard)
    assert 0 <= DAY_MS - shard.redis("PTTL", shard.session.keys.heartbeats) < 60_000
