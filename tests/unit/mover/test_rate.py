"""A topic with a rate: how much is moved, from which shard, and when: a permit giver kept here, in virtual time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from redis.exceptions import ResponseError

from streamdq.config import GroupSettings, TopicSettings
from streamdq.keys import ShardKeys
from streamdq.mover.rate import RatedTopic
from tests.unit.fake_redis import Call, Rig
from tests.unit.mover.buckets import Buckets, now_ms
from tests.unit.virtual_time import in_virtual_time

TOPIC = TopicSettings(groups={"g": GroupSettings()}, rate=100.0, shards=2)


class Rated(Rig):
    """A rated topic of two shards. Permits come in portions, the next when the one before is paid for."""

    def __init__(self, rate: float | None = 100.0, portion: int = 5) -> None:
        self.rate, self.portion = rate, portion
        self.free_ms = 0
        self.buckets = Buckets()
        self.moved: list[tuple[int, int, int]] = []  # shard, when, how many
        self.given_back: list[tuple[int, Any]] = []  # shard, in how many seconds it is to be looked at
        self.fail_moves = 0
        super().__init__({"t": TOPIC.model_copy(update={"rate": rate})})
        self.link.answers |= {"permit": self.permit, "ZRANGE": self.buckets.heads}
        self.shards = self.topics.shards("t")
        self.rated = RatedTopic(self.link, self.store, "t", self.move, self.later)

    def add(self, shard: int, *in_ms: int) -> None:
        self.buckets.add(self.shards[shard].bucket, *in_ms)
        self.rated.want(self.shards[shard])

    def permit(self, call: Call) -> list[int]:
        wanted, granted = int(call.args[1]), 0
        if self.free_ms <= now_ms() and wanted and self.rate:
            granted = min(wanted, self.portion)
            self.free_ms = now_ms() + round(granted * 1000 / self.rate)
        return [granted, now_ms(), self.free_ms]

    async def move(self, shard: ShardKeys, count: int) -> None:
        if self.fail_moves:
            self.fail_moves -= 1
            raise ResponseError("BUSY")
        self.moved.append((shard.shard, now_ms(), self.buckets.move(shard.bucket, count)))

    def later(self, shard: ShardKeys, when: float) -> None:
        self.given_back.append((shard.shard, when - time.monotonic()))

    def moved_in(self) -> Counter[int]:
        """By shard."""
        found: Counter[int] = Counter()
        for shard, _, count in self.moved:
            found[shard] += count
        return found

    async def run(self) -> None:
        await self.rated.run()


@in_virtual_time
async def test_portions_follow_one_another_as_the_rate_says() -> None:
    rig = Rated()
    rig.add(0, *[0] * 50)
    began = now_ms()
    async with rig.running():
        await asyncio.sleep(1)
    assert [count for _, _, count in rig.moved] == [5] * 10
    for number, (_, when, _) in enumerate(rig.moved):
        assert 50 * number <= when - began <= 50 * number + 15, "a portion of five is paid for in 50 ms"


@in_virtual_time
async def test_the_longest_due_goes_first_whichever_shard_has_it() -> None:
    rig = Rated(portion=4)
    rig.add(0, -10, -8, -2, -1)
    rig.add(1, -9, -7, -3)
    async with rig.running():
        await asyncio.sleep(0.02)
        assert rig.moved_in() == {0: 2, 1: 2}
        await asyncio.sleep(0.04)
        assert rig.moved_in() == {0: 4, 1: 3}


@in_virtual_time
async def test_what_is_wanted_while_a_portion_is_paid_for_waits_for_that() -> None:
    rig = Rated(rate=5.0, portion=1)
    rig.add(0, 0)
    began = now_ms()
    async with rig.running():
        await asyncio.sleep(0.05)
        rig.add(1, 0)
        await asyncio.sleep(0.2)
    assert [shard for shard, _, _ in rig.moved] == [0, 1]
    assert 200 <= rig.moved[1][1] - began <= 202
    assert len(rig.link.calls["permit"]) <= 6, "nobody asks again and again meanwhile"


@in_virtual_time
async def test_a_shard_where_nothing_is_due_yet_is_given_back_until_then() -> None:
    rig = Rated()
    rig.add(0, 250)
    rig.add(1)
    async with rig.running():
        await asyncio.sleep(0.01)
        assert dict(rig.given_back) == {0: pytest.approx(0.25, abs=0.002), 1: float("inf")}
        asked = len(rig.link.calls["permit"])
        await asyncio.sleep(60)
    assert (rig.moved, len(rig.link.calls["permit"])) == ([], asked)


@in_virtual_time
async def test_a_shard_that_is_wanted_while_it_is_looked_at_is_kept() -> None:
    """The look says that nothing is due; the wakeup that came meanwhile is newer."""
    rig = Rated()
    rig.link.takes_s = 0.01
    rig.add(0)
    async with rig.running():
        await asyncio.sleep(0.015)  # the permit has come, the heads are on their way
        assert len(rig.link.calls["ZRANGE"]) == 1
        rig.add(0, 0)
        await asyncio.sleep(0.2)
    assert rig.moved_in() == {0: 1}


@in_virtual_time
async def test_a_rate_that_is_raised_counts_at_once() -> None:
    rig = Rated(rate=0.1, portion=1)
    rig.add(0, 0, 0, 0)
    async with rig.running():
        await asyncio.sleep(1)
        assert rig.moved_in() == {0: 1}, "the next one in nine seconds"
        rig.rate, rig.portion, rig.free_ms = 1000.0, 50, 0
        rig.topics.known["t"] = TOPIC.model_copy(update={"rate": 1000.0})
        rig.rated.want(rig.shards[0])
        await asyncio.sleep(0.01)
    assert rig.moved_in() == {0: 3}


@pytest.mark.parametrize(
    "change", [{"rate": None}, {"paused": True}, None], ids=["without a rate", "paused", "deleted"]
)
@in_virtual_time
async def test_a_topic_that_does_not_go_by_its_rate_any_more_is_given_back_at_once(
    change: dict[str, Any] | None,
) -> None:
    rig = Rated()
    if change is None:
        del rig.topics.known["t"]
    else:
        rig.topics.known["t"] = TOPIC.model_copy(update=change)
    rig.add(0, 0)
    async with rig.running():
        await asyncio.sleep(0.01)
    assert ([shard for shard, _ in rig.given_back], rig.moved, rig.link.calls["permit"]) == ([0], [], [])
    assert rig.given_back[0][1] < 0, "now"


@in_virtual_time
async def test_a_move_that_fails_gives_its_shard_back_for_a_while_and_the_other_goes_on() -> None:
    rig = Rated(portion=2)
    rig.add(0, -2)
    rig.add(1, -1)
    rig.fail_moves = 1
    async with rig.running():
        await asyncio.sleep(0.1)
    assert rig.given_back[0] == (0, pytest.approx(0.05))
    assert rig.moved_in() == {1: 1}


@in_virtual_time
async def test_heads_that_can_not_be_read_are_asked_for_again_later() -> None:
    rig = Rated()
    rig.link.answers["ZRANGE"] = lambda _: ResponseError("LOADING")
    rig.add(0, 0)
    async with rig.running():
        await asyncio.sleep(0.02)
    assert rig.given_back == [(0, pytest.approx(0.05, abs=0.001))]


@in_virtual_time
async def test_without_permits_it_tries_again_at_growing_intervals() -> None:
    rig = Rated()
    permit = rig.permit
    asked: list[int] = []

    def refused(_: Call) -> ResponseError:
        asked.append(now_ms())
        return ResponseError("BUSY")

    rig.link.answers["permit"] = refused
    rig.add(0, 0)
    async with rig.running():
        await asyncio.sleep(1)
        rig.link.answers["permit"] = permit
        await asyncio.sleep(2)
    pauses = [after - before for before, after in pairwise(asked)]
    assert pauses == pytest.approx([50, 100, 200, 400], abs=1)
    assert rig.moved_in() == {0: 1}
