"""An event loop whose time passes only while everything waits, and whose processes can be stopped and killed.

What runs next is drawn from all that is ready, by a seed: the same seed gives the same order. A process is a context
variable. Callbacks inherit it from what scheduled them, so each belongs to one process, to the server, or to nobody.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any


class Process:
    """A simulated operating system process. Its memory is whatever its callbacks refer to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.stopped = False
        self.parked: list[asyncio.Handle] = []  # due while it was stopped
        self.steps = 0
        self.dies_at: int | None = None  # the step before which it is killed
        self.on_death: Callable[[], None] = lambda: None
        self.handler: Callable[[int, None], Any] | None = None  # of signals
        self.stop_requested_at: float | None = None  # when
        self.was_stopped = False
        self.troubled_at = 0.0  # when it was last stopped or continued
        self.calling: list[str] = []  # the calls to Redis that it waits for
        self.at_end: list[Callable[[], object]] = []  # ends its threads


_BEGIN_S = 1000.0
running: ContextVar[Process | None] = ContextVar("running", default=None)


class _Numbered:
    """Sets hold their members in the order of their hashes, which would be that of their addresses."""

    _number: int

    def __new__(cls, *_args: Any, loop: SimulatedLoop, **_kwargs: Any) -> Any:
        made = super().__new__(cls)
        made._number = next(loop.numbers)  # before it is initialised: asyncio keeps all tasks in a set
        return made

    def __hash__(self) -> int:
        return self._number


class _Future(_Numbered, asyncio.Future[Any]):
    pass


class _Task(_Numbered, asyncio.Task[Any]):
    pass


class Deadlock(AssertionError):
    """Everything waits, and for nothing that will happen."""


class SimulatedLoop(BaseEventLoop):
    """``shuffled`` False: callbacks run in the order in which they became ready, as with asyncio."""

    def __init__(self, random: Random, shuffled: bool) -> None:
        super().__init__()
        self._random = random
        self._shuffled = shuffled
        self._now_s = _BEGIN_S
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self.steps = 0
        self.numbers = iter(range(10**12))
        self.set_task_factory(lambda loop, coro, **options: _Task(coro, loop=loop, **options))

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def time(self) -> float:
        return self._now_s

    @property
    def passed_s(self) -> float:
        """How much time has passed."""
        return self._now_s - _BEGIN_S

    # -- processes

    def spawn(self, process: Process, main: Callable[[], Any]) -> asyncio.Task[Any]:
        """Runs a coroutine function in the process."""
        context = copy_context()
        context.run(running.set, process)
        return self.create_task(main(), context=context)

    def stop_process(self, process: Process) -> None:
        """As SIGSTOP does: nothing of it runs, what becomes due waits."""
        process.stopped = process.was_stopped = True
        process.troubled_at = self._now_s

    def continue_process(self, process: Process) -> None:
        """As SIGCONT does."""
        process.stopped = False
        process.troubled_at = self._now_s
        parked, process.parked = process.parked, []
        for handle in parked:
            self._add_callback(handle)

    def kill(self, process: Process) -> None:
        """As SIGKILL does: nothing of it ever runs again, no ``finally`` either."""
        if process.alive:
            process.alive = False
            process.parked.clear()
            for end in process.at_end:
                end()
            process.on_death()

    def signal(self, process: Process, number: int) -> bool:
        """Sends a signal, which runs the process's handler. Returns whether there is one."""
        if process.handler is None or not process.alive:
            return False
        context = copy_context()
        context.run(running.set, process)
        self.call_soon(process.handler, number, None, context=context)
        return True

    def install(self, handler: Callable[[int, None], Any]) -> dict[int, Any]:
        """Handles the running process's signals, as streamdq.process.signals.install does."""
        process = running.get()
        assert process is not None
        process.handler = handler
        return {}

    def uninstall(self, _before: dict[int, Any], _received_at: float | None) -> None:
        process = running.get()
        if process is not None:
            process.handler = None

    # -- as BaseEventLoop wants it

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is dropped when its time has come."""

    def _add_callback(self, handle: asyncio.Handle) -> None:
        if not handle._cancelled:
            self._ready.append(handle)  # type: ignore[attr-defined]

    def _process_events(self, event_list: Any) -> None:
        """There are no sockets."""

    def _write_to_self(self) -> None:
        """Nobody waits in a selector."""

    def run_in_executor(  # type: ignore[override]
        self, _executor: Any, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Threads run here too, one step each, a little later."""
        future = self.create_future()

        def step() -> None:
            if not future.cancelled():
                try:
                    future.set_result(function(*args))
                except BaseException as error:
                    future.set_exception(error)

        self.call_later(self._random.uniform(0.0, 0.002), step)
        return future

    def _run_once(self) -> None:
        """One callback."""
        ready = self._ready  # type: ignore[attr-defined]
        while not ready:
            if not self._timers:
                raise Deadlock
            self._now_s = max(self._now_s, self._timers[0][0])
            self._take_due()
        self._take_due()
        if self._shuffled and len(ready) > 1:
            ready.rotate(-self._random.randrange(len(ready)))
        handle = ready.popleft()
        if not handle._cancelled and self._may_run(handle):
            self.steps += 1
            handle._run()

    def _take_due(self) -> None:
        while self._timers and self._timers[0][0] <= self._now_s:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled():
                self._ready.append(timer)  # type: ignore[attr-defined]

    def _may_run(self, handle: asyncio.Handle) -> bool:
        process = handle._context.get(running)  # type: ignore[attr-defined]
        if process is None:
            return True
        if process.alive and process.steps == process.dies_at:
            self.kill(process)
        if not process.alive:
            return False
        if process.stopped:
            process.parked.append(handle)
            return False
        process.steps += 1
        return True
