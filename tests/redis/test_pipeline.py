"""Pipelines: single calls that travel together, and threads whose calls do."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from streamdq import AsyncQueue, JobExists, NewJob, Queue
from streamdq.config import MAX_BATCH
from streamdq.errors import (
    InvalidInput,
    NotSent,
    ServerUnavailable,
)
from streamdq.operations.jobs.pipeline import Pipeline
from tests.redis.harness import NAMESPACE, SETTINGS, Space
from tests.redis.proxies import proxy
from tests.servers import Server, script_calls


class Failing:
    """A pipeline whose block ends with an ExceptionGroup: its message and its errors."""

    def __init__(self, queue: Queue) -> None:
        self._pipe = queue.pipeline()
        self.message = ""
        self.errors: list[Exception] = []

    def __enter__(self) -> Pipeline:
        return self._pipe.__enter__()

    def __exit__(self, *error: object) -> None:
        with pytest.raises(ExceptionGroup) as raised:
            self._pipe.__exit__(*error)  # type: ignore[arg-type]
        self.message, self.errors = raised.value.message, list(raised.value.exceptions)


def calls_of(server: Server) -> int:
    with server.client() as client:
        return script_calls(client)


def test_each_call_has_its_own_job(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", shards=2)
    space.queue.enqueue_many("t", [NewJob(0, id="taken")])
    before = calls_of(redis_server)
    with space.queue.pipeline() as pipe:
        made = [pipe.enqueue("t", {"n": n}, id=f"j{n}", delay=60 + n) for n in range(100)]
        kept = pipe.enqueue("t", 1, id="taken", on_conflict="keep")
        other = pipe.enqueue("u", 2, delay="1h", ttr="5s", key="k")
        assert space.queue.stats("t").topics["t"].jobs == 1
    assert calls_of(redis_server) - before <= 12  # with those that make the topic u, and that of stats
    assert [one.job.id for one in made] == [one.id for one in made] == [f"j{n}" for n in range(100)]
    assert kept.job.body == 0
    for one in (*made[::20], kept, other):
        found = space.queue.get(one.job.topic, one.id)
        assert found is not None
        assert (found.body, found.due_ms, found.created_ms, found.ttr_ms, found.key) == (
            one.job.body, one.job.due_ms, one.job.created_ms, one.job.ttr_ms, one.job.key,
        )  # fmt: skip


def test_what_fails_is_raised_at_the_end_and_the_rest_is_there(space: Space) -> None:
    space.queue.enqueue("t", 0, id="taken", delay="1h")
    failing = Failing(space.queue)
    with failing as pipe:
        first = pipe.enqueue("t", 1, id="a", delay="1h")
        taken = pipe.enqueue("t", 2, id="taken")
        twice = pipe.enqueue("t", 3, id="a")
        last = pipe.enqueue("t", 4, id="b", delay="1h")
    assert failing.message == "2 of 4 jobs were not enqueued"
    assert [error.id for error in failing.errors if isinstance(error, JobExists)] == ["taken", "a"]
    assert [first.job.body, last.job.body] == [1, 4]
    assert [one.error is None for one in (first, taken, twice, last)] == [True, False, False, True]
    for _ in range(2):
        with pytest.raises(JobExists, match="taken"):
            _ = taken.job
    assert space.queue.stats("t").topics["t"].jobs == 3


def test_an_exception_in_the_block_sends_nothing(space: Space) -> None:
    space.queue.configure("t", create=True)
    with suppress(KeyError), space.queue.pipeline() as pipe:
        one = pipe.enqueue("t", 1)
        raise KeyError
    assert space.queue.stats("t").topics["t"].enqueued == 0
    with pytest.raises(NotSent, match=one.id):
        _ = one.job
    assert one.error is None


def test_what_was_sent_before_an_exception_is_there(space: Space) -> None:
    with suppress(InvalidInput), space.queue.pipeline() as pipe:
        made = [pipe.enqueue("t", n) for n in range(MAX_BATCH + 10)]
        assert space.queue.stats("t").topics["t"].enqueued == MAX_BATCH
        pipe.enqueue("t", None)
        pytest.fail("a blank body is refused at once")
    assert space.queue.stats("t").topics["t"].enqueued == MAX_BATCH
    assert made[MAX_BATCH - 1].job.body == MAX_BATCH - 1
    with pytest.raises(NotSent):
        _ = made[MAX_BATCH].job


def test_the_order_is_kept(space: Space) -> None:
    """That of jobs due in the same millisecond, and of calls with the same id, whatever their kind."""
    at_ms = space.queue.enqueue("other", 1).created_ms + 3_600_000
    with space.queue.pipeline() as pipe:
        for n in range(300):
            pipe.enqueue("t", n, at=at_ms)
            pipe.enqueue("u", n, at=at_ms)
        pipe.enqueue("t", "first", id="a", delay="1h")
        pipe.enqueue("t", "second", id="a", delay="1h", on_conflict="replace")
        third = pipe.enqueue("t", "third", id="a", on_conflict="keep")
        pipe.enqueue("t", "fourth", id="b", unique_for="1h", delay="1h")
        fifth = pipe.enqueue("t", "fifth", id="b", on_conflict="keep")
    for topic in ("t", "u"):
        found = [job.body for job in space.queue.find(topic, due=(at_ms, at_ms)) if isinstance(job.body, int)]
        assert found == list(range(300))
    assert space.job("a").body == third.job.body == "second"
    assert fifth.job.body == "fourth"


async def test_awaited(space: Space) -> None:
    async with AsyncQueue(space.url, NAMESPACE, settings=SETTINGS) as queue:
        await queue.enqueue("t", 0, id="taken", delay="1h")
        with suppress(ExceptionGroup):
            async with queue.pipeline() as pipe:
                made = [await pipe.enqueue("t", n, delay="1h", window="10m") for n in range(MAX_BATCH + 1)]
                taken = await pipe.enqueue("t", 1, id="taken")
        assert isinstance(taken.error, JobExists)
        assert [one.job.body for one in made] == list(range(MAX_BATCH + 1))
        with suppress(KeyError):
            async with queue.pipeline() as pipe:
                unsent = await pipe.enqueue("t", 1)
                raise KeyError
        with pytest.raises(NotSent):
            _ = unsent.job
    assert space.queue.stats("t").topics["t"].enqueued == MAX_BATCH + 2


def test_a_server_that_does_not_answer_costs_one_deadline(
    redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swallow(data: bytes, _to_redis: bool) -> bytes:
        return b"" if b"swallowed" in data else data

    with proxy(redis_server.port, swallow) as between, Queue(between.url, NAMESPACE, settings=SETTINGS) as queue:
        for n in range(4):
            queue.enqueue(f"t{n}", "before")  # it learns what it needs, which may take its time
        before = between.connections
        monkeypatch.setattr(queue._store.session, "settings", Space.quick())
        failing = Failing(queue)
        with failing as pipe:
            made = [pipe.enqueue(f"t{n % 4}", "swallowed") for n in range(8)]
        sent = between.connections - before
    assert [type(error) for error in failing.errors] == [ServerUnavailable] * 8
    assert all(isinstance(one.error, ServerUnavailable) for one in made)
    assert len({id(one.error) for one in made}) == 8
    assert sent <= 6


def test_a_forked_child_enqueues_what_it_was_handed_once(space: Space) -> None:
    queue = space.another_queue()
    queue.configure("t", create=True)
    with queue.pipeline() as pipe:
        made = [pipe.enqueue("t", n, delay="1h") for n in range(3)]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                pipe.enqueue("t", "child", delay="1h")
                pipe.__exit__(None, None, None)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    assert [one.job.body for one in made] == [0, 1, 2]
    assert space.queue.stats("t").topics["t"].enqueued == 4


@pytest.mark.parametrize("arrived", [False, True])
def test_what_was_interrupted_is_sent_at_the_end(space: Space, monkeypatch: pytest.MonkeyPatch, arrived: bool) -> None:
    """By a signal while a full pipeline was sent, before Redis had the jobs or behind that; the block goes on."""
    queue = space.another_queue()
    queue.configure("t", shards=2)
    send = queue._link.send

    def interrupted(*args: Any) -> Any:
        monkeypatch.undo()
        if arrived:
            send(*args)
        raise KeyboardInterrupt

    with queue.pipeline() as pipe:
        made = [pipe.enqueue("t", n, delay="1h") for n in range(MAX_BATCH - 1)]
        monkeypatch.setattr(queue._link, "send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pipe.enqueue("t", "interrupted", delay="1h")
        made.append(pipe.enqueue("t", MAX_BATCH - 1, delay="1h"))
    assert [one.job.body for one in made] == list(range(MAX_BATCH))
    assert space.queue.stats("t").topics["t"].enqueued == MAX_BATCH + 1
    assert space.audit().balanced


async def test_what_was_cancelled_is_sent_at_the_end(space: Space, redis_server: Server) -> None:
    space.queue.configure("t", create=True)
    silent, loop, asked = True, asyncio.get_running_loop(), asyncio.Event()

    def swallow(data: bytes, to_redis: bool) -> bytes:
        if silent and to_redis:
            loop.call_soon_threadsafe(asked.set)
        return b"" if silent and not to_redis else data

    with proxy(redis_server.port, swallow) as between:
        async with AsyncQueue(between.url, NAMESPACE, settings=SETTINGS) as queue:
            silent = False
            await queue.enqueue("t", "first", delay="1h")
            async with queue.pipeline() as pipe:
                made = [await pipe.enqueue("t", n, delay="1h") for n in range(MAX_BATCH - 1)]
                silent = True
                sending = asyncio.create_task(pipe.enqueue("t", "cancelled", delay="1h"))
                await asked.wait()
                sending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await sending
                silent = False
            assert [one.job.body for one in made] == list(range(MAX_BATCH - 1))
    assert space.queue.stats("t").topics["t"].enqueued == MAX_BATCH + 1


# -- threads


@pytest.mark.parametrize("on_conflict", ["reject", "keep", "replace"])
def test_of_threads_with_the_same_id_each_gets_its_own_answer(space: Space, on_conflict: Any) -> None:
    space.queue.configure("t", create=True)

    def one(n: int) -> Any:
        try:
            return space.queue.enqueue("t", n, id=f"j{n % 7}", delay="1h", on_conflict=on_conflict).body
        except JobExists:
            return None

    with ThreadPoolExecutor(30) as threads:
        made = list(threads.map(one, range(300)))
    left = {space.job(f"j{n}").body for n in range(7)}
    if on_conflict == "replace":
        assert made == list(range(300))
        assert len(left) == 7
    else:
        assert {body for body in made if body is not None} == left
        assert (made.count(None) == 293) == (on_conflict == "reject")
    assert space.audit().balanced
