"""lease: which mover is active, and when each standby looks again."""

from __future__ import annotations

import pytest

from tests.lua.shard import Shard

NEAR_MS = 300  # the calls of a test take less than this, even on a busy machine


def lease(shard: Shard, name: str, lease_ms: int = 500_000, place: float = 0.5) -> tuple[bool, int, int]:
    reply: tuple[bool, int, int] = shard.run(shard.scripts.lease(name, lease_ms, place))
    return reply


def left_ms(shard: Shard) -> int:
    left: int = shard.redis("PTTL", shard.session.keys.mover)
    return left


def now_ms(shard: Shard) -> int:
    seconds, micros = shard.redis("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


def turns(shard: Shard, **in_ms: int) -> None:
    """Gives standbys their turns, so many ms from now."""
    now = now_ms(shard)
    shard.redis("ZADD", shard.session.keys.standbys, *(part for name, ms in in_ms.items() for part in (now + ms, name)))


def standbys(shard: Shard) -> list[bytes]:
    names: list[bytes] = shard.redis("ZRANGE", shard.session.keys.standbys, 0, -1)
    return names


def test_a_free_lease_is_taken(shard: Shard) -> None:
    assert lease(shard, "a") == (True, 0, 1)
    assert shard.redis("GET", shard.session.keys.mover) == b"a"
    assert 400_000 < left_ms(shard) <= 500_000


def test_the_holder_renews_it(shard: Shard) -> None:
    lease(shard, "a", 100_000)
    assert lease(shard, "a", 6_000_000) == (True, 0, 1)
    assert left_ms(shard) > 5_900_000


def test_another_leaves_it_as_it_is(shard: Shard) -> None:
    lease(shard, "a", 6_000_000)
    assert not lease(shard, "b", 9_000_000)[0]
    assert shard.redis("GET", shard.session.keys.mover) == b"a"
    assert 5_900_000 < left_ms(shard) <= 6_000_000


@pytest.mark.parametrize("expires", [True, False])
def test_one_that_lasts_too_long_is_cut(shard: Shard, expires: bool) -> None:
    """Redis's clock was set back, or somebody took the expiry away."""
    shard.redis("SET", shard.session.keys.mover, "a", *(("PX", 6_000_000) if expires else ()))
    assert not lease(shard, "b", 500_000)[0]
    assert shard.redis("GET", shard.session.keys.mover) == b"a"
    assert 400_000 < left_ms(shard) <= 500_000


def test_a_new_standby_has_its_first_turn_somewhere_among_the_others(shard: Shard) -> None:
    lease(shard, "mover")
    assert lease(shard, "a", place=0.25) == (False, 250, 2)
    assert lease(shard, "b", place=0.75) == (False, 1_500, 3)
    assert set(standbys(shard)) == {b"a", b"b"}
    assert shard.redis("PTTL", shard.session.keys.standbys) > 0


def test_turns_are_a_second_apart(shard: Shard) -> None:
    lease(shard, "mover")
    turns(shard, me=0, a=1_000, b=2_000, c=3_000)
    held, wait_ms, processes = lease(shard, "me")
    assert (held, processes) == (False, 5)
    assert 4_000 - NEAR_MS < wait_ms <= 4_000
    assert standbys(shard) == [b"a", b"b", b"c", b"me"]


def test_a_gap_is_filled_first(shard: Shard) -> None:
    lease(shard, "mover")
    turns(shard, me=0, a=1_000, b=3_500, c=4_500)
    assert 2_000 - NEAR_MS < lease(shard, "me")[1] <= 2_000
    assert standbys(shard) == [b"a", b"me", b"b", b"c"]


def test_who_looks_before_its_turn_keeps_it(shard: Shard) -> None:
    """All standbys look at once when the mover has stopped, and one gets the lease."""
    lease(shard, "mover")
    turns(shard, me=2_000, a=1_000)
    assert 2_000 - NEAR_MS < lease(shard, "me")[1] <= 2_000
    assert standbys(shard) == [b"a", b"me"]


def test_a_turn_from_before_the_clock_was_set_back_is_given_anew(shard: Shard) -> None:
    lease(shard, "mover")
    turns(shard, me=3_600_000, a=3_601_000)
    assert lease(shard, "me") == (False, 1_000, 3)


def test_who_has_missed_its_turn_is_dead(shard: Shard) -> None:
    lease(shard, "mover")
    turns(shard, dead=-6_000, late=-4_000)
    assert lease(shard, "me", place=0.0)[2] == 3
    assert standbys(shard) == [b"late", b"me"]
    shard.redis("DEL", shard.session.keys.mover)
    assert lease(shard, "me") == (True, 0, 2)
    assert standbys(shard) == [b"late"]
