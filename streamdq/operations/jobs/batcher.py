"""Joins what several tasks want at the same time into one call, as databases do with group commit. A lone caller does
not wait; under load the calls grow, and their number does not.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from ...link.session import Op
from ...process.cancellations import uncancelled

AT_ONCE = 2  # calls of one kind: with one alone, a task would wait for the call before its own; more are smaller
MOST = 100  # tasks in one call: so it takes Redis some hundred µs


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


def clone_exception(error: Exception) -> Exception:
    """A copy: an exception that several tasks raise would collect the tracebacks of all. One that can't be copied, as
    some of other libraries, is raised as it is.
    """
    try:
        clone = type(error).__new__(type(error), *error.args)
    except Exception:
        return error
    clone.__dict__.update(error.__dict__)
    clone.__cause__ = error.__cause__
    return clone.with_traceback(error.__traceback__)
