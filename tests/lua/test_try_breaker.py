"""try_breaker: once a receiver's time is over, one process of all may try it."""

from __future__ import annotations

from tests.lua.shard import Shard
from tests.lua.test_open_breaker import A, B, open_for

CLOSED, YOURS, TAKEN, OPEN = range(4)


def ask(shard: Shard, receiver: str = A) -> tuple[int, int]:
    answer: tuple[int, int] = shard.run(shard.scripts.try_breaker(shard.session.keys.breakers, receiver, 16_000))
    return answer


def test_one_that_nobody_found_dead(shard: Shard) -> None:
    open_for(shard, B)
    assert ask(shard) == (CLOSED, 0)


def test_one_process_tries_when_its_time_is_over(shard: Shard) -> None:
    open_for(shard, A)
    shard.clock.advance("2s")
    assert ask(shard) == (OPEN, 3000)
    shard.clock.advance("3s")
    assert ask(shard) == (YOURS, 0)
    assert ask(shard) == (TAKEN, 16_000)
    open_for(shard, A, 10_000)
    assert ask(shard) == (OPEN, 10_000), "it was dead again"


def test_who_never_tells_how_it_went_does_not_keep_others_off_for_good(shard: Shard) -> None:
    open_for(shard, A)
    shard.clock.advance("5s")
    assert ask(shard) == (YOURS, 0)
    shard.clock.advance("15s")
    assert ask(shard) == (TAKEN, 1000)
    shard.clock.advance("1s")
    assert ask(shard) == (YOURS, 0)
