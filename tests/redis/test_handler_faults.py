"""Whatever a handler raises or returns: its slot is free again, its attempt has ended, and the worker goes on."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from streamdq import Bury, Job, JobState, NewJob, Retry, RunningJob, Worker
from streamdq.errors import InvalidInput
from streamdq.times.clock import ManualClock
from tests.redis.harness import Seen, Space
from tests.turns import others_later
from tests.waiting import HANG_S, eventually

# What is raised.


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


class Liar(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("who asks?")


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


class OfNoName(Exception, metaclass=Nameless):
    pass


class Hollow(Exception):
    """Neither true nor long."""

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0


class NoTraceback(Exception):
    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("none of your business")


class HalfRetry(Retry):
    def __init__(self) -> None:
        pass


class HalfBury(Bury):
    def __init__(self) -> None:
        pass


class Custom(BaseException):
    pass


def a_validation_error() -> ValidationError:
    class Model(BaseModel):
        number: int

    with pytest.raises(ValidationError) as caught:
        Model(number="x")  # type: ignore[arg-type]
    return caught.value


RAISED: dict[str, Callable[[], BaseException]] = {
    "StopIteration": StopIteration,
    "StopIteration with a value": lambda: StopIteration(5),
    "StopAsyncIteration": StopAsyncIteration,
    "GeneratorExit": GeneratorExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(3),
    "asyncio's CancelledError": asyncio.CancelledError,
    "concurrent.futures' CancelledError": concurrent.futures.CancelledError,
    "InvalidStateError": asyncio.InvalidStateError,
    "BaseException": BaseException,
    "a BaseException": Custom,
    "RecursionError": RecursionError,
    "MemoryError": MemoryError,
    "TimeoutError": TimeoutError,
    "an ExceptionGroup": lambda: ExceptionGroup("several", [ValueError("a"), TypeError("b")]),
    "a BaseExceptionGroup": lambda: BaseExceptionGroup("several", [KeyboardInterrupt(), SystemExit()]),
    "one without a message": Unspeakable,
    "one that lies about its class": Liar,
    "one of a class without a name": OfNoName,
    "one that is false": Hollow,
    "one that hides its traceback": NoTraceback,
    "one with an odd name": type("a\nb\x1f: |", (Exception,), {}),
    "one with a long name": type("A" * 5000, (Exception,), {}),
    "one with a long message": lambda: ValueError("\udfff\x00" * 100_000),
    "a Retry that is half made": HalfRetry,
    "a Bury that is half made": HalfBury,
    "a ValidationError": a_validation_error,
    "an UnicodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
}


def raising(kind: str, make: Callable[[], BaseException]) -> Callable[..., Any]:
    async def later(_body: Any) -> None:
        await asyncio.sleep(0)
        raise make()

    def at_once(_body: Any) -> None:
        raise make()

    return later if kind.startswith("async") else at_once


@pytest.mark.parametrize("kind", others_later(["async", "async batch", "plain", "plain batch"], "async", "plain batch"))
async def test_whatever_a_handler_raises_its_attempt_fails_and_its_slot_is_free(
    space: Space, seen: Seen, kind: str
) -> None:
    """One slot alone: the first that leaked it would stop all that follow."""
    worker = space.worker(concurrency=1)
    names = {f"t{number}": name for number, name in enumerate(RAISED)}
    for topic, name in names.items():
        batch = 5 if kind.endswith("batch") else None
        worker.handler(topic, retry="none", batch=batch)(raising(kind, RAISED[name]))

    @worker.handler("sound")
    async def sound(body: int) -> None:
        seen.add(body)

    async with space.serving(worker):
        for topic in names:
            space.queue.enqueue(topic, 1, id="x")
        for topic in names:
            await space.becomes("x", JobState.DEAD, topic)
        space.queue.enqueue("sound", 1)
        await seen.count(1)
        assert worker.name, "it serves"
    for topic, name in names.items():
        group = space.job("x", topic).groups["default"]
        reasons = ("buried",) if "Bury" in name else ("exhausted",)
        assert (group.attempt, group.reason in reasons) == (1, True), name
        space.queue.purge(topic, all=True)


CHANGED: dict[str, Callable[[Job], None]] = {
    "no id": lambda job: delattr(job, "id"),
    "an id that can't be sent": lambda job: setattr(job, "id", "\ud800"),
    "an id that is no text": lambda job: setattr(job, "id", ["x"]),
    "no body": lambda job: setattr(job, "raw_body", None),
    "no number": lambda job: delattr(job, "attempt"),
}


@pytest.mark.parametrize("name", CHANGED)
async def test_a_handler_that_changes_its_job_harms_no_other(
    stepped: Space, clock: ManualClock, seen: Seen, name: str
) -> None:
    """Its attempt's end can't be sent; the job is taken over when its TTR passes, and runs again."""
    worker = stepped.worker(concurrency=2)

    @worker.handler("t", ttr="60s", retry="none")
    async def handler(body: str, job: Job) -> None:
        seen.add(body)
        if body == "changed" and seen.all.count("changed") == 1:
            CHANGED[name](job)

    stepped.queue.enqueue_many("t", [NewJob("changed"), NewJob("sound")])
    async with stepped.serving(worker):
        await seen.count(2)
        await eventually(lambda: stepped.stats().done == 1, "the other is done")
        clock.advance("61s")
        await seen.count(3)
        await eventually(lambda: stepped.stats().done == 2, "both are done")
    assert seen.all.count("changed") == 2
    assert stepped.stats().reclaimed == 1
    assert stepped.audit().left == 0


@pytest.mark.parametrize("name", CHANGED)
async def test_a_heartbeat_for_a_changed_job_keeps_back_no_other(
    stepped: Space, clock: ManualClock, seen: Seen, name: str
) -> None:
    """Those of both are due in one call."""
    worker, sound = stepped.worker(concurrency=2), asyncio.get_running_loop().create_future()

    @worker.handler("t", ttr="60s", retry="none")
    async def handler(body: str, job: RunningJob) -> None:
        seen.add(body)
        if body == "sound":
            sound.set_result(job)
            await eventually(lambda: (until_ms() or 0) - job.created_ms > 3_000_000, "its heartbeat arrives")
        elif seen.all.count("changed") == 1:
            other = await sound
            CHANGED[name](job)
            job.touch()
            other.touch("1h")

    def until_ms() -> int | None:
        return stepped.job("sound").groups["default"].deadline_ms

    stepped.queue.enqueue_many("t", [NewJob("changed"), NewJob("sound", id="sound")])
    async with stepped.serving(worker):
        await eventually(lambda: stepped.stats().done == 1, "the sound one is done")
        clock.advance("61s")
        await eventually(lambda: stepped.stats().done == 2, "both are done")
    assert sorted(seen.all) == ["changed", "changed", "sound"]


@pytest.mark.parametrize("name", CHANGED)
async def test_a_handler_that_has_changed_its_job_does_not_go_on_by_touching_it(
    space: Space, seen: Seen, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Redis hears of none of its touches, so another attempt begins."""
    worker, events, stop = space.worker(concurrency=2), list[str](), asyncio.Event()

    @worker.handler("t", ttr="600ms", retry="none")
    async def handler(body: str, job: RunningJob) -> None:
        if events:
            events.append("begun again")
            return seen.add(body)
        events.append("begun")
        CHANGED[name](job)
        try:
            while not stop.is_set():
                job.touch()
                await asyncio.sleep(0.01)
        finally:
            events.append("ended")

    space.queue.enqueue("t", "x")
    async with space.serving(worker):
        try:
            await seen.count(1)
        finally:
            stop.set()
    assert events == ["begun", "ended", "begun again"]
    assert sum("touch not sent" in record.getMessage() for record in caplog.records) == 1


async def test_a_taken_job_may_fail_with_an_exception_that_has_no_message(space: Space) -> None:
    space.queue.enqueue("t", 1, retry="none", id="x")
    with pytest.raises(Unspeakable), space.queue.take("t"):
        raise Unspeakable
    assert space.state("x") == JobState.DEAD
    assert space.job("x").groups["default"].error == "Unspeakable: its message can't be read"
    space.queue.purge("t", all=True)


# What is returned.


@pytest.fixture
def pool() -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield pool


class Work:
    """Handlers of all sorts that do the same work in the end."""

    def __init__(self, seen: Seen, pool: concurrent.futures.ThreadPoolExecutor) -> None:
        self._seen = seen
        self._pool = pool
        self._loop = asyncio.get_running_loop()

    async def do(self, body: str) -> None:
        await asyncio.sleep(0.01)
        self._seen.add(body)

    async def __call__(self, body: str) -> None:
        await self.do(body)

    def plainly(self, body: str) -> Any:
        return self.do(body)

    def awaitable(self, body: str) -> Awaitable:
        return Awaitable(self.do(body))

    async def nested(self, body: str) -> Any:
        return self.do(body)

    async def task(self, body: str) -> Any:
        return asyncio.create_task(self.do(body))

    def by_itself(self, body: str) -> None:
        asyncio.run_coroutine_threadsafe(self.do(body), self._loop).result()

    def in_a_pool(self, body: str) -> concurrent.futures.Future[None]:
        return self._pool.submit(self.by_itself, body)

    async def curried(self, _times: int, body: str) -> None:
        await self.do(body)

    def plainly_curried(self, _times: int, body: str) -> Any:
        return self.do(body)


class PlainObject:
    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, body: str) -> Any:
        return self._work.do(body)


class Awaitable:
    def __init__(self, work: Any) -> None:
        self._work = work

    def __await__(self) -> Any:
        return self._work.__await__()


def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any) -> Any:
        return function(*args)

    return wrapped


SORTS: dict[str, Callable[[Work], Callable[..., Any]]] = {
    "function": lambda work: work.do,
    "wrapped": lambda work: wrap(work.do),
    "wrapped-twice": lambda work: wrap(wrap(work.do)),
    "lambda": lambda work: lambda body: work.do(body),
    "plain": lambda work: work.plainly,
    "partial": lambda work: functools.partial(work.curried, 1),
    "plain-partial": lambda work: functools.partial(work.plainly_curried, 1),
    "object": lambda work: work,
    "plain-object": PlainObject,
    "awaitable": lambda work: work.awaitable,
    "nested": lambda work: work.nested,
    "task": lambda work: work.task,
    "pool": lambda work: work.in_a_pool,
    "runs-it-itself": lambda work: functools.wraps(work.do)(lambda body: work.by_itself(body)),
}


async def test_what_a_handler_returns_is_awaited_before_it_counts_as_done(
    space: Space, seen: Seen, pool: concurrent.futures.ThreadPoolExecutor
) -> None:
    work, worker = Work(seen, pool), space.worker(concurrency=3)
    for name, sort in SORTS.items():
        worker.handler(name, retry="none")(sort(work))
        space.queue.enqueue(name, name)
    await space.burst(worker)
    assert sorted(seen.all) == sorted(SORTS)
    assert all(space.stats(name).done == 1 for name in SORTS)


async def test_a_coroutine_that_comes_after_the_ttr_is_not_begun(space: Space, seen: Seen) -> None:
    worker, go_on, returned = space.worker(concurrency=1), threading.Event(), threading.Event()

    async def work(body: int) -> None:
        seen.add(body)

    def handler(body: int, job: RunningJob) -> Any:
        job.touch("50ms")
        go_on.wait(HANG_S)
        returned.set()
        return work(body)

    worker.handler("t", ttr="30s", retry="none")(handler)
    worker.handler("next", retry="none")(lambda body: work(body))
    space.queue.enqueue("t", 1, id="x")
    async with space.serving(worker):
        await space.becomes("x", JobState.DEAD)
        go_on.set()
        space.queue.enqueue("next", 2)  # its slot is free once the thread has ended
        await seen.count(1)
    assert returned.is_set()
    assert seen.all == [2]
    space.queue.purge("t", all=True)


def a_generator(body: int) -> Iterator[int]:
    yield body


async def an_async_generator(body: int) -> Any:
    yield body


class Yields:
    def __call__(self, body: int) -> Iterator[int]:
        yield body


@pytest.mark.parametrize(
    "handler", [a_generator, an_async_generator, functools.partial(a_generator), Yields(), Yields().__call__]
)
def test_a_generator_function_is_refused_when_it_is_registered(handler: Callable[..., Any]) -> None:
    with pytest.raises(InvalidInput, match="generator function"):
        Worker("memory://handlers").handler("t")(handler)


# -- run() in another thread


def test_a_worker_runs_in_a_thread_and_is_stopped_from_another(space: Space) -> None:
    worker, ran = space.worker(), threading.Event()

    @worker.handler("t")
    async def handler(_body: int) -> None:
        ran.set()

    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    space.queue.enqueue("t", 1)
    assert ran.wait(HANG_S)
    worker.stop()
    thread.join(HANG_S)
    assert not thread.is_alive()
    worker.stop()  # and again, when it has ended
    assert space.stats().consumers == 0
    assert space.stats().done == 1


async def test_stop_in_the_loop_that_serves_takes_effect_at_once(space: Space) -> None:
    worker = space.worker()

    @worker.handler("t")
    async def handler(_body: int) -> None:
        worker.stop()

    space.queue.enqueue("t", 1)
    async with asyncio.timeout(HANG_S):
        await worker.serve()
    assert space.stats().done == 1


async def test_a_worker_that_gets_no_thread_for_its_handlers_claims_nothing(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would fail all jobs of its topics, faster than others run them."""
    worker, start = space.worker(), threading.Thread.start

    @worker.handler("t", retry="none")
    def handler(body: int) -> None:
        raise AssertionError(body)

    def refused(thread: threading.Thread) -> None:
        if thread.name == "streamdq-1":
            raise RuntimeError("can't start new thread")
        start(thread)

    space.queue.enqueue("t", 1, id="a")
    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        await space.burst(worker)
    job = space.queue.get("t", "a")
    assert job is not None
    assert (job.state, job.attempt) == (JobState.READY, 0)
