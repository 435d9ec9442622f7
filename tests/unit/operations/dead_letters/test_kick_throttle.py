"""What makes many jobs ready waits for the claims of the slice before, but not for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import cast

import pytest

from streamdq.link.session import Op, Session
from streamdq.operations.dead_letters.kick_throttle import SLICE, KickThrottle

LOOK_S = 0.25
Left = Callable[[], Op[int]]


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Callable[[Left], float]:
    """Waits with the same throttle each time; returns for how long, a minute at most."""
    now, waiting = [0.0], KickThrottle(cast("Session", None))
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def wait(left: Left) -> float:
        before = now[0]
        for _ in islice(waiting._wait(left), round(60 / LOOK_S)):
            now[0] += LOOK_S
        return now[0] - before

    return wait


def counting(*found: int) -> Left:
    """Finds these numbers, one after the other; the last one again and again."""
    rest = list(found)

    def look() -> Op[int]:
        yield from ()
        return rest.pop(0) if len(rest) > 1 else rest[0]

    return look


def test_it_waits_until_half_a_slice_is_left(one: Callable[[Left], float]) -> None:
    assert one(counting(SLICE // 2)) == 0
    assert one(counting(SLICE, SLICE - 1, SLICE // 2)) == 2 * LOOK_S


def test_where_nobody_claims_it_waits_for_a_second_and_never_again(one: Callable[[Left], float]) -> None:
    assert one(counting(SLICE, SLICE - 1, SLICE - 1)) == LOOK_S + 1.0 + LOOK_S
    assert one(counting(SLICE)) == 0


def test_where_claims_are_slow_it_waits_for_half_a_minute_in_all(one: Callable[[Left], float]) -> None:
    assert one(counting(*range(1040, 1000, -1), 0)) == 40 * LOOK_S
    assert one(counting(*range(9000, 1000, -1))) == 30.0 - 40 * LOOK_S
    assert one(counting(*range(9000, 1000, -1))) == 0
