"""open_breaker: callbacks to a receiver stop, in every process."""

from __future__ import annotations

from tests.lua.shard import START_MS, Shard

A, B, C = "https://a.example:443", "https://b.example:443", "https://c.example:443"


def open_for(shard: Shard, receiver: str, open_ms: int = 5000, most: int = 2) -> bool:
    key = shard.session.keys.breakers
    return bool(shard.run(shard.scripts.open_breaker(key, receiver, open_ms, 120_000, most)))


def there(shard: Shard) -> dict[bytes, bytes]:
    flat = shard.redis("HGETALL", shard.session.keys.breakers)
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))


def test_it_is_open_from_now_on_and_expires(shard: Shard) -> None:
    assert open_for(shard, A)
    assert there(shard) == {A.encode(): b"%d|5000|0" % (START_MS + 5000)}
    left_ms = shard.redis("PTTL", shard.session.keys.breakers)
    assert 60_000 < left_ms <= 125_000
    assert open_for(shard, B, 60_000)
    assert open_for(shard, A, 5000)
    assert shard.redis("PTTL", shard.session.keys.breakers) > 125_000, "it stays for the one that is open longest"


def test_no_more_than_so_many_are_kept_and_old_ones_make_room(shard: Shard) -> None:
    assert open_for(shard, A)
    assert open_for(shard, B, 60_000)
    assert not open_for(shard, C)
    assert open_for(shard, A, 10_000), "one that is there is known on"
    shard.clock.advance("130s")
    assert not open_for(shard, C)
    shard.clock.advance("1ms")
    assert open_for(shard, C)
    assert there(shard).keys() == {B.encode(), C.encode()}
