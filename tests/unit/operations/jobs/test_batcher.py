"""Tasks, or threads, that want the same thing at the same time go together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Sequence
from typing import Any, Self

import pytest

from streamdq.errors import NotDurable
from streamdq.operations.jobs.batcher import AT_ONCE, MOST, Batcher, clone_exception
from tests.waiting import HANG_S

Calls = Generator[Any, Any, Sequence[Any]]


class Want:
    def __init__(self, item: Any, kind: str = "a") -> None:
        self.kind = kind
        self.item = item

    def put(self, calls: Sequence[Any]) -> Calls:
        yield [call.item for call in calls]
        return []

    def own(self, error: Exception) -> Exception:
        return clone_exception(error)


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
        await let_tasks_run()


async def let_tasks_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def busy(server: Server) -> list[asyncio.Task[Any]]:
    """As many calls as there may be."""
    tasks = [server.want(f"first {n}") for n in range(AT_ONCE)]
    await let_tasks_run()
    assert len(server.open) == AT_ONCE
    return tasks


async def test_a_lone_caller_does_not_wait() -> None:
    server = Server()
    task = server.want(1)
    await let_tasks_run()
    assert server.calls == [[1]]
    await server.answer()
    assert await task == "1 done"


async def test_those_who_come_while_others_are_under_way_go_together() -> None:
    server = Server()
    first = await busy(server)
    later = [server.want(n) for n in range(5)]
    await let_tasks_run()
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
    await let_tasks_run()
    assert server.calls[-1] == ["other"]


async def test_a_call_has_only_so_many() -> None:
    server = Server()
    await busy(server)
    tasks = [server.want(n) for n in range(MOST + 7)]
    await let_tasks_run()
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
    await let_tasks_run()
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
    await let_tasks_run()
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
    await let_tasks_run()
    monkeypatch.setattr("streamdq.operations.jobs.batcher.time.monotonic", lambda: now + 6)
    late = server.want("late")
    await let_tasks_run()
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
    await let_tasks_run()
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
    await let_tasks_run()
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
    await let_tasks_run()
    given_up.cancel()
    await let_tasks_run()
    await server.answer()
    assert server.calls[-1] == ["other"]
    await server.answer()
    await server.answer()
    assert await other == "other done"


async def test_who_is_cancelled_during_its_call_does_not_disturb_the_others() -> None:
    server = Server()
    first = await busy(server)
    later = [server.want(n) for n in range(3)]
    await let_tasks_run()
    first[0].cancel()
    await let_tasks_run()
    assert server.calls[-1] == [0, 1, 2]
    later[1].cancel()
    await let_tasks_run()
    while server.open:
        future = server.open.pop(0)
        if not future.done():
            future.set_result(None)
        await let_tasks_run()
    assert [await later[0], await later[2]] == ["0 done", "2 done"]
    assert not server.batcher._under_way


async def test_when_the_loop_ends_nobody_waits_for_ever() -> None:
    server = Server()
    first = await busy(server)
    later = [server.want(n) for n in range(3)]
    await let_tasks_run()
    await server.answer()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    ends = await asyncio.gather(*first, *later, return_exceptions=True)
    assert [isinstance(end, asyncio.CancelledError) for end in ends[1:]] == [True] * (len(ends) - 1)
    assert not server.batcher._waiting
