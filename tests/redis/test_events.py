"""Following a topic: the rows of its history, as they are written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from streamdq import AsyncQueue, InvalidInput, JobEvent, Queue, UnknownTopic
from streamdq.queue import store_of
from tests.redis.harness import Space
from tests.servers import Cluster, Server
from tests.waiting import HANG_S, eventually


def end(space: Space, *ids: str, shards: int = 1, fails: bool = False) -> None:
    """Enqueues jobs, and ends an attempt of each."""
    space.queue.configure("t", shards=shards, create=True, retry="0")
    for id in ids:
        space.queue.enqueue("t", 1, id=id)
        claim = space.queue.take("t", timeout=HANG_S)
        assert claim
        claim.fail(ValueError("no answer")) if fails else claim.finish()


def shown(events: Iterator[JobEvent]) -> list[str]:
    return [f"{event.row.event} {event.row.id}" for event in events]


def test_from_now_on_from_a_time_and_from_a_position(space: Space) -> None:
    end(space, "a", "b")
    queue = space.queue
    from_now = queue.events("t", timeout=0)
    assert shown(iter(from_now)) == []
    assert shown(iter(queue.events("t", since="1h", timeout=0))) == []
    earlier = queue.events("t", since="-1h", timeout=0)
    first = next(iter(earlier))
    assert shown(iter(queue.events("t", since=earlier.position, timeout=0))) == ["done b"]
    queue.enqueue("t", 1, id="c", delay="1h")
    queue.cancel("t", "c")
    assert first.row.id == "a"
    assert shown(iter(earlier)) == ["done b", "cancelled c"]
    assert shown(iter(from_now)) == ["cancelled c"]
    assert from_now.position == earlier.position
    ago = queue.events("t", since=timedelta(hours=-1), timeout=0)
    assert shown(iter(ago)) == ["done a", "done b", "cancelled c"]


def test_each_event_says_what_failed(space: Space) -> None:
    end(space, "a", fails=True)
    (event,) = space.queue.events("t", since="-1h", timeout=0)
    assert (event.row.event, event.row.error, event.message) == ("retry", "ValueError", "ValueError: no answer")
    space.queue.cancel("t", "a")


def test_what_is_no_row_is_passed_over_and_many_rows_come_in_pages(
    space: Space, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.operations.history.events.MAX_BATCH", 2)
    end(space, "a")
    history = store_of(space.queue).session.keys.shard("t", 0).history
    with redis_server.client() as client:
        for _ in range(4):
            client.xadd(history, {"e": "somebody's"})
    events = space.queue.events("t", since="-1h", timeout=0)
    end(space, "b", "c", "d")
    assert shown(iter(events)) == ["done a", "done b", "done c", "done d"]


def test_more_shards_come_while_it_is_followed(space: Space) -> None:
    end(space, "a")
    events = space.queue.events("t", timeout=0)
    assert shown(iter(events)) == []
    ids = [f"j{n}" for n in range(12)]
    end(space, *ids, shards=4)
    assert sorted(shown(iter(events))) == sorted(f"done {id}" for id in ids)
    position = events.position
    assert len(position.split(",")) == 4
    assert shown(iter(space.queue.events("t", since=position, timeout=0))) == []


def test_on_a_cluster(spread: Space) -> None:
    ids = [f"j{n}" for n in range(12)]
    end(spread, *ids, shards=4)
    events = spread.queue.events("t", since="-1h", timeout=0)
    assert sorted(shown(iter(events))) == sorted(f"done {id}" for id in ids)


async def waited_for(url: str, space: Space, wanted: int) -> list[str]:
    """What comes to somebody who waits already."""
    end(space, "before", shards=4)
    async with AsyncQueue(url, space.queue.namespace, settings=space.settings) as queue:
        events, found = queue.events("t"), list[str]()

        async def follow() -> None:
            async for event in events:
                found.append(event.row.id)
                if len(found) == wanted:
                    return

        following = asyncio.create_task(follow())
        await eventually(lambda: events.position, "it has begun")
        for n in range(wanted):
            space.queue.enqueue("t", 1, id=f"j{n}", delay="1h")
            space.queue.cancel("t", f"j{n}")
        await asyncio.wait_for(following, HANG_S)
    return found


async def test_it_waits_for_the_next_event(space: Space, redis_server: Server) -> None:
    assert sorted(await waited_for(redis_server.url, space, 3)) == ["j0", "j1", "j2"]


async def test_it_waits_on_a_cluster(spread: Space, redis_cluster: Cluster) -> None:
    assert sorted(await waited_for(redis_cluster.url, spread, 3)) == ["j0", "j1", "j2"]


def test_a_topic_that_is_missing_or_deleted_meanwhile(space: Space) -> None:
    with pytest.raises(UnknownTopic):
        list(space.queue.events("t", timeout=0))
    end(space, "a")
    events = space.queue.events("t", timeout=0)
    assert list(events) == []
    space.queue.delete_topic("t", force=True)
    with pytest.raises(UnknownTopic):
        list(events)


def test_what_is_no_position_is_refused() -> None:
    wrong: list[Any] = ["yesterday", "0:", "0:1", "0:1-99999999999999999999", "0:1-1,", "x:1-1", 1.5j]
    with Queue("memory://events") as queue:
        for since in wrong:
            with pytest.raises(InvalidInput, match=r"^since: "):
                queue.events("t", since=since)
