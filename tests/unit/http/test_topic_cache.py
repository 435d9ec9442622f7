"""The latest reading of all topics: how often it is read, and how old it may be."""

from __future__ import annotations

import asyncio

import pytest

from streamdq.errors import ServerUnavailable
from streamdq.http.topic_cache import TopicCache, TopicReading
from streamdq.operations.topics.stats import Concern, GroupStats, Stats, TopicStats

SECONDS = "streamdq.http.topic_cache"
STATS = Stats(topics={"good": TopicStats(), "bad": TopicStats(groups={"g": GroupStats(dead=1)})})


class Reading:
    """Counts how often it is read; an error is raised, an event awaited."""

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def __call__(self) -> Stats:
        self.count += 1
        await self.goes_on.wait()
        if self.error:
            raise self.error
        return STATS


async def test_all_who_ask_at_once_get_one_reading() -> None:
    reading = Reading()
    cache = TopicCache(reading)
    found = await asyncio.gather(*(cache.latest() for _ in range(5)))
    assert all(isinstance(one, TopicReading) and one.stats is STATS for one in found)
    assert reading.count == 1
    assert found[0]
    assert found[0].concerns == {"good": Concern.NONE, "bad": Concern.DEAD}


async def test_it_is_read_again_while_the_last_one_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading()
    cache = TopicCache(reading)
    first = await cache.latest()
    monkeypatch.setattr(f"{SECONDS}.EVERY_S", 0.0)
    reading.goes_on.clear()
    assert await cache.latest() is first, "nobody waits"
    assert await cache.latest() is first, "there is one reading at a time"
    reading.goes_on.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await cache.latest() is not first
    await cache.close()


async def test_nobody_waits_long_and_nobody_gets_an_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading()
    cache = TopicCache(reading)
    monkeypatch.setattr(f"{SECONDS}._WAIT_S", 0.001)
    reading.goes_on.clear()
    assert await cache.latest() is None
    reading.goes_on.set()
    monkeypatch.setattr(f"{SECONDS}._WAIT_S", 5.0)
    assert await cache.latest() is not None
    monkeypatch.setattr(f"{SECONDS}.OLDEST_S", 0.0)
    assert await cache.latest() is None
    assert reading.count == 1


async def test_without_redis_there_is_none_and_it_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading()
    cache = TopicCache(reading)
    reading.error = ServerUnavailable("away")
    assert await cache.latest() is None
    reading.error = None
    assert await cache.latest() is None, "not with each look"
    monkeypatch.setattr(f"{SECONDS}.EVERY_S", 0.0)
    assert await cache.latest() is not None
    assert reading.count == 2
