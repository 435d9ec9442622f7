"""Ends on their way to Redis: what travels together, and what becomes of those that Redis does not take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from redis.exceptions import ResponseError

from streamdq.config import MAX_CLAIM, GroupSettings, TopicSettings
from streamdq.keys import ShardKeys
from streamdq.operations.attempts.ends import AttemptResult, End
from streamdq.store.replies import Refused
from streamdq.worker import ends as module
from streamdq.worker.ends import EndSender
from tests.unit.fake_redis import LOST, Call, Rig
from tests.unit.virtual_time import in_virtual_time
from tests.unit.worker.rig import NOW_MS, held, member_of

TOPIC = TopicSettings(groups={"g": GroupSettings()}, shards=2)
A, B = ShardKeys("ns", "t", 0), ShardKeys("ns", "t", 1)


class Sending(Rig):
    """A sender of outcomes, and a Redis that notes what it was sent: (script, shard, ids)."""

    def __init__(self, *, cluster: bool = False) -> None:
        super().__init__({"t": TOPIC}, takes_s=0.01, call_timeout_s=0.001)
        self.link.is_cluster = cluster
        self.sent: list[tuple[str, int, list[str]]] = []
        self.received: list[tuple[list[str], set[int]]] = []
        for name in ("finish", "retry", "bury", "release"):
            self.link.answers[name] = self.take
        self.sender = EndSender(member_of(self.link, self.store), self)

    def take(self, call: Call) -> Any:
        width, first = {"finish": (4, 7), "release": (4, 7), "retry": (8, 9), "bury": (7, 9)}[call.name]
        shard = int(call.keys[0].split("}")[0].rpartition(":")[2])
        self.sent.append((call.name, shard, list(call.args[first::width])))
        return [NOW_MS]

    def confirmed(self, ends: Sequence[End], refused: Refused) -> None:
        self.received.append(([end.held.job.id for end in ends], set(refused.stale)))

    def put(
        self, id: str, outcome: AttemptResult = AttemptResult.DONE, shard: ShardKeys = A, generation: str = "0"
    ) -> None:
        one = held(id)
        one.shard, one.generation = shard, generation
        self.sender.put(End(one, outcome))

    async def run(self) -> None:
        await self.sender.run()


@in_virtual_time
async def test_what_ends_while_a_call_is_under_way_travels_together_in_the_next() -> None:
    rig = Sending()
    async with rig.running():
        rig.put("1")
        rig.put("2")
        await asyncio.sleep(0.005)
        for id in "345":
            rig.put(id)
        assert rig.sender.unsent == 5
        await rig.sender.drained()
    assert rig.sent == [("finish", 0, ["1", "2"]), ("finish", 0, ["3", "4", "5"])]
    assert (rig.sender.size, rig.received) == (0, [(["1", "2"], set()), (["3", "4", "5"], set())])


@in_virtual_time
async def test_what_the_next_iterations_of_the_loop_bring_travels_along_up_to_a_whole_batch() -> None:
    rig = Sending()
    async with rig.running():
        for number in range(400):
            rig.put(str(number))
            if number % 50 == 49:  # the attempts of one iteration have ended, and others take their slots
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        await rig.sender.drained()
    assert [len(ids) for _, _, ids in rig.sent] == [MAX_CLAIM, 400 - MAX_CLAIM]


@in_virtual_time
async def test_no_end_waits_for_long_though_others_follow_each_other() -> None:
    rig = Sending()
    clock: Any = time.monotonic
    async with rig.running():
        for number in range(20):
            rig.put(str(number))
            clock.now_s += module._GATHER_S / 10  # a handler keeps the event loop to itself
            await asyncio.sleep(0)
        assert 2 <= len(rig.sent[0][2]) <= 15
        await rig.sender.drained()


@in_virtual_time
async def test_each_shard_outcome_and_generation_has_a_call_of_its_own() -> None:
    rig = Sending()
    async with rig.running():
        rig.put("1")
        rig.put("2", AttemptResult.RETRY)
        rig.put("3", shard=B)
        rig.put("4", generation="1")
        rig.put("5", AttemptResult.SNOOZED)
        rig.put("6")
        await rig.sender.drained()
    assert rig.sent == [
        ("finish", 0, ["1", "6"]), ("retry", 0, ["2"]), ("finish", 1, ["3"]), ("finish", 0, ["4"]), ("retry", 0, ["5"]),
    ]  # fmt: skip


@in_virtual_time
async def test_more_than_a_call_may_carry_is_sent_in_several() -> None:
    rig = Sending()
    async with rig.running():
        for number in range(450):
            rig.put(str(number), AttemptResult.RETRY)
        await rig.sender.drained()
    assert [len(ids) for _, _, ids in rig.sent] == [200, 200, 50]
    assert [id for _, _, ids in rig.sent for id in ids] == [str(number) for number in range(450)]


@pytest.mark.parametrize("fault", [LOST, ResponseError("OOM command not allowed")], ids=["lost", "refused"])
@in_virtual_time
async def test_what_redis_does_not_take_is_kept_and_sent_again(fault: Exception) -> None:
    rig = Sending()
    broken = 3

    def take(call: Call) -> Any:
        nonlocal broken
        broken -= 1
        return fault if broken >= 0 else rig.take(call)

    rig.link.answers["finish"] = take
    async with rig.running():
        rig.put("1")
        await asyncio.sleep(0.1)
        rig.put("2")
        assert (rig.sender.unsent, rig.received) == (2, [])
        await rig.sender.drained()
    assert rig.received == [(["1", "2"], set())]
    assert rig.sender.size == 0


@in_virtual_time
async def test_an_outcome_that_is_refused_does_not_hold_up_the_others() -> None:
    rig = Sending()
    rig.link.answers["retry"] = lambda _: ResponseError("OOM")
    async with rig.running():
        rig.put("1", AttemptResult.RETRY)
        rig.put("2")
        await asyncio.sleep(1)
        assert rig.received == [(["2"], set())]
        rig.link.answers["retry"] = rig.take
        await rig.sender.drained()
    assert rig.received[1:] == [(["1"], set())]


@in_virtual_time
async def test_on_cluster_a_lost_node_holds_up_its_own_shards_alone() -> None:
    rig = Sending(cluster=True)

    def take(call: Call) -> Any:
        return LOST if ":0}" in call.keys[0] else rig.take(call)

    rig.link.answers["finish"] = take
    async with rig.running():
        rig.put("1")
        await asyncio.sleep(0.1)
        assert rig.sender.failing == {A}
        assert rig.sender.unsent == 0, "others may be claimed meanwhile"
        rig.put("2", shard=B)
        await asyncio.sleep(0.05)
        assert rig.received == [(["2"], set())]
        rig.link.answers["finish"] = rig.take
        await rig.sender.drained()
    assert rig.received[1:] == [(["1"], set())]
    assert rig.sender.failing == set()


@pytest.mark.parametrize("cluster", [False, True])
@in_virtual_time
async def test_what_waits_when_the_loop_has_failed_is_sent_when_it_runs_again(cluster: bool) -> None:
    rig = Sending(cluster=cluster)

    def breaks(_: Call) -> Any:
        raise RuntimeError

    rig.link.answers["finish"] = breaks
    rig.put("1")
    with pytest.raises(RuntimeError):
        await rig.run()
    rig.link.answers["finish"] = rig.take
    async with rig.running():
        await rig.sender.drained()
    assert rig.received == [(["1"], set())]


@in_virtual_time
async def test_a_loop_that_is_cancelled_leaves_no_task() -> None:
    rig, before = Sending(cluster=True), asyncio.all_tasks()
    async with rig.running():
        rig.put("1")
        await asyncio.sleep(0.005)
    assert asyncio.all_tasks() == before


@in_virtual_time
async def test_refused_ones_are_named_by_index() -> None:
    rig = Sending()
    rig.link.answers["finish"] = lambda _: [NOW_MS, 2]
    async with rig.running():
        for id in "123":
            rig.put(id)
        await rig.sender.drained()
    assert rig.received == [(["1", "2", "3"], {1})]
