"""Joins what several tasks, or threads, want at the same time into one call, as databases do with group commit. Who is
alone does not wait; under load the calls grow, and their number does not.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from ..forks import renew_in_child
from ..link.session import Op
from ..process.cancellations import uncancelled

AT_ONCE = 2  # calls of one kind: with one alone, a task would wait for the call before its own; more are smaller
MOST = 100  # tasks or threads in one call: so it takes Redis some hundred µs


class Call(Protocol):
    """What is wanted. Calls whose ``kind`` is the same may go together."""

    @property
    def kind(self) -> Hashable: ...

    def put(self, calls: Sequence[Any]) -> Op[Sequence[Any]]:
        """Carries these out, of which it is one. Returns a result for each."""

    def own(self, error: Exception) -> Exception:
        """What it raises after an error that concerns all of them."""


class _Waiting(NamedTuple):
    call: Call
    future: asyncio.Future[Any]
    since: float


class Batcher:
    """Belongs to one event loop."""

    def __init__(self, run: Callable[[Op[Any]], Awaitable[Any]], patience_s: float) -> None:
        """``run`` executes operations. ``patience_s``: who has waited for longer when a call fails does not wait for
        another one.
        """
        self._run = run
        self._patience_s = patience_s
        self._under_way: Counter[Hashable] = Counter()
        self._waiting: defaultdict[Hashable, deque[_Waiting]] = defaultdict(deque)
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, call: Call) -> Any:
        """What ``call.put`` returns for this call.

        Raises:
            Whatever ``call.put`` raises, then for all that went together.
        """
        kind = call.kind
        if self._under_way[kind] >= AT_ONCE:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._waiting[kind].append(_Waiting(call, future, time.monotonic()))
            return await future
        self._under_way[kind] += 1
        failed: Exception | None = None
        try:
            (only,) = await self._run(call.put([call]))
        except Exception as error:
            failed = error
            raise
        finally:
            self._go_on(kind, failed)
        return only

    def _go_on(self, kind: Hashable, failed: Exception | None) -> None:
        """A call has ended: those that waited meanwhile are next."""
        waiting, batch = self._waiting[kind], list[_Waiting]()
        too_long = 0.0 if failed is None else time.monotonic() - self._patience_s
        while waiting and len(batch) < MOST:
            one = waiting.popleft()
            if one.future.done():  # its task was cancelled
                continue
            if failed is not None and one.since < too_long:
                one.future.set_exception(one.call.own(failed))
            else:
                batch.append(one)
        if batch:
            task = asyncio.create_task(self._carry_out(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        del self._waiting[kind]
        self._under_way[kind] -= 1
        if self._under_way[kind] == 0:
            del self._under_way[kind]

    async def _carry_out(self, batch: Sequence[_Waiting]) -> None:
        first, failed = batch[0].call, None
        try:
            # A storage of bodies may raise a CancelledError: not as if all of their tasks were cancelled.
            results = await uncancelled(partial(self._run, first.put([one.call for one in batch])))
        except Exception as error:
            failed = error
            for one in batch:
                if not one.future.done():
                    one.future.set_exception(one.call.own(error))
        except BaseException:  # the loop ends
            for one in batch:
                one.future.cancel()
            raise
        else:
            for one, result in zip(batch, results, strict=True):
                if not one.future.done():
                    one.future.set_result(result)
        finally:
            self._go_on(first.kind, failed)


# -- threads


class _Turn:
    """A thread that waits: for its result, or until it is to carry out the next call for itself and others."""

    __slots__ = ("batch", "call", "error", "lock", "result", "since", "waits")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.since = time.monotonic()
        self.lock = threading.Lock()
        self.lock.acquire()
        self.batch: list[_Turn] | None = None
        self.result: Any = None
        self.error: Exception | None = None
        self.waits = True

    def end(self, result: Any, error: Exception | None = None) -> None:
        """It has its result, or what to raise."""
        self.result, self.error = result, error
        if self.lock.locked():
            self.lock.release()
        self.waits = False


class _Kind:
    """Calls of one kind: how many are under way, and the threads that wait for the next one."""

    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.under_way = 0
        self.waiting: deque[_Turn] = deque()


class ThreadBatcher:
    """Like Batcher, for threads. A call is carried out by the first of the threads that wait for it: none is needed for
    that alone.
    """

    def __init__(self, run: Callable[[Op[Any]], Any], patience_s: float) -> None:
        """As for Batcher, with a ``run`` that blocks."""
        self._run = run
        self._patience_s = patience_s
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """A forked child must not wait for its parent's threads."""
        self._lock = threading.Lock()
        self._kinds: dict[Hashable, _Kind] = {}

    def put(self, call: Call) -> Any:
        """Like Batcher.put, but it blocks."""
        # A signal's handler may raise anywhere in the main thread, between any two steps of keeping count too. So it
        # takes no part: others would wait for ever for a call that has ended.
        if threading.current_thread() is threading.main_thread():
            return self._run(call.put([call]))[0]
        turn = None
        with self._lock:
            kind = self._kinds.setdefault(call.kind, _Kind())
            if kind.under_way < AT_ONCE:
                kind.under_way += 1
            else:
                turn = _Turn(call)
                kind.waiting.append(turn)
        if turn is None:
            return self._carry_out(kind, call, ())
        self._wait(kind, turn)
        if turn.error is not None:
            raise turn.error
        return turn.result if turn.batch is None else self._carry_out(kind, call, turn.batch)

    def _wait(self, kind: _Kind, turn: _Turn) -> None:
        try:
            turn.lock.acquire()
        except BaseException:  # a signal's handler has raised
            with self._lock:
                turn.waits = False  # or it could be chosen to carry out a call that it is not there for
                if turn in kind.waiting:
                    kind.waiting.remove(turn)
                    raise
            if turn.batch is not None:
                self._go_on(kind, turn.call, turn.batch, None)
            raise

    def _carry_out(self, kind: _Kind, call: Call, others: Sequence[_Turn]) -> Any:
        """Carries out the call for this thread and ``others``, which wait."""
        failed = None
        try:
            if not others:
                return self._run(call.put([call]))[0]
            results = self._run(call.put([call, *[other.call for other in others]]))
            for i, other in enumerate(others, 1):
                other.end(results[i])
            return results[0]
        except Exception as error:
            failed = error
            for other in others:
                other.end(None, other.call.own(error))
            raise
        finally:  # if this thread is interrupted, the others have no answer
            self._go_on(kind, call, others, failed)

    def _go_on(self, kind: _Kind, call: Call, others: Sequence[_Turn], failed: Exception | None) -> None:
        """A call has ended: the first of those that waited meanwhile carries out the next one. First come those of the
        ``others`` that still wait, because the thread that was to carry out their call was interrupted.
        """
        with self._lock:
            if others:
                kind.waiting.extendleft([other for other in reversed(others) if other.waits])
            batch = self._next(kind.waiting, failed) if kind.waiting else []
            if not batch:
                kind.under_way -= 1
                if kind.under_way == 0:
                    del self._kinds[call.kind]
                return
            first = batch[0]
            first.batch = batch[1:]
        first.lock.release()

    def _next(self, waiting: deque[_Turn], failed: Exception | None) -> list[_Turn]:
        """Those whom the next call is for."""
        batch: list[_Turn] = []
        too_long = 0.0 if failed is None else time.monotonic() - self._patience_s
        while waiting and len(batch) < MOST:
            one = waiting.popleft()
            if failed is not None and one.since < too_long:
                one.end(None, one.call.own(failed))
            else:
                batch.append(one)
        return batch


def twin(error: Exception) -> Exception:
    """A copy: an exception that several tasks raise would collect the tracebacks of all. One that can't be copied, as
    some of other libraries, is raised as it is.
    """
    try:
        twin = type(error).__new__(type(error), *error.args)
    except Exception:
        return error
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error.__cause__
    return twin.with_traceback(error.__traceback__)
