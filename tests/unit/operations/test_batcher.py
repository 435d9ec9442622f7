"""Tasks, or threads, that want the same thing at the same time go together."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from typing import Any, Self

import pytest

from streamdq.errors import NotDurable
from streamdq.operations.batcher import AT_ONCE, MOST, Batcher, ThreadBatcher, _Kind, _Turn, twin
from tests.waiting import HANG_S, until

Calls = Generator[Any, Any, Sequence[Any]]


class Want:
    def __init__(self, item: Any, kind: str = "a") -> None:
        self.kind = kind
        self.item = item

    def put(self, calls: Sequence[Any]) -> Calls:
        yield [call.item for call in calls]
        return []

    def own(self, error: Exception) -> Exception:
        return twin(error)


class Server:
    """Carries out calls when it is told to."""

    def __init__(self, patience_s: float = 60.0) -> None:
        self.batcher = Batcher(self.run, patience_s)
        self.calls: list[list[Any]] = []
        self.open: list[asyncio.Future[None]] = []

    async def run(self, operation: Calls) -> Sequence[Any]:
        items = next(operation)
        self.calls.append(items)
        self.open.append(asyncio.get_running_loop().create_future())
        await self.open[-1]
        return [f"{item} done" for item in items]

    def want(self, item: Any, kind: str = "a") -> asyncio.Task[Any]:
        return asyncio.create_task(self.batcher.put(Want(item, kind)))

    async def answer(self, error: BaseException | None = None) -> None:
        """The oldest call ends."""
        future = self.open.pop(0)
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def busy(server: Server) -> list[asyncio.Task[Any]]:
    """As many calls as there may be."""
    tasks = [server.want(f"first {n}") for n in range(AT_ONCE)]
    await settle()
    assert len(server.open) == AT_ONCE
    return tasks


async def test_who_is_alone_does_not_wait() -> None:
    server = Server()
    task = server.want(1)
    await settle()
    assert server.calls == [[1]]
    await server.answer()
    assert await task == "1 done"


async def test_those_who_come_while_others_are_under_way_go_together() -> None:
    server = Server()
    first = await busy(server)
    later = [server.want(n) for n in range(5)]
    await settle()
    assert len(server.calls) == AT_ONCE
    await server.answer()
    assert server.calls[-1] == [0, 1, 2, 3, 4]
    while server.open:
        await server.answer()
    assert await asyncio.gather(*first, *later) == [f"first {n} done" for n in range(AT_ONCE)] + [
        f"{n} done" for n in range(5)
    ]
    assert not server.batcher._under_way
    assert not server.batcher._waiting


async def test_other_kinds_go_their_own_way() -> None:
    server = Server()
    await busy(server)
    server.want("other", kind="b")
    await settle()
    assert server.calls[-1] == ["other"]


async def test_a_call_has_only_so_many() -> None:
    server = Server()
    await busy(server)
    tasks = [server.want(n) for n in range(MOST + 7)]
    await settle()
    await server.answer()
    await server.answer()
    assert [len(call) for call in server.calls[AT_ONCE:]] == [MOST, 7]
    while server.open:
        await server.answer()
    assert [await task for task in tasks] == [f"{n} done" for n in range(MOST + 7)]


async def test_an_error_is_raised_for_each_of_them() -> None:
    server = Server()
    await busy(server)
    tasks = [server.want(n) for n in range(3)]
    await settle()
    await server.answer()
    await server.answer()
    await server.answer(NotDurable("disk", "as told", "an id"))
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(error) for error in errors] == [str(NotDurable("disk", "as told", "an id"))] * 3
    assert len({id(error) for error in errors}) == 3
    assert all(isinstance(error, NotDurable) and error.why == "as told" for error in errors)
    assert not server.batcher._under_way


async def test_an_error_of_one_call_is_not_that_of_those_who_wait() -> None:
    server = Server()
    first = await busy(server)
    later = server.want("later")
    await settle()
    await server.answer(ConnectionError())
    while server.open:
        await server.answer()
    with pytest.raises(ConnectionError):
        await first[0]
    assert await later == "later done"


async def test_unless_they_have_waited_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    server, now = Server(patience_s=5.0), time.monotonic()
    await busy(server)
    early = server.want("early")
    await settle()
    monkeypatch.setattr("streamdq.operations.batcher.time.monotonic", lambda: now + 6)
    late = server.want("late")
    await settle()
    await server.answer(ConnectionError("no answer"))
    with pytest.raises(ConnectionError, match="no answer"):
        await early
    assert server.calls[-1] == ["late"]
    while server.open:
        await server.answer()
    assert await late == "late done"


async def test_a_cancellation_that_somebody_raises_cancels_none_of_them() -> None:
    """As a storage of bodies may."""
    server = Server()
    await busy(server)
    tasks = [server.want(n) for n in range(3)]
    await settle()
    await server.answer()
    await server.answer()
    later = server.want("later")
    await server.answer(asyncio.CancelledError())
    await server.answer()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in errors] == [RuntimeError] * 3
    assert await later == "later done"
    assert not server.batcher._under_way


class Uncopied(Exception):
    """As pydantic's errors."""

    def __new__(cls, *args: Any) -> Self:
        if args:
            raise TypeError
        return super().__new__(cls)


async def test_an_error_that_can_not_be_copied_is_raised_all_the_same() -> None:
    server = Server()
    await busy(server)
    tasks = [server.want(n) for n in range(3)]
    await settle()
    await server.answer()
    await server.answer()
    error = Uncopied()
    error.args = ("told",)
    await server.answer(error)
    async with asyncio.timeout(HANG_S):
        assert await asyncio.gather(*tasks, return_exceptions=True) == [error] * 3
    assert not server.batcher._under_way


async def test_who_is_cancelled_while_it_waits_is_left_out() -> None:
    server = Server()
    await busy(server)
    given_up, other = server.want("given up"), server.want("other")
    await settle()
    given_up.cancel()
    await settle()
    await server.answer()
    assert server.calls[-1] == ["other"]
    await server.answer()
    await server.answer()
    assert await other == "other done"


async def test_who_is_cancelled_during_its_call_does_not_disturb_the_others() -> None:
    server = Server()
    first = await busy(server)
    later = [server.want(n) for n in range(3)]
    await settle()
    first[0].cancel()
    await settle()
    assert server.calls[-1] == [0, 1, 2]
    later[1].cancel()
    await settle()
    while server.open:
        future = server.open.pop(0)
        if not future.done():
            future.set_result(None)
        await settle()
    assert [await later[0], await later[2]] == ["0 done", "2 done"]
    assert not server.batcher._under_way


async def test_when_the_loop_ends_nobody_waits_for_ever() -> None:
    server = Server()
    first = await busy(server)
    later = [server.want(n) for n in range(3)]
    await settle()
    await server.answer()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    ends = await asyncio.gather(*first, *later, return_exceptions=True)
    assert [isinstance(end, asyncio.CancelledError) for end in ends[1:]] == [True] * (len(ends) - 1)
    assert not server.batcher._waiting


# -- threads


class ThreadServer:
    """Carries out calls when it is told to. Each thread that wants something is a future."""

    def __init__(self, patience_s: float = 60.0) -> None:
        self.batcher = ThreadBatcher(self.run, patience_s)
        self.calls: list[list[Any]] = []
        self.answers: list[Future[None]] = []
        self.threads = ThreadPoolExecutor(150)
        self._begun = threading.Condition()

    def run(self, operation: Calls) -> Sequence[Any]:
        items, answer = next(operation), Future[None]()
        with self._begun:
            self.calls.append(items)
            self.answers.append(answer)
            self._begun.notify_all()
        answer.result(60)
        return [f"{item} done" for item in items]

    def want(self, item: Any, kind: str = "a") -> Future[Any]:
        return self.threads.submit(self.batcher.put, Want(item, kind))

    def begun(self, count: int) -> list[Any]:
        """Waits until so many calls have begun; the items of the last of these."""
        with self._begun:
            assert self._begun.wait_for(lambda: len(self.calls) >= count, 60)
            return self.calls[count - 1]

    def wait_for(self, count: int) -> None:
        """Until so many threads wait."""
        until(
            lambda: sum(len(kind.waiting) for kind in list(self.batcher._kinds.values())) == count,
            f"{count} threads wait",
        )

    def answer_all(self) -> None:
        answered = 0
        while self.batcher._kinds:
            while answered < len(self.answers):
                if not self.answers[answered].done():
                    self.answers[answered].set_result(None)
                answered += 1

    def busy(self) -> list[Future[Any]]:
        first = [self.want(f"first {n}") for n in range(AT_ONCE)]
        self.begun(AT_ONCE)
        return first


@pytest.fixture
def served() -> Iterator[ThreadServer]:
    server = ThreadServer()
    yield server
    server.answer_all()
    server.threads.shutdown()
    assert not server.batcher._kinds


def test_a_thread_that_is_alone_does_not_wait(served: ThreadServer) -> None:
    wanted = served.want(1)
    assert served.begun(1) == [1]
    served.answers[0].set_result(None)
    assert wanted.result(60) == "1 done"


def test_threads_that_come_while_others_are_under_way_go_together(served: ThreadServer) -> None:
    first = served.busy()
    later = []
    for n in range(5):
        later.append(served.want(n))
        served.wait_for(n + 1)
    other = served.want("other", kind="b")
    assert served.begun(AT_ONCE + 1) == ["other"]
    served.answers[0].set_result(None)
    assert served.begun(AT_ONCE + 2) == [0, 1, 2, 3, 4]
    served.answer_all()
    assert [one.result(60) for one in later] == [f"{n} done" for n in range(5)]
    assert {one.result(60) for one in first} == {f"first {n} done" for n in range(AT_ONCE)}
    assert other.result(60) == "other done"


def test_a_call_of_threads_has_only_so_many(served: ThreadServer) -> None:
    served.busy()
    later = [served.want(n) for n in range(MOST + 7)]
    served.wait_for(MOST + 7)
    served.answers[0].set_result(None)
    assert len(served.begun(AT_ONCE + 1)) == MOST
    served.answer_all()
    assert [one.result(60) for one in later] == [f"{n} done" for n in range(MOST + 7)]


def test_an_error_of_a_call_is_raised_in_each_of_its_threads_alone(served: ThreadServer) -> None:
    first = served.busy()
    later = [served.want(n) for n in range(3)]
    served.wait_for(3)
    served.answers[0].set_exception(NotDurable("disk", "as told", "an id"))
    served.begun(AT_ONCE + 1)
    last = served.want("last")
    served.wait_for(1)
    served.answers[AT_ONCE].set_exception(ConnectionError("gone"))
    errors = [one.exception(60) for one in later]
    assert all(isinstance(error, ConnectionError) for error in errors)
    assert len({id(error) for error in errors}) == 3
    served.answer_all()
    assert last.result(60) == "last done"
    assert [isinstance(one.exception(60), NotDurable) for one in first].count(True) == 1


def test_threads_that_have_waited_too_long_get_the_error_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    server, now = ThreadServer(patience_s=5.0), time.monotonic()
    server.busy()
    early = server.want("early")
    server.wait_for(1)
    monkeypatch.setattr("streamdq.operations.batcher.time.monotonic", lambda: now + 6)
    late = server.want("late")
    server.wait_for(2)
    server.answers[0].set_exception(ConnectionError("no answer"))
    with pytest.raises(ConnectionError, match="no answer"):
        early.result(60)
    assert server.begun(AT_ONCE + 1) == ["late"]
    server.answer_all()
    assert late.result(60) == "late done"
    server.threads.shutdown()


class Interrupted(BaseException):
    """As a signal's handler raises it."""


def test_what_an_interrupted_thread_was_to_carry_out_others_do(served: ThreadServer) -> None:
    served.busy()
    later = [served.want(n) for n in range(3)]
    served.wait_for(3)
    served.answers[0].set_result(None)
    mine, *others = served.begun(AT_ONCE + 1)
    served.answers[AT_ONCE].set_exception(Interrupted())
    assert served.begun(AT_ONCE + 2) == others
    served.answer_all()
    assert isinstance(later[mine].exception(60), Interrupted)
    assert [later[n].result(60) for n in others] == [f"{n} done" for n in others]


def test_a_thread_that_is_interrupted_while_it_waits_is_left_out(
    served: ThreadServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.busy()
    given_up: list[None] = []

    class Lock:
        def acquire(self) -> bool:
            given_up.append(None)
            if len(given_up) == 1:
                return True  # when the turn is made
            raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr("streamdq.operations.batcher.threading.main_thread", lambda: None)
        patched.setattr("streamdq.operations.batcher.threading.Lock", Lock)
        with pytest.raises(Interrupted):
            served.batcher.put(Want("given up"))
    assert not any(kind.waiting for kind in served.batcher._kinds.values())
    other = served.want("other")
    served.wait_for(1)
    served.answers[0].set_result(None)
    assert served.begun(AT_ONCE + 1) == ["other"]
    served.answer_all()
    assert other.result(60) == "other done"


def test_a_forked_child_waits_for_nobody(served: ThreadServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.operations.batcher.threading.main_thread", lambda: None)
    served.busy()
    in_child = copy(served.batcher)
    in_child.after_fork()
    in_child._run = lambda _: ["done"]
    assert in_child.put(Want(1)) == "done"


def test_the_main_thread_neither_waits_nor_is_counted(served: ThreadServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal's handler may raise in it at any step, and whoever counts on it would wait for ever."""
    served.busy()
    counted: list[int] = []

    def run(_: Calls) -> list[str]:
        counted.append(sum(kind.under_way for kind in served.batcher._kinds.values()))
        return ["done"]

    monkeypatch.setattr(served.batcher, "_run", run)
    assert served.batcher.put(Want(1)) == "done"
    assert counted == [AT_ONCE]


def test_a_thread_that_was_interrupted_is_given_no_call_to_carry_out() -> None:
    """It waited for one that another thread carried out for both, which was interrupted as well: the place for that
    call must not be kept for it.
    """

    class Interrupted:
        def acquire(self) -> None:
            raise KeyboardInterrupt

        def release(self) -> None:
            """Nobody waits for it."""

    def run(_: Calls) -> list[str]:
        return ["done"]

    batcher, want = ThreadBatcher(run, 60.0), Want(1)
    kind = batcher._kinds[want.kind] = _Kind()
    kind.under_way = 1
    turn = _Turn(want)
    turn.lock = Interrupted()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        batcher._wait(kind, turn)
    batcher._go_on(kind, want, [turn], None)
    assert not batcher._kinds
