"""A name of a class that writes itself otherwise, such as ``class Topics(str, Enum)``, is the text that it holds."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest
import redis

from streamdq import AsyncQueue, InvalidInput, Job, Topic, Worker
from tests.redis.harness import SETTINGS, Seen, Space, recorder


class Odd(str):
    """Whatever is written of it but by its own characters is wrong."""

    __slots__ = ()

    def __str__(self) -> str:
        return "WRONG"

    def __format__(self, how: str) -> str:
        return "WRONG"

    def __repr__(self) -> str:
        return "WRONG"


class Topics(str, Enum):  # noqa: UP042 - what many programs have
    CLOSE = "order.close"


def wrong_keys(space: Space) -> list[str]:
    """What Redis holds of such names: keys, and fields and members of each."""
    found = []
    with redis.Redis.from_url(space.url) as client:
        for key in client.scan_iter():
            dumped = client.dump(key) or b""
            if b"WRONG" in key or b"WRONG" in dumped or b"Topics" in key:
                found.append(key.decode())
    return found


T, ID, GROUP, KEY = Odd("t"), Odd("j"), Odd("g"), Odd("k")


async def test_an_enum_of_topics_reaches_its_worker(space: Space, seen: Seen) -> None:
    worker = Worker(space.url, Odd("test"), GROUP, settings=SETTINGS)

    @worker.handler(Topics.CLOSE)
    async def close(body: dict[str, Any], job: Job) -> None:
        seen.add((job.topic, job.id, body["n"]))

    @worker.schedule(Odd("nightly"), id=Odd("s"), every="1h")
    async def nightly(body: dict[str, Any]) -> None:
        seen.add(body)

    space.queue.configure("order.close", groups=["g"])
    async with AsyncQueue(space.url, Odd("test"), settings=SETTINGS) as queue:
        await queue.enqueue(Topics.CLOSE, {"n": 1}, id=ID)
        await Topic(Topics.CLOSE, dict).enqueue(queue, {"n": 2}, id="two")
    await worker.serve(burst=True)
    assert sorted(seen.all) == [("order.close", "j", 1), ("order.close", "two", 2)]
    assert wrong_keys(space) == []
    assert set(space.queue.stats().topics) == {"order.close", "nightly"}
    space.queue.unschedule("nightly", "s")


def slips_logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for record in caplog.records if "did_you_mean" in (text := record.getMessage())]


async def test_a_worker_whose_topic_is_like_another_is_warned_of(
    space: Space, caplog: pytest.LogCaptureFixture
) -> None:
    space.queue.enqueue("order.close", {"n": 1})
    worker = space.worker()
    for name in ("ordr.close", "mails.new", "mails.news"):  # the latter two are both its own
        worker.handler(name)(recorder(Seen()))
    await space.burst(worker)
    await space.burst(worker)
    (text,) = slips_logged(caplog)
    assert "topic='ordr.close' did_you_mean='order.close'" in text
    assert "`streamdq topic delete ordr.close`" in text


def test_a_new_topic_that_nobody_serves_and_that_is_like_another_is_warned_of_once(
    space: Space, caplog: pytest.LogCaptureFixture
) -> None:
    def warned() -> list[str]:
        return slips_logged(caplog)

    space.queue.enqueue("order.close", {"n": 1})
    space.queue.enqueue("shop-1", {"n": 1})
    space.queue.enqueue("shop-2", {"n": 1})
    assert warned() == []
    for _ in range(3):
        space.queue.enqueue("ordr.close", {"n": 1})
        space.another_queue().enqueue("ordr.close", {"n": 1})
    (text,) = warned()
    assert "ordr.close" in text
    assert "order.close" in text


def test_a_handler_takes_no_pattern() -> None:
    for name in ("*", "order.*"):
        with pytest.raises(InvalidInput, match=r"no pattern.*every_topic"):
            Worker("memory://names").handler(name)
