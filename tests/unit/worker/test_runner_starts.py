"""Where an attempt starts: with time left, or not at all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from streamdq.config import START_WITHIN_S
from streamdq.operations.attempts.ends import AttemptResult
from tests.unit.virtual_time import in_virtual_time
from tests.unit.worker.rig import Rig, held


def stopped_until(moment: float) -> None:
    """What SIGSTOP does to a process."""
    clock: Any = time.monotonic
    clock.now_s = moment + 0.001


class LateThreads(Executor):
    """Calls begin when their jobs' time is over, as in a process that was stopped just then. There are no threads, as
    time is virtual.
    """

    def __init__(self, moment: float = 0.0) -> None:
        self._moment = moment

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        stopped_until(max(self._moment, time.monotonic()))
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future


@pytest.mark.parametrize("batch", [None, 10])
@in_virtual_time
async def test_a_job_whose_time_passed_before_its_task_began_does_not_start(batch: int | None) -> None:
    seen: list[Any] = []

    async def handle(body: list[int]) -> None:
        seen.append(body)

    rig = Rig(handle if batch else lambda body: seen.append(body), batch)
    asked = time.monotonic() - 0.3
    late, early = held("1", 320, asked), held("2", 60_000, asked)
    rig.runner._threads = LateThreads()  # type: ignore[assignment]
    asyncio.get_running_loop().call_soon(stopped_until, late.deadline)  # before the tasks that take() makes
    assert await rig.run(late, early) == {"1": AttemptResult.RELEASED, "2": AttemptResult.DONE}
    assert seen == [[2] if batch else 2]
    assert [end.held.started_ms for end in rig.ends if end.outcome is AttemptResult.RELEASED] == [0]


@pytest.mark.parametrize("batch", [None, 10])
@in_virtual_time
async def test_a_job_whose_time_passed_while_it_waited_for_its_thread_does_not_start(batch: int | None) -> None:
    seen: list[Any] = []
    rig = Rig(lambda body: seen.append(body), batch)
    asked = time.monotonic() - 0.3
    late, early = held("1", 320, asked), held("2", 60_000, asked)
    rig.runner._threads = LateThreads(late.deadline)  # type: ignore[assignment]
    assert await rig.run(late, early) == {"1": AttemptResult.RELEASED, "2": AttemptResult.DONE}
    assert seen == [[2] if batch else 2]


@in_virtual_time
async def test_where_the_claim_takes_longer_than_the_ttr_the_attempt_fails() -> None:
    """Handed back, it would be claimed again at once, for ever."""
    seen: list[Any] = []
    rig = Rig(lambda body: seen.append(body))
    assert await rig.run(held("1", 1, time.monotonic() - 0.01)) == {"1": AttemptResult.RETRY}
    assert (seen, rig.ends[0].error) == ([], "TimeoutError: its TTR of 1 ms passed before the attempt could start")


@in_virtual_time
async def test_what_was_claimed_a_second_ago_does_not_start_though_it_has_time_left() -> None:
    """A caller that paused the topic since has waited for that long, and counts on it."""
    seen: list[Any] = []
    rig = Rig(lambda body: seen.append(body))
    asked = time.monotonic() - START_WITHIN_S
    assert await rig.run(held("1", 60_000, asked)) == {"1": AttemptResult.RELEASED}
    assert seen == []


async def test_what_waits_for_a_slot_goes_back_and_nothing_more_is_fetched_ahead_for_a_while() -> None:
    go_on = asyncio.Event()

    async def handle(_body: int) -> None:
        await go_on.wait()

    rig = Rig(handle)
    rig.slots._mean_s = 0.0
    for _ in range(30):
        rig.slots._ended_lately.count(time.monotonic())
    most, at_once = rig.slots.room(ahead=True)
    assert (most > 10, at_once) == (True, 10)
    assert rig.slots.room(ahead=False) == (10, 10)
    before = time.monotonic()
    rig.runner.take([held(str(n), 60_000, before) for n in range(15)])
    await rig.have_ended(5)
    assert [end.held.job.id for end in rig.ends] == ["10", "11", "12", "13", "14"]
    assert {end.outcome for end in rig.ends} == {AttemptResult.RELEASED}
    assert all(end.held.started_ms == 0 for end in rig.ends)
    assert rig.slots.room(ahead=True) == (0, 0)
    go_on.set()
    await asyncio.wait(rig.runner._running)
    rig.slots._mean_s = 0.0
    assert rig.slots.room(ahead=True) == (10, 10), "ten have just ended, but others had to go back"


async def test_nothing_is_fetched_ahead_of_handlers_that_are_all_held_up() -> None:
    """The mean of those that have ended does not contain these."""
    rig = Rig(lambda body: body)
    rig.slots._mean_s = 0.0001
    assert rig.slots.room(ahead=True) == (10, 10)
