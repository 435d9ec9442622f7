"""How an attempt ends, by what its handler does, by the clock, and by the drain: before and after, in tables."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import pytest

from streamdq import InvalidInput, Job, RunningJob, StaleClaim
from streamdq.config import GroupSettings
from streamdq.job.retry import Bury, Retry, Snooze
from streamdq.operations.attempts.ends import AttemptResult, DeadReason, End
from streamdq.process.loop import cancel_and_wait
from streamdq.store.replies import Refused
from streamdq.worker import runner as module
from streamdq.worker import slots
from tests.unit.virtual_time import in_virtual_time
from tests.unit.worker.rig import Rig, held
from tests.waiting import HANG_S, forever


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def generated() -> Any:
    yield 1


async def generated_later() -> Any:
    yield 1


LAZY: dict[str, Callable[[], Any]] = {
    "generator": generated, "async_generator": generated_later, "map": lambda: map(int, "1"),
}  # fmt: skip


def raises(error: BaseException) -> Callable[[], Any]:
    def do() -> Any:
        raise error

    return do


RETRY, SNOOZED, DEAD, DONE, RELEASED = (
    AttemptResult.RETRY,
    AttemptResult.SNOOZED,
    AttemptResult.DEAD,
    AttemptResult.DONE,
    AttemptResult.RELEASED,
)
# What the handler does; the step that the job is at; outcome, delay_ms, steps, reason, error. The schedule: 1s 2s.
ENDINGS: list[tuple[Callable[[], Any], int, tuple[AttemptResult, int, int, str, str]]] = [
    (lambda: None, 0, (DONE, 0, 0, "", "")),
    (lambda: "a result", 0, (DONE, 0, 0, "", "")),
    (raises(ValueError("no")), 0, (RETRY, 1000, 1, "", "ValueError: no")),
    (raises(ValueError("no")), 1, (RETRY, 2000, 1, "", "ValueError: no")),
    (raises(ValueError("no")), 2, (DEAD, 0, 0, DeadReason.EXHAUSTED, "ValueError: no")),
    (raises(Retry("7s", "later")), 2, (RETRY, 7000, 0, "", "Retry: later")),
    (raises(Retry(reason="next")), 1, (RETRY, 2000, 1, "", "Retry: next")),
    (raises(Retry(reason="busy", at_least="9s")), 0, (RETRY, 9000, 1, "", "Retry: busy")),
    (raises(Retry(reason="next")), 2, (DEAD, 0, 0, DeadReason.EXHAUSTED, "Retry: next")),
    (raises(Snooze("3s", "not yet")), 2, (SNOOZED, 3000, 0, "", "Snooze: not yet")),
    (raises(Bury("no such user")), 0, (DEAD, 0, 0, DeadReason.BURIED, "no such user")),
    (raises(KeyboardInterrupt()), 0, (RETRY, 1000, 1, "", "KeyboardInterrupt: ")),
    (raises(SystemExit(1)), 0, (RETRY, 1000, 1, "", "SystemExit: 1")),
    (raises(Mute()), 0, (RETRY, 1000, 1, "", "Mute: its message can't be read")),
    (raises(asyncio.CancelledError()), 0, (RETRY, 1000, 1, "", "CancelledError: the handler cancelled itself")),
    (raises(StopAsyncIteration(5)), 0, (RETRY, 1000, 1, "", "StopAsyncIteration: 5")),
    *(
        (lazy, 0, (RETRY, 1000, 1, "", f"TypeError: the handler returned a {kind}: none of its code has run"))
        for kind, lazy in LAZY.items()
    ),
]  # fmt: skip


def end_of(end: End) -> tuple[AttemptResult, int, int, str, str]:
    return end.outcome, end.delay_ms, end.steps, end.reason, end.error


@pytest.mark.parametrize("batch", [None, 5], ids=["one", "batch"])
@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize(("does", "step", "ends"), ENDINGS)
async def test_what_follows_from_what_a_handler_does(
    does: Callable[[], Any], step: int, ends: Any, kind: str, batch: int | None
) -> None:
    def in_thread(_body: Any) -> Any:
        return does()

    async def in_loop(_body: Any) -> Any:
        return does()

    rig = Rig(in_loop if kind == "async" else in_thread, batch, retry="1s 2s")
    one = held("1")
    one.job.step = step
    await rig.run(one)
    assert [end_of(end) for end in rig.ends] == [ends]
    assert (rig.runner.idle, rig.slots.room(ahead=False)) == (True, (10, 10))


@pytest.mark.parametrize(
    ("kind", "error"), [("thread", "StopIteration: 5"), ("async", "RuntimeError: coroutine raised StopIteration")]
)
async def test_stop_iteration_ends_an_attempt_and_no_loop(kind: str, error: str) -> None:
    """No Future holds one; a coroutine makes a RuntimeError of it."""

    def in_thread(_body: Any) -> Any:
        raise StopIteration(5)

    async def in_loop(_body: Any) -> Any:
        raise StopIteration(5)

    rig = Rig(in_loop if kind == "async" else in_thread, retry="1s")
    assert await rig.run(held("1"), held("2")) == {"1": RETRY, "2": RETRY}
    assert {end.error for end in rig.ends} == {error}


@pytest.mark.parametrize(
    ("own", "step", "ends"), [("5s", 0, (RETRY, 5000)), ("5s", 1, (DEAD, 0)), ("none", 0, (DEAD, 0))]
)
async def test_a_jobs_own_schedule_comes_before_its_topics(
    own: str, step: int, ends: tuple[AttemptResult, int]
) -> None:
    rig = Rig(lambda _body: raises(ValueError("no"))(), retry="1s 2s")
    one = held("1")
    one.job.retry, one.job.step = own, step
    await rig.run(one)
    assert [(end.outcome, end.delay_ms) for end in rig.ends] == [ends]


async def test_what_is_confirmed_leaves_nothing_to_the_garbage_collector() -> None:
    """A job and its attempt that refer to each other would, each time; and the collector stops everything."""

    async def handle(body: int, _job: Job) -> None:
        if body == 7002:
            raise ValueError("no")

    def left() -> list[RunningJob]:
        return [one for one in gc.get_objects() if type(one) is RunningJob and one.id in ("7001", "7002")]

    rig = Rig(handle, retry="1s")
    gc.disable()
    try:
        await rig.run(held("7001"), held("7002"))
        assert len(left()) == 2
        rig.ends.clear()
        assert left() == []
    finally:
        gc.enable()


async def test_a_job_of_an_attempt_that_has_ended_is_no_longer_running_here() -> None:
    kept: list[RunningJob] = []

    async def handle(_body: int, job: RunningJob) -> None:
        job.touch()
        assert job.time_left_s() > 0
        kept.append(job)

    await Rig(handle).run(held("1"))
    for call in (kept[0].touch, kept[0].time_left_s):
        with pytest.raises(StaleClaim, match="job '1' is not running here"):
            call()


# -- TTR


@in_virtual_time
async def test_a_handler_that_is_over_its_ttr_is_cut_off_and_the_others_are_not() -> None:
    cancelled: list[tuple[int, Any]] = []
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def handle(body: int) -> None:
        try:
            await asyncio.sleep(3)
        except asyncio.CancelledError:
            cancelled.append((body, loop.time() - began))
            raise

    rig = Rig(handle, retry="1s")
    watch = asyncio.create_task(rig.deadlines.run())
    rig.runner.take([held("1", 1000), held("2", 5000)])
    assert await rig.have_ended(2) == {"1": RETRY, "2": DONE}
    assert cancelled == [(1, pytest.approx(0.9, abs=0.001))]
    assert rig.ends[0].error == "TimeoutError: TTR 1s passed"
    watch.cancel()


async def is_cut_off(_body: int) -> None:
    await forever()


async def goes_on(_body: int) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await forever()
    await forever()


async def cleans_up_for_long(_body: int) -> None:
    try:
        await forever()
    finally:
        await forever()


@pytest.mark.parametrize("does", [is_cut_off, goes_on, cleans_up_for_long])
@pytest.mark.parametrize("ttr_ms", [20, 100, 444, 1_000, 4_000])
@in_virtual_time
async def test_its_end_is_on_its_way_before_its_ttr_has_passed(
    ttr_ms: int, does: Callable[[int], Coroutine[Any, Any, None]]
) -> None:
    """Else the job may have been taken over: it would start at once, and not by its schedule. As after a touch."""
    loop = asyncio.get_running_loop()

    async def handle(body: int, job: RunningJob) -> None:
        if body == 2:
            job.touch(f"{ttr_ms * 2}ms")
        await does(body)

    rig = Rig(handle, retry="1h")
    watch = asyncio.create_task(rig.deadlines.run())
    await asyncio.sleep(0.013)  # in the middle between two rounds
    began = loop.time()
    rig.runner.take([held("1", ttr_ms), held("2", ttr_ms)])
    for count, ttr_s in ((1, ttr_ms / 1000), (2, ttr_ms / 500)):
        assert (await rig.have_ended(count))[str(count)] is RETRY
        left_s = began + ttr_s - loop.time()
        assert 0.04 * ttr_s <= left_s + 0.001 or left_s >= 0.1
        assert left_s <= min(0.2, ttr_s / 10) + 0.001, "nor was it cut off earlier than documented"
        assert rig.ends[-1].held.took_s == pytest.approx(ttr_s - left_s, abs=0.001)
    watch.cancel()


@in_virtual_time
async def test_a_ttr_that_a_touch_makes_short_counts_at_once() -> None:
    """Not only from the next round on."""
    loop = asyncio.get_running_loop()

    async def handle(_body: int, job: RunningJob) -> None:
        await asyncio.sleep(1.013)
        job.touch("30ms")
        await forever()

    rig = Rig(handle, retry="1h")
    watch = asyncio.create_task(rig.deadlines.run())
    began = loop.time()
    rig.runner.take([held("1")])
    await rig.have_ended(1)
    assert loop.time() - began == pytest.approx(1.04, abs=0.0011)
    assert rig.ends[0].held.took_s == pytest.approx(1.04, abs=0.0011)
    watch.cancel()


@in_virtual_time
async def test_a_touch_after_the_cut_comes_too_late() -> None:
    """It neither reaches Redis nor makes the attempt seem shorter, nor does the handler hear of it as an error."""

    async def handle(_body: int, job: RunningJob) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await forever()
        job.touch("10s")
        await forever()

    rig = Rig(handle, retry="1h")
    watch = asyncio.create_task(rig.deadlines.run())
    rig.runner.take([held("1", 2000)])
    assert await rig.have_ended(1) == {"1": RETRY}
    assert rig.touches == []
    assert rig.ends[0].error == "TimeoutError: TTR 2s passed"
    assert 1.8 <= rig.ends[0].held.took_s <= 2
    watch.cancel()


@in_virtual_time
async def test_one_that_goes_on_though_it_was_cut_off_has_ended_and_keeps_its_slot() -> None:
    go_on = asyncio.Event()

    async def handle(_body: int) -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    rig = Rig(handle, concurrency=1, retry="1s")
    watch = asyncio.create_task(rig.deadlines.run())
    rig.runner.take([held("1", 1000)])
    assert await rig.have_ended(1) == {"1": RETRY}
    assert rig.slots.room(ahead=False) == (0, 0)
    await asyncio.sleep(60)
    assert len(rig.ends) == 1
    go_on.set()
    await asyncio.sleep(0.001)
    assert (rig.slots.room(ahead=False), len(rig.ends)) == ((1, 1), 1), "what it returned is no second end"
    watch.cancel()


@in_virtual_time
async def test_a_batch_is_cut_off_as_a_whole_when_the_first_ttr_passes() -> None:
    async def handle(_bodies: list[int]) -> None:
        await forever()

    rig = Rig(handle, 5, retry="1s")
    watch = asyncio.create_task(rig.deadlines.run())
    rig.runner.take([held("1", 1000), held("2", 60_000)])
    assert await rig.have_ended(2) == {"1": RETRY, "2": RETRY}
    watch.cancel()


@pytest.mark.parametrize(
    ("touches", "reported"),
    [((["9s", "5s"], ["2s"]), [5000, 2000]), (([None], [None]), [1000, 1000]), (([], ["2s"]), [2000])],
)
@in_virtual_time
async def test_a_touch_moves_the_deadline_at_once_and_the_last_one_is_sent(
    touches: tuple[list[str | None], ...], reported: list[int]
) -> None:
    async def handle(_body: int, job: RunningJob) -> None:
        for each in touches:
            await asyncio.sleep(0.8 if each else 0.01)
            for ttr in each:
                job.touch(ttr)
        await asyncio.sleep(0.8)

    rig = Rig(handle, retry="1s")
    watch = asyncio.create_task(rig.deadlines.run())
    rig.runner.take([held("1", 1000)])
    assert await rig.have_ended(1) == {"1": DONE}, "it took longer than the second that it began with"
    assert rig.touches == [("1", ttr_ms) for ttr_ms in reported]
    watch.cancel()


# -- what waits for a slot, and the drain


async def ignores_cancellation(_body: int) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await forever()
    await forever()


async def quick(_body: int) -> None:
    await asyncio.sleep(0.5)  # real time: none passes, it is virtual


async def slow(_body: int) -> None:
    await forever()


async def slow_and_angry(_body: int) -> None:
    try:
        await forever()
    except asyncio.CancelledError:
        raise ValueError("not now") from None


@pytest.mark.parametrize(
    ("handler", "grace_s", "ends", "takes_s"),
    [
        (quick, 1.0, {"1": DONE, "2": RELEASED}, 0.5),
        (quick, 0.1, {"1": RELEASED, "2": RELEASED}, 0.1),
        (slow, 1.0, {"1": RELEASED, "2": RELEASED}, 1.0),
        (slow, 0.0, {"1": RELEASED, "2": RELEASED}, 0.0),
        (slow_and_angry, 1.0, {"1": RETRY, "2": RELEASED}, 1.0),
        (ignores_cancellation, 1.0, {"1": RELEASED, "2": RELEASED}, 1.0 + module._IGNORES_CANCEL_S),
    ],
)
@in_virtual_time
async def test_the_drain(handler: Any, grace_s: float, ends: dict[str, AttemptResult], takes_s: float) -> None:
    """Job 1 runs, job 2 waits for its slot."""
    loop = asyncio.get_running_loop()
    rig = Rig(handler, concurrency=1, retry="1s")
    rig.runner.take([held("1"), held("2")])
    await asyncio.sleep(0)
    began = loop.time()
    await rig.runner.drain(grace_s)
    await asyncio.sleep(0)
    assert {end.held.job.id: end.outcome for end in rig.ends} == ends
    assert loop.time() - began == pytest.approx(takes_s)
    assert [end.held.started_ms > 0 for end in rig.ends if end.held.job.id == "2"] == [False], "it has not begun"


@in_virtual_time
async def test_an_attempt_that_is_cancelled_together_with_its_worker_goes_back() -> None:
    """asyncio.run does that; the attempt may end before the worker begins to drain."""
    rig = Rig(forever)
    worker = asyncio.create_task(forever())
    rig.runner._ends.serve_in(worker)
    rig.runner.take([held("1")])
    await asyncio.sleep(0)
    for task in [*rig.runner._running, worker]:
        task.cancel()
    await asyncio.wait([worker])
    assert await rig.have_ended(1) == {"1": RELEASED}


@in_virtual_time
async def test_what_was_over_its_ttr_when_the_drain_came_has_failed_and_is_not_handed_back() -> None:
    rig = Rig(slow, retry="1s")
    watch = asyncio.create_task(rig.deadlines.run())
    rig.runner.take([held("1", 1000), held("2", 60_000)])
    await rig.runner.drain(5.0)
    await asyncio.sleep(0)
    assert {end.held.job.id: end.outcome for end in rig.ends} == {"1": RETRY, "2": RELEASED}
    watch.cancel()


@in_virtual_time
async def test_a_second_signal_ends_the_grace() -> None:
    rig = Rig(slow)
    rig.runner.take([held("1")])
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0.2, rig.runner.hurry)
    began = asyncio.get_running_loop().time()
    await rig.runner.drain(3600)
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.2)
    assert await rig.have_ended(1) == {"1": RELEASED}


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("how", ["hurry", "drain", "ttr", "worker"])
async def test_what_a_thread_has_returned_before_its_attempt_is_cancelled(how: str, batch: int | None) -> None:
    """The loop was blocked, and does not know of it yet."""
    began, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def handle(_body: Any) -> Any:
        loop.call_soon_threadsafe(began.set)
        go_on.wait(HANG_S)
        return None if batch is None else [None]

    rig, one = Rig(handle, batch, groups={"g": GroupSettings(result_ms=1000)}), held("1")
    rig.runner.take([one])
    await began.wait()
    assert one.thread
    go_on.set()
    one.thread.result(HANG_S)
    (task,) = rig.runner._running
    if how == "hurry":
        rig.runner.hurry()
    elif how == "drain":
        await rig.runner.drain(0)
    elif how == "ttr":
        rig.deadlines._cut(task, [one], time.monotonic())
    else:
        task.cancel()
    assert await rig.have_ended(1) == {"1": DONE}
    assert one.result
    await rig.close()


async def test_a_thread_has_returned_a_coroutine_before_its_attempt_is_cancelled() -> None:
    """It must not run after that."""
    began, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def handle(_body: int) -> Any:
        loop.call_soon_threadsafe(began.set)
        go_on.wait(HANG_S)
        return forever()

    rig, one = Rig(handle), held("1")
    rig.runner.take([one])
    await began.wait()
    assert one.thread
    go_on.set()
    one.thread.result(HANG_S)
    rig.runner.hurry()
    assert await rig.have_ended(1) == {"1": RELEASED}
    await rig.freed(lambda: rig.slots.room(ahead=False) == (10, 10))
    await rig.close()


@in_virtual_time
async def test_what_finds_no_slot_soon_goes_back() -> None:
    loop = asyncio.get_running_loop()
    rig = Rig(slow, concurrency=1)
    rig.runner.take([held("1"), held("2")])
    began = loop.time()
    assert await rig.have_ended(1) == {"2": RELEASED}
    assert loop.time() - began == pytest.approx(slots._HOLD_S)
    assert len(rig.runner._running) == 1
    await rig.runner.drain(0)


@in_virtual_time
async def test_what_was_asked_for_before_others_went_back_goes_back_as_well() -> None:
    """It is behind these: another worker gets them in their order."""
    rig = Rig(slow, concurrency=1)
    before = held("3")
    await asyncio.sleep(0.01)
    rig.runner.take([held("1"), held("2")])
    await rig.have_ended(1)
    rig.runner.take([before])
    assert {end.held.job.id: end.outcome for end in rig.ends} == {"2": RELEASED, "3": RELEASED}, "at once"
    await rig.runner.drain(0)


# -- what Redis says of it


@in_virtual_time
async def test_a_dead_job_is_reported_once_redis_has_it_and_a_stale_one_is_not() -> None:
    reported: list[tuple[str, Any]] = []

    async def on_dead(job: Job) -> None:
        reported.append((job.id, job.groups["g"].error))

    async def handle(_body: int) -> None:
        raise Bury("no")

    rig = Rig(handle, on_dead=on_dead)
    rig.runner.take([held("1"), held("2")])
    await rig.have_ended(2)
    assert reported == []
    rig.reports.confirmed(rig.ends, Refused(0, frozenset({1})))
    await rig.close()
    assert reported == [("1", "no")]


async def test_a_job_that_dies_after_the_worker_has_stopped_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Redis could not be reached while it drained, and takes what waits before the loops end."""

    def on_dead(job: Job) -> None:
        raise AssertionError(job)

    async def handle(_body: int) -> None:
        raise Bury("no")

    rig, before = Rig(handle, on_dead=on_dead), asyncio.all_tasks()
    await rig.run(held("1"))
    rig.reports.confirmed(rig.ends, Refused(0, frozenset()))
    assert "on_dead not called" in caplog.text
    assert asyncio.all_tasks() == before


async def test_what_comes_when_it_drains_goes_back() -> None:
    async def handle(body: int) -> None:
        raise AssertionError(body)

    rig = Rig(handle)
    await rig.runner.drain(0)
    assert rig.runner.idle
    assert await rig.run(held("1")) == {"1": AttemptResult.RELEASED}


@pytest.mark.parametrize(
    ("error", "attempt", "ends"),
    [
        (Retry("7s", "later"), 99, (RETRY, 7000, "")),
        (Retry("7s", "later"), 100, (DEAD, 0, DeadReason.EXHAUSTED)),
        (Retry("7s", "later", max_attempts=3), 2, (RETRY, 7000, "")),
        (Retry("7s", "later", max_attempts=3), 3, (DEAD, 0, DeadReason.EXHAUSTED)),
        (Retry(reason="next", max_attempts=3), 5, (RETRY, 1000, "")),  # its schedule has an end of its own
    ],
)
async def test_a_handler_can_not_ask_for_another_attempt_for_ever(error: Retry, attempt: int, ends: Any) -> None:
    rig, one = Rig(lambda _body: raises(error)(), retry="1s"), held("1")
    one.job.attempt = attempt
    await rig.run(one)
    assert [(end.outcome, end.delay_ms, end.reason) for end in rig.ends] == [ends]


@pytest.mark.parametrize("most", [0, -1, True, 2.5])
def test_the_last_attempt_is_a_whole_number(most: Any) -> None:
    with pytest.raises(InvalidInput, match="max_attempts"):
        Retry("1s", max_attempts=most)


async def test_while_the_loop_is_blocked_a_call_whose_ttr_passes_ends_for_all_of_its_jobs_and_once() -> None:
    goes_on, began = asyncio.Event(), asyncio.Event()

    async def ignores_cancellation(_bodies: list[Any]) -> None:
        began.set()
        while not goes_on.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await goes_on.wait()

    rig, jobs = Rig(ignores_cancellation, batch=2, retry="1s"), [held("1"), held("2")]
    rig.runner.take(jobs)
    await began.wait()
    now = time.monotonic()
    assert rig.deadlines.overdue(now) == []
    jobs[1].deadline = 0.0
    (task,) = rig.deadlines.overdue(now)
    found, rig.ends = rig.ends, []
    assert [(end.held.job.id, end.outcome) for end in found] == [("1", AttemptResult.RETRY), ("2", AttemptResult.RETRY)]
    assert rig.deadlines.overdue(now) == []
    rig.deadlines.cut(task)
    assert [*rig.deadlines.hung._overdue] == [task], "it is known as one that goes on"
    goes_on.set()
    await rig.freed(lambda: rig.runner.idle)
    assert rig.ends == [], "the loop ends none of them again"
    assert not rig.deadlines.hung._overdue
    await rig.close()


def hangs_in(wait: Callable[[], None]) -> None:
    wait()


async def test_a_thread_that_hangs_is_reported_with_its_place() -> None:
    began, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        go_on.wait()

    rig, job = Rig(lambda _body: hangs_in(wait), retry="1s"), held("1")
    watch = asyncio.create_task(rig.deadlines.run())
    rig.runner.take([job])
    await asyncio.to_thread(began.wait, HANG_S)
    job.deadline = 0.0
    assert await rig.have_ended(1) == {"1": RETRY}
    (end,) = rig.ends
    line = wait.__code__.co_firstlineno + 2
    assert end.at == f"{__file__}:{line}"
    assert end.traceback.startswith("When its TTR passed (most recent call last):\n")
    assert f"in {hangs_in.__qualname__}\n" in end.traceback
    assert f'File "{__file__}", line {line}, in {wait.__qualname__}\n' in end.traceback, "and below, Event.wait"
    assert "streamdq/worker" not in end.traceback
    go_on.set()
    await cancel_and_wait([watch])
    await rig.close()


@in_virtual_time
async def test_a_coroutine_that_goes_on_is_reported_with_its_place() -> None:
    go_on = asyncio.Event()

    async def ignores_cancellation(_body: int) -> None:
        while not go_on.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go_on.wait()

    rig = Rig(ignores_cancellation, retry="1s", show_errors=False)
    watch = asyncio.create_task(rig.deadlines.run())
    rig.runner.take([held("1", 1000)])
    assert await rig.have_ended(1) == {"1": RETRY}
    assert rig.ends[0].at == f"{__file__}:{ignores_cancellation.__code__.co_firstlineno + 3}"
    assert rig.ends[0].traceback == "", "without errors shown, nothing else is kept"
    go_on.set()
    watch.cancel()


async def test_a_handler_that_blocks_the_loop_is_reported_with_its_place() -> None:
    """Another thread ends it meanwhile."""
    job = held("1")

    async def blocks(_body: int) -> None:
        job.deadline = 0.0
        hangs_in(beside)

    def beside() -> None:
        # Not while it starts: in that step the place is that of a library which has patched threads, as Sentry's does.
        started = threading.Event()
        thread = threading.Thread(target=lambda: started.wait(HANG_S) and rig.deadlines.overdue(time.monotonic()))
        thread.start()
        started.set()
        thread.join()

    rig = Rig(blocks, retry="1s")
    rig.runner.take([job])
    assert await rig.have_ended(1) == {"1": RETRY}
    (end,) = rig.ends
    assert end.at.startswith(f"{__file__}:")
    assert f"in {hangs_in.__qualname__}\n" in end.traceback
    assert f"in {beside.__qualname__}\n" in end.traceback
    await rig.close()


@in_virtual_time
async def test_a_coroutine_that_is_cancelled_tells_its_place_itself() -> None:
    async def deep() -> None:
        await forever()

    async def gathers(_body: int) -> None:
        await asyncio.gather(deep(), deep())

    rig = Rig(gathers, retry="1s")
    watch = asyncio.create_task(rig.deadlines.run())
    rig.runner.take([held("1", 1000)])
    assert await rig.have_ended(1) == {"1": RETRY}
    assert f"in {deep.__qualname__}\n" in rig.ends[0].traceback
    assert rig.ends[0].traceback.endswith("CancelledError: ")
    watch.cancel()


async def test_a_call_that_no_thread_has_begun_goes_back_in_a_drain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is no failure, and the handler does not run later."""
    call, submitted = Future[Any](), asyncio.Event()

    def submit(*_: Any) -> Future[Any]:
        submitted.set()
        return call

    rig = Rig(lambda _body: None, retry="1s")
    monkeypatch.setattr(rig.runner._threads, "submit", submit)
    rig.runner.take([held("1")])
    await submitted.wait()
    await rig.runner.drain(0)
    assert await rig.have_ended(1) == {"1": RELEASED}
    assert call.cancelled()
    await rig.freed(lambda: rig.runner.idle)
    assert rig.slots.busy == 0
    await rig.close()
