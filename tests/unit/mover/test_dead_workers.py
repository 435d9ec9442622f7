"""When the mover looks for dead workers, and what it does about them: in virtual time, against heartbeats kept here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.exceptions import ResponseError

from streamdq.config import GroupSettings, TopicSettings
from streamdq.keys import ShardKeys
from streamdq.mover.alive.dead_workers import DeadWorkers
from streamdq.times.clock import ManualClock, RedisClock
from tests.unit.fake_redis import LOST, Call, Rig
from tests.unit.virtual_time import in_virtual_time

TOPIC = TopicSettings(groups={"g": GroupSettings()})


def now_ms() -> int:
    return int(time.monotonic() * 1000)


class Looking(Rig):
    """``heartbeats``: when each consumer gave its last; one that is ``alive`` has just given another."""

    def __init__(self, clock: RedisClock | None = None, **settings: Any) -> None:
        super().__init__({"t": TOPIC, "u": TOPIC}, clock, **settings)
        self.heartbeats: dict[str, int] = {}
        self.alive: set[str] = set()
        self.taken: list[tuple[str, str, float]] = []  # topic, consumer, when
        self.replies: list[Any] = []  # of take_over; then nothing is left
        self.link.answers |= {"read_heartbeats": self.read, "take_over": self.take_over}
        self.silent = DeadWorkers(self.link, self.store)

    def shard(self, topic: str = "t") -> ShardKeys:
        return self.session.keys.shard(topic, 0)

    def read(self, call: Call) -> Any:
        self.heartbeats |= dict.fromkeys(self.alive, now_ms())
        return [
            now_ms(),
            *(str(self.heartbeats[name]).encode() if name in self.heartbeats else b"" for name in call.args[1:]),
        ]

    def take_over(self, call: Call) -> Any:
        self.taken.append((call.keys[0].split("{")[1].split(":")[0], call.args[4], time.monotonic()))
        return self.replies.pop(0) if self.replies else [1, 0, 0, 0]

    @property
    def looks(self) -> int:
        return len(self.link.calls["read_heartbeats"])

    async def run(self) -> None:
        await self.silent.run()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with super().running():
            await asyncio.sleep(0)  # it has begun
            yield


@in_virtual_time
async def test_while_nobody_holds_anything_it_sends_nothing() -> None:
    rig = Looking()
    async with rig.running():
        await asyncio.sleep(600)
        assert rig.looks == 0
        rig.alive = {"me"}
        rig.silent.hold(rig.shard(), {"g": ["me"]})
        await asyncio.sleep(5)
        assert 9 <= rig.looks <= 11
        rig.silent.hold(rig.shard(), {"g": []})
        await asyncio.sleep(1)
        looks = rig.looks
        await asyncio.sleep(600)
    assert rig.looks == looks
    assert rig.taken == []


@in_virtual_time
async def test_the_dead_lose_what_they_hold_everywhere_and_others_nothing() -> None:
    rig = Looking()
    rig.alive = {"lives"}
    rig.heartbeats = {"dies": now_ms()}
    died = time.monotonic()
    async with rig.running():
        rig.silent.hold(rig.shard("t"), {"g": ["dies", "lives", "stranger"]})
        rig.silent.hold(rig.shard("u"), {"g": ["dies"]})
        await asyncio.sleep(3.02)
        for topic in ("t", "u"):
            rig.silent.hold(rig.shard(topic), {"g": ["lives"]})
        await asyncio.sleep(60)
    assert sorted((topic, name) for topic, name, _ in rig.taken) == [("t", "dies"), ("u", "dies")]
    assert all(3.0 <= when - died <= 3.02 for *_, when in rig.taken), "neither early nor at the next tick"


@in_virtual_time
async def test_what_is_too_young_goes_as_soon_as_it_is_old_enough() -> None:
    rig = Looking()
    rig.heartbeats = {"dies": now_ms() - 10_000}
    rig.replies = [[0, 0, 0, 1], [1, 0, 1, 1], [1, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    async with rig.running():
        rig.silent.hold(rig.shard(), {"g": ["dies"]})
        await asyncio.sleep(2.9)
    times = [when for *_, when in rig.taken]
    assert len(times) == 6
    assert times[2] - times[1] < 0.01, "there was more"
    assert times[4] - times[0] < 0.4, "a blocked read of its own may have got what was taken from it"
    assert times[5] - times[4] >= 0.5


@in_virtual_time
async def test_after_a_failure_it_looks_again_and_takes_its_time() -> None:
    rig = Looking()
    rig.heartbeats = {"dies": now_ms() - 10_000}
    answer, failures = rig.read, [LOST, ResponseError("NOREPLICAS Not enough good replicas to write.")]
    rig.link.answers["read_heartbeats"] = lambda call: failures.pop() if failures else answer(call)
    began = time.monotonic()
    async with rig.running():
        rig.silent.hold(rig.shard(), {"g": ["dies"]})
        await asyncio.sleep(6)
    assert 3.0 <= rig.taken[0][2] - began <= 3.7


@in_virtual_time
async def test_a_look_broken_off_with_the_mover_is_a_failure() -> None:
    rig = Looking()
    rig.alive = {"me"}
    async with rig.running():
        rig.silent.hold(rig.shard(), {"g": ["me"]})
        await asyncio.sleep(5)
        rig.link.answers["read_heartbeats"] = lambda _: asyncio.sleep(60)
        await asyncio.sleep(1)
    rig.link.answers["read_heartbeats"] = rig.read
    rig.alive, rig.heartbeats = set(), {"me": now_ms() - 10_000}
    began = time.monotonic()
    async with rig.running():
        await asyncio.sleep(0.01)
        rig.silent.hold(rig.shard(), {"g": ["me"]})
        await asyncio.sleep(6)
    assert 3.0 <= rig.taken[0][2] - began <= 3.5


@in_virtual_time
async def test_a_shard_that_fails_holds_up_no_other() -> None:
    rig = Looking()
    rig.heartbeats = {"dies": now_ms() - 10_000}
    take_over = rig.take_over
    rig.link.answers["take_over"] = lambda call: LOST if "{t:" in call.keys[0] else take_over(call)
    async with rig.running():
        rig.silent.hold(rig.shard("t"), {"g": ["dies"]})
        rig.silent.hold(rig.shard("u"), {"g": ["dies"]})
        await asyncio.sleep(4)
        assert rig.taken[0][0] == "u"
        rig.link.answers["take_over"] = take_over
        await asyncio.sleep(1.1)
    assert {topic for topic, *_ in rig.taken} == {"t", "u"}


@in_virtual_time
async def test_many_are_asked_for_in_parts() -> None:
    rig = Looking()
    names = [f"c{i:04}" for i in range(1200)]
    rig.alive = set(names)
    async with rig.running():
        rig.silent.hold(rig.shard(), {"g": names})
        await asyncio.sleep(0.1)
    assert [len(call.args) - 1 for call in rig.link.calls["read_heartbeats"]] == [500, 500, 200]


@in_virtual_time
async def test_switched_off_or_with_a_clock_of_a_tests_own_it_does_nothing() -> None:
    for rig in (Looking(worker_timeout_s=0), Looking(ManualClock())):
        rig.heartbeats = {"dies": 0}
        async with rig.running():
            rig.silent.hold(rig.shard(), {"g": ["dies"]})
            await asyncio.sleep(60)
        assert rig.link.calls == {}
