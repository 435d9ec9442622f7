"""When the mover looks at which shard next."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from unittest.mock import patch

import pytest

from streamdq.keys import NamespaceKeys
from streamdq.mover.shard_timers import NEVER, ShardTimers
from tests.unit.virtual_time import in_virtual_time
from tests.waiting import HANG_S

A, B = (NamespaceKeys("ns").shard("t", number) for number in range(2))


def test_the_earliest_time_counts() -> None:
    timers, now = ShardTimers(), time.monotonic()
    assert timers.at(A, now + 60) == NEVER
    assert timers.at(A, now + 61) == 0.0
    assert timers.take_due() == []
    assert timers.at(A, now) == pytest.approx(60)
    assert timers.take_due() == [A]
    assert timers.take_due() == []


def test_a_wakeup_during_a_look_outlives_what_the_look_finds() -> None:
    """The reply of a look that was under way says 15 s, and is out of date when it comes."""
    timers = ShardTimers()
    timers.at(A)
    assert timers.take_due() == [A]
    timers.at(A)  # the wakeup
    timers.at(A, time.monotonic() + 15)  # the reply
    assert timers.take_due() == [A]


def test_a_shard_is_uncertain_until_a_look_has_succeeded() -> None:
    timers, now = ShardTimers(), time.monotonic()
    timers.at(A)
    assert not timers.is_uncertain(A)
    timers.take_due()
    assert timers.is_uncertain(A), "a look is under way"
    timers.at(A, now)  # it failed, and there was a pause
    assert timers.is_uncertain(A)
    assert timers.take_due() == [A]
    timers.looked(A, now + 60)
    assert not timers.is_uncertain(A)
    assert timers.at(A, now) == pytest.approx(60)


def test_shards_that_are_gone_are_not_looked_at() -> None:
    timers = ShardTimers()
    timers.at(A)
    timers.at(B)
    timers.drop([A])
    assert A not in timers
    assert timers.take_due() == [B]


def test_times_that_became_earlier_again_and_again_are_not_kept() -> None:
    """As with a job in an hour, and others before it that come one by one."""
    timers, later = ShardTimers(), time.monotonic() + 3600
    for _ in range(1_000):
        timers.at(A, later)
        timers.at(A)
        assert timers.take_due() == [A]
    timers.at(A, later)
    timers.at(B, later - 1)
    assert len(timers._queue) < 250
    assert timers._first() == later - 1


async def test_waiting_ends_with_the_first_time_or_an_earlier_one() -> None:
    timers = ShardTimers()
    timers.at(A, time.monotonic() + 0.05)
    async with asyncio.timeout(HANG_S):
        await timers.wait()
    assert timers.take_due() == [A]
    waiting = asyncio.create_task(timers.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    timers.at(A, time.monotonic() + 3600)
    timers.at(B)
    async with asyncio.timeout(HANG_S):
        await waiting
    assert timers.take_due() == [B]


@in_virtual_time
async def test_an_event_loop_whose_timers_end_early_makes_no_look_early() -> None:
    """As uvloop's do, by up to a millisecond: a look then would find nothing, and be followed by another."""
    loop, early_s = asyncio.get_running_loop(), [0.0002, 0.0009]
    call_at = loop.call_at

    def call_early(when: float, *args: Any, **options: Any) -> asyncio.TimerHandle:
        return call_at(when - (early_s.pop() if early_s else 0.0), *args, **options)

    timers, due = ShardTimers(), time.monotonic() + 0.05
    timers.at(A, due)
    with patch.object(loop, "call_at", call_early):
        await timers.wait()
    assert not early_s
    assert time.monotonic() >= due
    assert timers.take_due() == [A]


def test_a_shard_that_is_dropped_during_a_look_stays_dropped() -> None:
    for ended in (ShardTimers.looked, ShardTimers.failed):
        timers = ShardTimers()
        timers.at(A)
        assert timers.take_due() == [A]
        timers.drop([A])
        ended(timers, A, time.monotonic())
        assert A not in timers
        assert not timers.is_uncertain(A)


def test_of_many_shards_some_are_looked_at_in_turn() -> None:
    timers, shards = ShardTimers(), [NamespaceKeys("ns").shard("t", number) for number in range(5)]
    for shard in shards:
        timers.at(shard)
    timers.take_due()
    found = []
    for _ in range(4):
        timers.some(2)
        found.append(timers.take_due())
    assert found == [shards[:2], shards[2:4], shards[4:], shards[:2]]
