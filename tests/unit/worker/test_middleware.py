"""Functions around attempts: their order, and what follows from what they raise, catch or leave out."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import Any

import pytest

from streamdq import Attempt, AttemptEnd, Bury, CallNext, Snooze
from streamdq.operations.attempts.ends import AttemptResult
from streamdq.store.replies import Refused
from tests.unit.worker.rig import Rig, held
from tests.waiting import HANG_S, forever


class Seen:
    def __init__(self) -> None:
        self.all: list[Any] = []

    def around(self, name: str) -> Any:
        async def middleware(attempt: Attempt, call_next: CallNext) -> None:
            self.all.append((name, "before", attempt.topic, attempt.group, [job.id for job in attempt.jobs]))
            try:
                await call_next()
            except Exception as error:
                self.all.append((name, repr(error)))
                raise
            self.all.append((name, "after"))

        return middleware


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_the_first_is_outermost(kind: str) -> None:
    seen = Seen()

    async def in_loop(body: int) -> None:
        seen.all.append(body)

    def in_thread(body: int) -> None:
        seen.all.append(body)

    rig = Rig(in_loop if kind == "async" else in_thread, middleware=[seen.around("a"), seen.around("b")])
    assert await rig.run(held("1")) == {"1": AttemptResult.DONE}
    about = ("t", "g", ["1"])
    assert seen.all == [("a", "before", *about), ("b", "before", *about), 1, ("b", "after"), ("a", "after")]


async def test_a_batch_is_one_attempt() -> None:
    seen = Seen()

    async def handle(_bodies: list[int]) -> None: ...

    rig = Rig(handle, batch=5, middleware=[seen.around("a")])
    await rig.run(held("1"), held("2"))
    assert seen.all == [("a", "before", "t", "g", ["1", "2"]), ("a", "after")]


async def test_what_the_handler_raises_goes_through_them() -> None:
    seen = Seen()

    async def handle(_body: int) -> None:
        raise ValueError("no")

    rig = Rig(handle, retry="1s", middleware=[seen.around("a")])
    assert await rig.run(held("1")) == {"1": AttemptResult.RETRY}
    assert seen.all[-1] == ("a", "ValueError('no')")
    assert rig.ends[0].error == "ValueError: no"


async def fails(_body: int) -> None:
    raise ValueError("no")


async def buries(_attempt: Attempt, call_next: CallNext) -> None:
    try:
        await call_next()
    except ValueError:
        raise Bury("not worth another attempt") from None


async def catches(_attempt: Attempt, call_next: CallNext) -> None:
    try:
        await call_next()
    except ValueError:
        return


async def leaves_it_out(_attempt: Attempt, _call_next: CallNext) -> None: ...


async def raises_before(_attempt: Attempt, _call_next: CallNext) -> None:
    raise KeyError("state")


async def calls_twice(_attempt: Attempt, call_next: CallNext) -> None:
    for _ in range(2):
        try:
            await call_next()
        except ValueError:
            continue


async def calls_and_leaves(_attempt: Attempt, call_next: CallNext) -> None:
    call_next()  # what has to be noticed


async def calls_beside(_attempt: Attempt, call_next: CallNext) -> None:
    asyncio.ensure_future(call_next()).add_done_callback(lambda task: task.exception())


async def calls_halfway(_attempt: Attempt, call_next: CallNext) -> None:
    asyncio.ensure_future(call_next()).add_done_callback(lambda task: task.exception())
    await asyncio.sleep(0)


def is_plain(_attempt: Attempt, _call_next: CallNext) -> None: ...


@pytest.mark.parametrize(
    ("middleware", "outcome", "error"),
    [
        (buries, AttemptResult.DEAD, "not worth another attempt"),
        (catches, AttemptResult.DONE, ""),
        (leaves_it_out, AttemptResult.DONE, ""),
        (raises_before, AttemptResult.RETRY, "KeyError: 'state'"),
        (calls_twice, AttemptResult.RETRY, "RuntimeError: middleware: call_next() was called twice"),
        (calls_and_leaves, AttemptResult.RETRY, "RuntimeError: middleware: it returned before call_next() had ended"),
        (calls_beside, AttemptResult.RETRY, "RuntimeError: middleware: it returned before call_next() had ended"),
        (is_plain, AttemptResult.RETRY, "TypeError"),
    ],
)
async def test_they_decide_how_it_ends(middleware: Any, outcome: AttemptResult, error: str) -> None:
    rig = Rig(fails, retry="1s", middleware=[middleware])
    assert await rig.run(held("1")) == {"1": outcome}
    assert rig.ends[0].error.startswith(error)
    assert bool(rig.ends[0].error) == bool(error)


async def test_the_ttr_covers_them() -> None:
    cleaned: list[str] = []

    async def slow(_attempt: Attempt, call_next: CallNext) -> None:
        try:
            await call_next()
            await forever()
        finally:
            cleaned.append("up")

    async def handle(_body: int) -> None: ...

    rig, one = Rig(handle, retry="1s", middleware=[slow]), held("1", 1000)
    rig.runner.take([one])
    await asyncio.sleep(0.01)
    one.deadline = 0.0
    watch = asyncio.create_task(rig.deadlines.run())
    assert await rig.have_ended(1) == {"1": AttemptResult.RETRY}
    assert (rig.ends[0].error, cleaned) == ("TimeoutError: TTR 1s passed", ["up"])
    watch.cancel()


async def test_a_handler_that_still_runs_is_not_done() -> None:
    """Else its job would be gone when it fails, or when its process ends."""
    ran: list[str] = []

    async def handle(_body: int) -> None:
        await asyncio.sleep(0.01)
        ran.append("to the end")

    rig = Rig(handle, retry="1s", middleware=[calls_halfway])
    assert await rig.run(held("1")) == {"1": AttemptResult.RETRY}
    assert ran == []


async def test_it_is_not_called_when_the_attempt_is_over() -> None:
    kept: list[CallNext] = []
    ran: list[int] = []

    async def keeps(_attempt: Attempt, call_next: CallNext) -> None:
        kept.append(call_next)

    async def handle(body: int) -> None:
        ran.append(body)

    assert await Rig(handle, middleware=[keeps]).run(held("1")) == {"1": AttemptResult.DONE}
    with pytest.raises(RuntimeError, match="when the middleware had returned"):
        await kept[0]()
    assert ran == []


async def calls_and_fails(_attempt: Attempt, call_next: CallNext) -> None:
    call_next()
    raise KeyError("state")


async def starts_and_fails(_attempt: Attempt, call_next: CallNext) -> None:
    asyncio.ensure_future(call_next()).add_done_callback(lambda task: task.exception())
    raise KeyError("state")


async def gathers_two(_attempt: Attempt, call_next: CallNext) -> None:
    await asyncio.gather(call_next(), call_next())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("middleware", [calls_and_fails, starts_and_fails, gathers_two])
async def test_a_handler_does_not_begin_when_they_have_failed(middleware: Any) -> None:
    """Its job is to be tried again, and might have been already. Nor is there a warning of what nobody awaited."""
    ran: list[int] = []
    gc.freeze()  # only what is made from here on is looked through below

    async def handle(body: int) -> None:
        ran.append(body)

    rig = Rig(handle, retry="1s", middleware=[middleware])
    assert await rig.run(held("1")) == {"1": AttemptResult.RETRY}
    rig.ends.clear()
    gc.collect()
    await asyncio.sleep(0.01)
    assert ran == []


async def fails_halfway(_attempt: Attempt, call_next: CallNext) -> None:
    rest = asyncio.ensure_future(call_next())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not rest.done()
    raise KeyError("state")


async def catches_errors(_attempt: Attempt, call_next: CallNext) -> None:
    with contextlib.suppress(Exception):
        await call_next()


@pytest.mark.parametrize("middleware", [calls_halfway, fails_halfway])
async def test_who_catches_that_a_handler_still_runs_does_not_make_its_job_done(middleware: Any) -> None:
    go_on = asyncio.Event()

    async def handle(_body: int) -> None:
        await go_on.wait()

    rig = Rig(handle, retry="1s", middleware=[catches_errors, middleware])
    assert await rig.run(held("1")) == {"1": AttemptResult.RETRY}
    assert rig.ends[0].error.startswith("RuntimeError: middleware: it returned before call_next() had ended")
    go_on.set()


async def in_a_shield(_attempt: Attempt, call_next: CallNext) -> None:
    await asyncio.shield(call_next())


async def in_time(_attempt: Attempt, call_next: CallNext) -> None:
    await asyncio.wait_for(call_next(), HANG_S)


async def in_a_group(_attempt: Attempt, call_next: CallNext) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(call_next())  # type: ignore[arg-type]


@pytest.mark.parametrize("middleware", [in_a_shield, in_time, in_a_group])
async def test_another_task_may_await_the_rest(middleware: Any) -> None:
    async def handle(_body: int) -> None:
        await asyncio.sleep(0.001)

    assert await Rig(handle, middleware=[catches_errors, middleware]).run(held("1")) == {"1": AttemptResult.DONE}


async def catches_all(_attempt: Attempt, call_next: CallNext) -> None:
    try:
        await call_next()
    except BaseException:
        return


@pytest.mark.parametrize("kind", ["ttr", "drain"])
async def test_who_catches_the_cancellation_does_not_make_a_job_done(kind: str) -> None:
    async def handle(_body: int) -> None:
        await forever()

    rig, one = Rig(handle, retry="1s", middleware=[catches_all]), held("1", 1000)
    rig.runner.take([one])
    await asyncio.sleep(0.01)
    watch = asyncio.create_task(rig.deadlines.run())
    if kind == "ttr":
        one.deadline = 0.0
        assert await rig.have_ended(1) == {"1": AttemptResult.RETRY}
    else:
        await rig.runner.drain(0)
        assert await rig.have_ended(1) == {"1": AttemptResult.RELEASED}
    watch.cancel()


async def test_one_of_a_batch_that_was_lost_says_nothing_of_the_others() -> None:
    """Its handler was not cancelled: what it awaits, somebody else has cancelled, and the middleware takes that."""
    goes_on = asyncio.Event()

    async def handle(_bodies: list[int]) -> None:
        await goes_on.wait()
        raise asyncio.CancelledError

    rig, lost, other = Rig(handle, batch=2, retry="1s", middleware=[catches_all]), held("1"), held("2")
    rig.runner.take([lost, other])
    await asyncio.sleep(0)
    rig.deadlines.lost(lost)
    goes_on.set()
    assert await rig.have_ended(2) == {"1": AttemptResult.RELEASED, "2": AttemptResult.DONE}


# -- how it ended


class Ends:
    """Middleware that keeps the ends that it gets."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, str, str]] = []

    async def __call__(self, attempt: Attempt, call_next: CallNext) -> None:
        attempt.on_end(self.keep)
        await call_next()

    def keep(self, end: AttemptEnd) -> None:
        self.reported.append((end.job.id, end.outcome, end.error))


def confirmed(rig: Rig, *, stale: bool = False) -> None:
    """Redis has received the ends, one call for each."""
    for end in rig.ends:
        rig.reports.confirmed([end], Refused(0, frozenset({0} if stale else ())))


@pytest.mark.parametrize(
    ("raised", "retry", "reported"),
    [
        (None, "1s", ("done", "")),
        (ValueError("no"), "1s", ("retry", "ValueError: no")),
        (ValueError("no"), "none", ("dead", "ValueError: no")),
        (Bury("gone"), "1s", ("dead", "gone")),
        (Snooze("5s"), "1s", ("snoozed", "Snooze: the handler put the job off")),
    ],
)
async def test_it_learns_how_the_attempt_ended_when_redis_has_confirmed_it(
    raised: Exception | None, retry: str, reported: tuple[str, str]
) -> None:
    async def handle(_body: int) -> None:
        if raised is not None:
            raise raised

    ends = Ends()
    rig = Rig(handle, retry=retry, middleware=[ends])
    await rig.run(held("1"))
    assert ends.reported == []
    confirmed(rig)
    assert ends.reported == [("1", *reported)]


async def test_it_learns_that_redis_refused_the_end() -> None:
    async def handle(_body: int) -> None: ...

    ends = Ends()
    rig = Rig(handle, middleware=[ends])
    await rig.run(held("1"))
    confirmed(rig, stale=True)
    assert ends.reported == [("1", "stale", "")]


async def test_it_is_called_for_each_job_of_a_batch_and_for_none_that_did_not_get_there() -> None:
    async def handle(_bodies: list[int]) -> None: ...

    ends = Ends()
    rig = Rig(handle, batch=5, middleware=[ends])
    await rig.run(held("1"), held("no number"), held("2"))
    confirmed(rig)
    assert sorted(ends.reported) == [("1", "done", ""), ("2", "done", "")]


@pytest.mark.parametrize("error", [IndexError(), asyncio.CancelledError(), SystemExit(1), KeyboardInterrupt()])
async def test_all_of_them_are_called_and_what_one_raises_is_logged(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """It would end the loop that sends the ends to Redis."""

    async def handle(_body: int) -> None: ...

    def fails(_end: AttemptEnd) -> None:
        raise error

    async def broken(attempt: Attempt, call_next: CallNext) -> None:
        attempt.on_end(fails)
        await call_next()

    ends = Ends()
    rig = Rig(handle, middleware=[broken, ends])
    await rig.run(held("1"))
    confirmed(rig)
    assert ends.reported == [("1", "done", "")]
    assert "on_end failed" in caplog.text
    assert type(error).__name__ in caplog.text


async def test_one_that_is_asynchronous_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing awaits it."""

    async def handle(_body: int) -> None: ...

    async def reported(_end: AttemptEnd) -> None: ...

    async def wrong(attempt: Attempt, call_next: CallNext) -> None:
        attempt.on_end(reported)  # type: ignore[arg-type]
        await call_next()

    rig = Rig(handle, middleware=[wrong])
    await rig.run(held("1"))
    confirmed(rig)
    assert "on_end: the function is asynchronous" in caplog.text


async def test_it_is_called_for_a_handler_whose_ttr_has_passed_though_the_handler_still_runs() -> None:
    go_on = asyncio.Event()

    async def ignores_cancellation(_body: int) -> None:
        while not go_on.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go_on.wait()

    ends = Ends()
    rig, one = Rig(ignores_cancellation, retry="1s", middleware=[ends]), held("1", 1000)
    rig.runner.take([one])
    await asyncio.sleep(0)
    one.deadline = 0.0
    watch = asyncio.create_task(rig.deadlines.run())
    await rig.have_ended(1)
    confirmed(rig)
    watch.cancel()
    assert ends.reported == [("1", "retry", "TimeoutError: TTR 1s passed")]
    go_on.set()
    await rig.freed(lambda: rig.runner.idle)
