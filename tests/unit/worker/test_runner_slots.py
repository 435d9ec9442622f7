"""How many handlers run at once, in which order, and in batches of which size."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamdq.operations.attempts.ends import AttemptResult
from streamdq.worker import deadline, slots
from tests.unit.virtual_time import in_virtual_time
from tests.unit.worker.rig import Rig, held
from tests.waiting import HANG_S


class Stage:
    """Handlers that begin when they are called and end on demand."""

    def __init__(self) -> None:
        self.on: list[Any] = []  # who is on it now
        self.calls: list[Any] = []
        self.most = 0
        self._ends: dict[str, asyncio.Event] = {}

    async def handle(self, body: Any) -> None:
        self.calls.append(body)
        self.on.append(body)
        self.most = max(self.most, len(self.on))
        try:
            await self._ends.setdefault(str(body), asyncio.Event()).wait()
        finally:
            self.on.remove(body)

    async def end(self, body: Any) -> None:
        """It returns, and what follows from that has happened."""
        self._ends.setdefault(str(body), asyncio.Event()).set()
        await asyncio.sleep(0.001)


@pytest.fixture
def _all_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes back for want of a slot."""
    monkeypatch.setattr(slots, "_HOLD_S", 3600.0)


@pytest.mark.usefixtures("_all_wait")
@in_virtual_time
async def test_no_more_run_than_there_are_slots_and_the_next_one_starts_when_one_ends() -> None:
    stage = Stage()
    rig = Rig(stage.handle, concurrency=3)
    rig.runner.take([held(str(n)) for n in range(6)])
    await asyncio.sleep(0.001)
    assert stage.on == [0, 1, 2]
    assert rig.slots.room(ahead=False) == (0, 0)
    await stage.end(1)
    assert stage.on == [0, 2, 3], "in the order in which they came"
    for n in (0, 2, 3, 4, 5):
        await stage.end(n)
    assert stage.most == 3
    assert [end.outcome for end in rig.ends] == [AttemptResult.DONE] * 6
    assert (rig.runner.idle, rig.slots.room(ahead=False)) == (True, (3, 3))


@pytest.mark.usefixtures("_all_wait")
@in_virtual_time
async def test_what_waits_counts_as_room_taken() -> None:
    stage = Stage()
    rig = Rig(stage.handle, concurrency=3)
    rig.runner.take([held("0")])
    assert rig.slots.room(ahead=False) == (2, 2)
    rig.runner.take([held(str(n)) for n in range(1, 5)])
    assert rig.slots.room(ahead=False) == (0, 0)
    await asyncio.sleep(0.001)
    await stage.end(0)
    assert rig.slots.room(ahead=False) == (0, 0), "one that waited has the slot"
    assert rig.slots.freed.is_set()


@pytest.mark.usefixtures("_all_wait")
@pytest.mark.parametrize(
    ("batch", "jobs", "calls"),
    [
        (3, 7, [[0, 1, 2], [3, 4, 5], [6]]),
        (3, 2, [[0, 1]]),
        (1, 2, [[0], [1]]),
        (500, 4, [[0, 1, 2, 3]]),
    ],
)
@in_virtual_time
async def test_a_batch_is_one_call_and_takes_one_slot(batch: int, jobs: int, calls: list[list[int]]) -> None:
    stage = Stage()
    rig = Rig(stage.handle, batch, concurrency=2)
    rig.runner.take([held(str(n)) for n in range(jobs)])
    await asyncio.sleep(0.001)
    assert stage.on == calls[:2]
    for call in calls:
        await stage.end(call)
    assert stage.calls == calls
    assert {end.held.job.id: end.outcome for end in rig.ends} == {str(n): AttemptResult.DONE for n in range(jobs)}


@in_virtual_time
async def test_a_batch_without_what_does_not_fit_is_called_with_the_rest() -> None:
    calls: list[Any] = []

    async def handle(bodies: list[int], job: list[Any]) -> None:
        calls.append((bodies, [one.id for one in job]))

    rig = Rig(handle, 4)
    crashed = held("3")
    crashed.crashes = 5
    assert await rig.run(held("1"), held('"two"'), crashed, held("4")) == {
        "1": AttemptResult.DONE, '"two"': AttemptResult.DEAD, "3": AttemptResult.DEAD, "4": AttemptResult.DONE,
    }  # fmt: skip
    assert calls == [([1, 4], ["1", "4"])]
    assert {end.held.job.id: end.reason for end in rig.ends if end.reason} == {'"two"': "invalid", "3": "crashed"}


@in_virtual_time
async def test_where_none_of_a_batch_fits_nothing_is_called() -> None:
    calls: list[Any] = []

    async def handle(bodies: list[int]) -> None:
        calls.append(bodies)

    rig = Rig(handle, 4)
    assert await rig.run(held('"one"'), held('"two"')) == {'"one"': AttemptResult.DEAD, '"two"': AttemptResult.DEAD}
    assert (calls, rig.runner.idle) == ([], True)


async def test_threads_are_bounded_as_well() -> None:
    inside, most, lock, both = 0, 0, threading.Lock(), threading.Barrier(2)

    def handle(_body: int) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        both.wait(HANG_S)  # there are two at once, or this fails
        with lock:
            inside -= 1

    rig = Rig(handle, concurrency=2)
    for pair in ("01", "23", "45"):
        rig.runner.take([held(n) for n in pair])
        await rig.have_ended(int(pair[1]) + 1)
    assert (most, {end.outcome for end in rig.ends}) == (2, {AttemptResult.DONE})
    await rig.close()


@pytest.mark.parametrize("makes", [lambda: None, lambda: ValueError("no")], ids=["done", "failed"])
async def test_a_thread_that_outlives_its_ttr_keeps_its_slot(
    makes: Callable[[], Exception | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can't be cancelled; its attempt has ended, and what it does in the end changes nothing more."""
    monkeypatch.setattr(deadline, "_ROUND_S", 0.001)
    begun, go_on = threading.Event(), threading.Event()

    def handle(_body: int) -> None:
        begun.set()
        go_on.wait(HANG_S)
        if error := makes():
            raise error

    rig = Rig(handle, concurrency=1, retry="1s")
    one = held("1")
    rig.runner.take([one])
    assert await asyncio.to_thread(begun.wait, 10)
    one.deadline = 0.0  # its time has passed
    watch = asyncio.create_task(rig.deadlines.run())
    assert await rig.have_ended(1) == {"1": AttemptResult.RETRY}
    assert rig.ends[0].error == "TimeoutError: TTR 1m passed"
    await rig.freed(lambda: rig.runner.idle)
    assert rig.slots.room(ahead=False) == (0, 0)
    go_on.set()
    await rig.freed(lambda: rig.slots.room(ahead=False) == (1, 1))
    assert len(rig.ends) == 1
    watch.cancel()
    await rig.close()
