"""A worker in an event loop whose tasks begin at once: what it does depends on no order of beginnings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from streamdq import Bury, Job, NewJob, Snooze
from tests.eager import eager_loop
from tests.redis.harness import Space


@pytest.fixture
def eagerly() -> Callable[[Coroutine[Any, Any, None]], None]:
    def run(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=eager_loop) as runner:
            runner.run(main)

    return run


Eagerly = Callable[[Coroutine[Any, Any, None]], None]


def test_every_end_of_an_attempt(space: Space, eagerly: Eagerly) -> None:
    async def main() -> None:
        worker, ran = space.worker(), []
        dead: list[str] = []

        @worker.handler("t", retry="0")
        async def handle(body: str, job: Job) -> None:
            ran.append((body, job.attempt))
            if body == "raises" and job.attempt == 1:
                raise ValueError("as told")
            if body == "snoozes" and not job.snoozed:
                raise Snooze(0)
            if body == "buried":
                raise Bury("as told")

        @worker.handler("threads")
        def in_thread(body: str) -> None:
            ran.append((body, 1))

        @worker.handler("batch", batch=3)
        async def batch(bodies: list[str]) -> None:
            ran.extend((body, 1) for body in bodies)

        @worker.on_dead
        async def note(job: Job) -> None:
            dead.append(job.id)

        space.queue.enqueue_many("t", [NewJob(what, id=what) for what in ("done", "raises", "snoozes", "buried")])
        space.queue.enqueue_many("batch", [NewJob(f"batch {number}") for number in range(4)])
        space.queue.enqueue("threads", "thread")
        await worker.serve(burst=True)
        assert sorted(ran) == sorted([
            ("done", 1), ("raises", 1), ("raises", 2), ("snoozes", 1), ("snoozes", 1), ("buried", 1), ("thread", 1),
            *((f"batch {number}", 1) for number in range(4)),
        ])  # fmt: skip
        assert dead == ["buried"]

    eagerly(main())
