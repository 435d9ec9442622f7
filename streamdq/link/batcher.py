"""Joins what several tasks want at the same time into one call, as databases do with group commit. A lone caller does
not wait; under load the calls grow, and their number does not.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ..process.cancellations import uncancelled

AT_ONCE = 2  # calls of one kind: with one alone, a task would wait for the call before its own; more are smaller
MOST = 100  # tasks in one call: so it takes Redis some hundred µs


@dataclass(slots=True)
class Batched:
    """A part of an operation. ``operation`` carries it out for several steps whose ``kind`` is the same, and returns a
    result for each.
    """

    kind: tuple[Hashable, ...]
    item: Any
    operation: Callable[[Sequence[Any]], Generator[Any, Any, Sequence[Any]]]


Run = Callable[[Generator[Any, Any, Sequence[Any]]], Awaitable[Sequence[Any]]]


class _Waiting(NamedTuple):
    step: Batched
    future: asyncio.Future[Any]
    since: float


class Batcher:
    """Belongs to one event loop."""

    def __init__(self, patience_s: float) -> None:
        """``patience_s``: who has waited for longer when a call fails does not wait for another one."""
        self._patience_s = patience_s
        self._under_way: Counter[Hashable] = Counter()
        self._waiting: defaultdict[Hashable, deque[_Waiting]] = defaultdict(deque)
        self._tasks: set[asyncio.Task[None]] = set()

    async def result(self, step: Batched, run: Run) -> Any:
        """What the operation returns for this step. ``run`` executes operations.

        Raises:
            Whatever the operation raises, then for all tasks whose steps it carried out.
        """
        if self._under_way[step.kind] >= AT_ONCE:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._waiting[step.kind].append(_Waiting(step, future, time.monotonic()))
            return await future
        self._under_way[step.kind] += 1
        failed: Exception | None = None
        try:
            (only,) = await run(step.operation([step.item]))
        except Exception as error:
            failed = error
            raise
        finally:
            self._go_on(step.kind, run, failed)
        return only

    def _go_on(self, kind: Hashable, run: Run, failed: Exception | None) -> None:
        """A call has ended: those that waited meanwhile are next."""
        waiting, batch = self._waiting[kind], list[_Waiting]()
        too_long = 0.0 if failed is None else time.monotonic() - self._patience_s
        while waiting and len(batch) < MOST:
            one = waiting.popleft()
            if one.future.done():  # its task was cancelled
                continue
            if failed is not None and one.since < too_long:
                one.future.set_exception(twin(failed))
            else:
                batch.append(one)
        if batch:
            task = asyncio.create_task(self._carry_out(batch, run))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        del self._waiting[kind]
        self._under_way[kind] -= 1
        if self._under_way[kind] == 0:
            del self._under_way[kind]

    async def _carry_out(self, batch: Sequence[_Waiting], run: Run) -> None:
        first, failed = batch[0].step, None
        try:
            # A storage of bodies may raise a CancelledError: not as if all of their tasks were cancelled.
            results = await uncancelled(partial(run, first.operation([one.step.item for one in batch])))
        except Exception as error:
            failed = error
            for one in batch:
                if not one.future.done():
                    one.future.set_exception(twin(error))
        except BaseException:  # the loop ends
            for one in batch:
                one.future.cancel()
            raise
        else:
            for one, result in zip(batch, results, strict=True):
                if not one.future.done():
                    one.future.set_result(result)
        finally:
            self._go_on(first.kind, run, failed)


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
