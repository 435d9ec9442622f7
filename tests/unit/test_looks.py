"""When the mover looks at which shard next."""

from __future__ import annotations

import asyncio
import time

from streamdq.keys import NamespaceKeys
from streamdq.mover.looks import NEVER, Looks

A, B = (NamespaceKeys("ns").shard("t", number) for number in range(2))


def test_the_earliest_time_counts() -> None:
    looks, now = Looks(), time.monotonic()
    assert looks.at(A, now + 60) == NEVER
    assert looks.at(A, now + 61) == 0.0
    assert looks.take_due() == []
    assert looks.at(A, now) == 60.0
    assert looks.take_due() == [A]
    assert looks.take_due() == []


def test_a_ring_during_a_look_outlives_what_the_look_finds() -> None:
    """The reply of a look that was under way says 15 s, and is out of date by then."""
    looks = Looks()
    looks.at(A)
    assert looks.take_due() == [A]
    looks.at(A)  # the ring
    looks.at(A, time.monotonic() + 15)  # the reply
    assert looks.take_due() == [A]


def test_shards_that_are_gone_are_not_looked_at() -> None:
    looks = Looks()
    looks.at(A)
    looks.at(B)
    looks.drop([A])
    assert A not in looks
    assert looks.take_due() == [B]


async def test_waiting_ends_with_the_first_time_or_an_earlier_one() -> None:
    looks = Looks()
    looks.at(A, time.monotonic() + 0.05)
    async with asyncio.timeout(5):
        await looks.wait()
    assert looks.take_due() == [A]
    waiting = asyncio.create_task(looks.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    looks.at(A, time.monotonic() + 3600)
    looks.at(B)
    async with asyncio.timeout(5):
        await waiting
    assert looks.take_due() == [B]
