"""Where an attempt starts: with time left, or not at all."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from types import SimpleNamespace
from typing import Any

import pytest

from streamdq.claims import End, Held, Outcome
from streamdq.config import TopicSettings
from streamdq.handlers import handler_of
from streamdq.job import Job
from streamdq.keys import ShardKeys
from streamdq.runner import Runner

SHARD = ShardKeys("ns", "t", 0)
NOW_MS = 1_800_000_000_000


def held(body: str, ttr_ms: int, asked: float) -> Held:
    job = Job("t", body, body.encode(), NOW_MS - 5, NOW_MS - 5, attempt=1)
    one = Held(SHARD, "g", job, b"1800000000000-0", b"", NOW_MS - 5)
    one.ttr_ms, one.deadline = ttr_ms, asked + ttr_ms / 1000
    return one


class Rig:
    """A runner of one handler; what it tells Redis is kept here."""

    def __init__(self, function: Callable[..., Any], batch: int | None = None) -> None:
        self.ends: list[End] = []
        self.ended = asyncio.Event()
        topics: Any = SimpleNamespace(known={"t": TopicSettings()})
        handler = handler_of("t", function, batch, None, None)
        self.runner = Runner(
            {"t": handler}, "g", 10, topics, lambda: NOW_MS, "me", ended=self._end, touched=self._touch, on_dead=()
        )

    def _end(self, end: End) -> None:
        self.ends.append(end)
        self.ended.set()

    async def _touch(self, _held: Held, _ttr_ms: int) -> None: ...

    async def run(self, *jobs: Held) -> dict[str, Outcome]:
        """How each of them ended, by its body."""
        self.runner.take(list(jobs))
        async with asyncio.timeout(10):
            while len(self.ends) < len(jobs):
                self.ended.clear()
                await self.ended.wait()
        await self.runner.close(1)
        return {end.held.job.id: end.outcome for end in self.ends}


def stopped_until(moment: float) -> None:
    """What SIGSTOP does to a process."""
    time.sleep(max(0.0, moment - time.monotonic()) + 0.001)


class LateThreads(Executor):
    """Calls begin when their jobs' time is over, as in a process that was stopped just then."""

    def __init__(self, moment: float) -> None:
        self._moment = moment

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def call() -> None:
            stopped_until(self._moment)
            future.set_result(function(*args, **kwargs))

        threading.Thread(target=call).start()
        return future


@pytest.mark.parametrize("batch", [None, 10])
async def test_a_job_whose_time_passed_before_its_task_began_does_not_start(batch: int | None) -> None:
    seen: list[Any] = []

    async def handle(body: list[int]) -> None:
        seen.append(body)

    rig = Rig(handle if batch else lambda body: seen.append(body), batch)
    asked = time.monotonic() - 1
    late, early = held("1", 1050, asked), held("2", 60_000, asked)
    asyncio.get_running_loop().call_soon(stopped_until, late.deadline)  # before the tasks that take() makes
    assert await rig.run(late, early) == {"1": Outcome.RELEASED, "2": Outcome.DONE}
    assert seen == [[2] if batch else 2]
    assert [end.held.started_ms for end in rig.ends if end.outcome is Outcome.RELEASED] == [0]


@pytest.mark.parametrize("batch", [None, 10])
async def test_a_job_whose_time_passed_while_it_waited_for_its_thread_does_not_start(batch: int | None) -> None:
    seen: list[Any] = []
    rig = Rig(lambda body: seen.append(body), batch)
    asked = time.monotonic() - 1
    late, early = held("1", 1050, asked), held("2", 60_000, asked)
    rig.runner._threads = LateThreads(late.deadline)  # type: ignore[assignment]
    assert await rig.run(late, early) == {"1": Outcome.RELEASED, "2": Outcome.DONE}
    assert seen == [[2] if batch else 2]


async def test_where_the_claim_takes_longer_than_the_ttr_the_attempt_fails() -> None:
    """Handed back, it would be claimed again at once, for ever."""
    seen: list[Any] = []
    rig = Rig(lambda body: seen.append(body))
    assert await rig.run(held("1", 1, time.monotonic() - 0.01)) == {"1": Outcome.RETRY}
    assert (seen, rig.ends[0].error) == ([], "TimeoutError: its TTR of 1 ms passed before the attempt could start")
