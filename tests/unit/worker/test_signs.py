"""When a worker gives signs of life."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from streamdq.times.clock import ManualClock, RedisClock
from streamdq.worker.signs import Signs
from tests.unit.fake_redis import LOST, Call, Rig
from tests.unit.virtual_time import in_virtual_time


class Signing(Rig):
    """A worker that holds claims while ``holding``; when it gave its signs."""

    def __init__(self, clock: RedisClock | None = None, **settings: float) -> None:
        super().__init__({}, clock, **settings)
        self.holding = self.failing = False
        self.given: list[float] = []
        self.link.answers |= {"sign": self.sign, "ZREM": lambda _: 1}
        self.signs = Signs(self.link, self.session, self.scripts, lambda: self.holding)

    def sign(self, _: Call) -> Any:
        if self.failing:
            return LOST
        self.given.append(time.monotonic())
        return int(time.monotonic() * 1000)

    def claim(self) -> None:
        self.holding = True
        self.signs.claimed()

    async def run(self) -> None:
        await self.signs.run()


@in_virtual_time
async def test_one_before_the_first_claim_and_none_while_it_holds_nothing() -> None:
    rig = Signing()
    await rig.signs.begin()
    assert len(rig.given) == 1
    async with rig.running():
        await asyncio.sleep(3600)
    assert len(rig.given) == 1
    await rig.signs.end()
    assert [call.args for call in rig.link.calls["ZREM"]] == [(rig.session.keys.signs, rig.session.consumer)]


@in_virtual_time
async def test_one_a_second_while_it_holds_claims() -> None:
    rig = Signing()
    async with rig.running():
        for _ in range(3):
            await asyncio.sleep(100)
            began = time.monotonic()
            rig.claim()
            await asyncio.sleep(10.5)
            rig.holding = False
            await asyncio.sleep(10)
            given = [when - began for when in rig.given]
            assert len(given) == 10, "none after its last claim has ended"
            assert all(0 <= when - number <= 0.1 for number, when in enumerate(given, start=1))
            rig.given.clear()


@in_virtual_time
async def test_a_handler_that_blocks_the_loop_again_and_again_from_its_start_on() -> None:
    """Claims that are older than three seconds are taken over from a consumer whose sign is as old."""
    rig = Signing()
    clock: Any = time.monotonic
    async with rig.running():
        await asyncio.sleep(100)
        rig.claim()
        last = time.monotonic()
        for _ in range(10):
            clock.now_s += 1.7
            await asyncio.sleep(0.03)
            for given in rig.given:
                assert given - last < 2.1
                last = given
            rig.given.clear()
        assert time.monotonic() - last < 2.1


@in_virtual_time
async def test_claims_that_end_at_once_cost_nothing() -> None:
    rig = Signing()
    async with rig.running():
        for _ in range(1000):
            rig.claim()
            await asyncio.sleep(0.005)
            rig.holding = False
            await asyncio.sleep(0.2)
    assert len(rig.given) < 20


@in_virtual_time
async def test_when_redis_is_back_it_knows_at_once_who_lives() -> None:
    rig = Signing()
    async with rig.running():
        rig.claim()
        await asyncio.sleep(5)
        rig.failing = True
        await asyncio.sleep(60)
        rig.failing, back = False, time.monotonic()
        await asyncio.sleep(5)
    assert next(when for when in rig.given if when >= back) - back <= 0.7


@in_virtual_time
async def test_a_first_sign_that_fails_stops_no_worker() -> None:
    rig = Signing()
    rig.failing = True
    await rig.signs.begin()
    assert rig.given == []


@in_virtual_time
async def test_switched_off_or_with_a_clock_of_a_tests_own_it_gives_none() -> None:
    for rig in (Signing(worker_timeout_s=0), Signing(ManualClock())):
        await rig.signs.begin()
        rig.claim()
        await rig.signs.run()
        await rig.signs.end()
        assert rig.link.calls == {}
