"""Ends that are sent before anything else runs in the loop: a process that is killed then has sent them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from streamdq.link.command import Command
from streamdq.link.failures import LinkError
from streamdq.operations.attempts.ends import AttemptResult
from tests.unit.fake_redis import LOST, call_of
from tests.unit.virtual_time import in_virtual_time
from tests.unit.worker.test_ends import Sending


class AtOnce(Sending):
    """Its link has a connection for that, while it is ``open``."""

    def __init__(self, *, cluster: bool = False) -> None:
        super().__init__(cluster=cluster)
        self.open = True
        self.link.begin = self._begin

    def _begin(self, commands: Sequence[Command], _timeout_s: float) -> Callable[[], Awaitable[list[Any]]] | None:
        if not self.open:
            return None
        return partial(self._replies, [self.link.answers[call.name](call) for call in map(call_of, commands)])

    async def _replies(self, begun: list[Any]) -> list[Any]:
        await asyncio.sleep(self.link.takes_s)  # real time: virtual here
        if isinstance(begun[0], LinkError):
            raise begun[0]
        return begun

    def burst(self, count: int, each_s: float) -> None:
        """So many attempts end in one iteration of the loop, each of which takes so long."""
        clock: Any = time.monotonic
        for number in range(count):
            self.put(str(number))
            clock.now_s += each_s


@in_virtual_time
async def test_no_more_is_unsent_than_what_ended_in_a_millisecond() -> None:
    rig = AtOnce()
    async with rig.running():
        rig.burst(100, 0.0001)
        reported = [id for _, _, ids in rig.sent for id in ids]
        assert 100 - len(reported) <= 11
        assert len(rig.sent) <= 10, "and not one by one"
        await rig.sender.drained()
        assert sorted(int(id) for _, _, ids in rig.sent for id in ids) == [*range(100)], "each once"
    assert sum(len(ids) for ids, _ in rig.received) == 100
    assert rig.sender.size == 0


@in_virtual_time
async def test_also_while_a_call_is_under_way() -> None:
    rig = AtOnce()
    async with rig.running():
        rig.put("first")
        await asyncio.sleep(0.005)
        assert [ids for _, _, ids in rig.sent] == [["first"]]
        rig.burst(20, 0.0005)
        assert len(rig.sent) > 1
        await rig.sender.drained()
    assert len(rig.received) == len(rig.sent)


@in_virtual_time
async def test_when_it_ends_calls_that_are_under_way_leave_no_connection_open() -> None:
    rig = AtOnce()
    dropped: list[int] = []
    rig.link.drop_begun = lambda: dropped.append(len(rig.sender._begun))
    async with rig.running():
        await asyncio.sleep(0.005)
        rig.burst(20, 0.001)
        assert rig.sender._begun
    assert dropped == [0]


@pytest.mark.parametrize(("is_open", "cluster"), [(False, False), (True, True)])
@in_virtual_time
async def test_without_a_connection_for_it_the_loop_sends_them(is_open: bool, cluster: bool) -> None:
    rig = AtOnce(cluster=cluster)
    rig.open = is_open
    async with rig.running():
        rig.burst(50, 0.0005)
        assert rig.sent == []
        await rig.sender.drained()
    assert sum(len(ids) for ids, _ in rig.received) == 50


@in_virtual_time
async def test_what_was_not_confirmed_is_sent_again() -> None:
    rig = AtOnce()
    rig.link.answers["finish"] = lambda _: LOST
    async with rig.running():
        rig.burst(10, 0.0005)
        await asyncio.sleep(0.05)
        assert (rig.received, rig.sender.size) == ([], 10)
        rig.link.answers["finish"] = rig.take
        await rig.sender.drained()
    assert sorted(int(id) for ids, _ in rig.received for id in ids) == [*range(10)]


@in_virtual_time
async def test_a_loop_that_ends_leaves_no_task_and_keeps_what_it_does_not_know() -> None:
    rig, before = AtOnce(), asyncio.all_tasks()
    async with rig.running():
        await asyncio.sleep(0.001)
        rig.burst(10, 0.0005)
    await asyncio.sleep(0)  # the tasks' callbacks
    assert asyncio.all_tasks() == before
    assert rig.sender.size == 10
    async with rig.running():
        await rig.sender.drained()
    assert rig.sender.size == 0


@in_virtual_time
async def test_an_end_that_cannot_be_sent_is_left_to_the_loop() -> None:
    rig = AtOnce()
    clock: Any = time.monotonic
    async with rig.running():
        rig.put("good")
        bad = rig.sender._waiting[next(iter(rig.sender._waiting))][0].held
        bad.job.id = None  # type: ignore[assignment]
        clock.now_s += 0.002
        rig.put("later", AttemptResult.DONE)
        await rig.sender.drained()
    assert [ids for ids, _ in rig.received] == [["later"]]
