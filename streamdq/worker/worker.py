"""The worker, as users know it: handlers and what is said of them. Its loops are in serving.py."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Concatenate, Generic, ParamSpec, overload

from typing_extensions import TypeVar, Unpack  # the TypeVar of Python 3.11 has no default

from ..codec.envelope import check_version
from ..codec.protocol import Codec
from ..config import DEFAULT_GROUP, Settings
from ..errors import HandlersHung, InvalidInput
from ..job.job import check_group, check_own_topic, check_topic, check_ttr
from ..job.result import check_retention
from ..job.retry import RetryInput, RetrySchedule
from ..link.credentials import CredentialProvider
from ..link.opening import with_provider
from ..operations.schedules.define import ScheduleOptions, planned
from ..operations.schedules.read import check_schedule_id
from ..options import suggesting
from ..process.descriptors import reserve_standard
from ..process.heap import frozen
from ..process.leaving import leave, left_over
from ..process.logs import log, shown_in_script, what
from ..process.loop import running_loop
from ..store.jobs.records import encode
from ..times.clock import RedisClock
from ..times.durations import Duration
from ..topic import Topic, TopicHandler, enqueueable
from .declared_schedules import Declared
from .handlers import Handler, Handlers, Upcast, check, handler_of, upcast_of, with_upcasts
from .hung import EXIT_HUNG
from .member import Where
from .middleware import Middleware
from .process_pool import ProcessPool
from .serving import Burst, Hooks, WorkerConfig, WorkerRun
from .topic_scheduler import scheduler_of

B = TypeVar("B")
P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=Middleware)
S = TypeVar("S", default=Any)

importing: ContextVar[str | None] = ContextVar("importing", default=None)
"""The module that the command line imports for the worker in it: it may not run one meanwhile."""


class _Unset:
    """Stands for a state that nobody has set."""


class Worker(Generic[S]):
    """Runs the jobs of its handlers' topics, for one consumer group, in this process.

    ``concurrency``: how many handlers run at once; ``async def`` in the event loop, ``def`` each in a thread.
    ``credential_provider``: as for Queue. ``codec``: as for Queue; a worker reads the bodies of these codecs. Every
    worker also runs a mover; one mover per namespace is active. ``prune``: at its start, the worker removes schedules
    of its handlers' topics that other workers' code declared and its own does not. ``show_errors``: logs what handlers
    raise with message and traceback, a retry as a warning, a dead letter as an error; False: only class and place.
    ``pool``: the processes of handlers with ``process=True``.

    Where slots are scarce, topics with ready jobs take turns. ``topics``: they share the starts by these weights,
    ``{"pay": 10, "mail": 1}``; a topic that is not named has weight 1. ``priority``: a topic's jobs start only if no
    topic before it in this list has a ready job; topics that are not named come last.
    """

    @suggesting
    def __init__(
        self,
        url: str | None = None,
        namespace: str | None = None,
        group: str = DEFAULT_GROUP,
        concurrency: int = 100,
        *,
        codec: Sequence[Codec] | None = None,
        topics: Mapping[str, float] | None = None,
        priority: Sequence[str] | None = None,
        prune: bool = False,
        show_errors: bool = True,
        pool: ProcessPool | None = None,
        credential_provider: CredentialProvider | None = None,
        settings: Settings | None = None,
        clock: RedisClock | None = None,
    ) -> None:
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 1 <= concurrency <= 10_000:
            raise InvalidInput(f"concurrency: {concurrency!r} is not a whole number between 1 and 10,000")
        self.url = url
        self.group = check_group(group)
        self.concurrency = concurrency
        self.prune = prune
        self.show_errors = show_errors
        self.take_turns(topics, priority)
        self.name = ""  # the consumer's, once it serves
        self._settings = with_provider(settings, credential_provider)
        self._state: S | _Unset = _Unset()
        self.namespace = self._settings.namespace if namespace is None else namespace
        self._clock = clock
        self._pool = pool or ProcessPool()
        self._codec = codec
        self._handlers: dict[str, Handler] = {}
        self._upcasts: dict[str, dict[int, Upcast]] = {}
        self._every: Handler | None = None
        self._declared: dict[tuple[str, str], Declared] = {}
        self._implied: set[str] = set()  # topics whose handler only a schedule has named so far
        self._hooks = Hooks()
        self._run: WorkerRun | None = None

    @overload
    def handler(
        self,
        topic: str,
        *,
        ttr: Duration | None = None,
        retry: RetryInput | None = None,
        batch: int | None = None,
        version: int | None = None,
        result: Duration | None = None,
        process: bool = False,
    ) -> Callable[[F], F]: ...

    @overload
    def handler(
        self,
        topic: Topic[B],
        *,
        ttr: Duration | None = None,
        retry: RetryInput | None = None,
        batch: None = None,
        result: Duration | None = None,
        process: bool = False,
    ) -> Callable[[Callable[Concatenate[B, P], R]], TopicHandler[B, Concatenate[B, P], R]]: ...

    @overload
    def handler(
        self,
        topic: Topic[B],
        *,
        ttr: Duration | None = None,
        retry: RetryInput | None = None,
        batch: int,
        result: Duration | None = None,
        process: bool = False,
    ) -> Callable[[Callable[Concatenate[list[B], P], R]], TopicHandler[B, Concatenate[list[B], P], R]]: ...

    @suggesting
    def handler(
        self,
        topic: str | Topic[Any],
        *,
        ttr: Duration | None = None,
        retry: RetryInput | None = None,
        batch: int | None = None,
        version: int | None = None,
        result: Duration | None = None,
        process: bool = False,
    ) -> Callable[[Any], Any]:
        """Registers a function for a topic. ``ttr`` and ``retry`` become this group's settings of the topic; a job's
        own settings override them. ``batch``: the function gets lists of up to this many jobs that are due together.
        ``version``: of the newest body that it takes; a job with a newer one is handed back, for a newer release of the
        worker. None: the newest ``upcast``'s; without any, it takes whatever comes. ``result``: for how long what it
        returns is kept for ``Queue.result``, as JSON; 0: no longer. None: as the topic has it for this group.
        ``process``: for a ``def`` function that computes: each call runs in one of the worker's processes (``pool``).
        Options that are not given are those of the Topic, if ``topic`` is one; the function then also has the Topic's
        ``enqueue``: ``close.enqueue(queue, CloseOrder(42))``.

        Raises:
            InvalidInput: the topic has a handler already, or the function's signature can't be served.
        """
        name, expected, ttr, retry, version = _what_it_says(topic, ttr, retry, version)
        if "*" in name:
            raise InvalidInput(f"handler: {name!r} is no pattern; register each topic, or all with every_topic")
        if name in self._handlers and name not in self._implied:
            raise InvalidInput(f"topic {name!r} has a handler already; one function per topic and worker")
        ttr_ms = None if ttr is None else check_ttr(ttr)
        schedule = None if retry is None else str(RetrySchedule.of(retry))
        takes = None if version is None else check_version(version)
        result_ms = None if result is None else check_retention(result)

        def register(function: F) -> F:
            if name in self._implied and self._handlers[name].function is not function:
                raise InvalidInput(f"topic {name!r} has a handler already; one function per topic and worker")
            self._handlers[name] = handler_of(
                name, function, batch, ttr_ms, schedule, takes, expected, result_ms, process=process
            )
            self._implied.discard(name)
            enqueueable(function, topic)
            return function

        return register

    @suggesting
    def upcast(self, topic: str, *, since: int) -> Callable[[F], F]:
        """Registers a function that turns a body of the topic as it was before version ``since`` into one of that
        version. An older body goes through all later functions in turn, and then to the handler; a job keeps the body
        that it was enqueued with. The version of a body is the ``version`` of its ``enqueue``, 1 by default.

        Raises:
            InvalidInput: there is one for this topic and version already, or it is asynchronous.
        """
        topic = check_topic(topic)
        if check_version(since) < 2:
            raise InvalidInput("upcast: since=1 is the first version, and no body is older")
        if since in self._upcasts.get(topic, {}):
            raise InvalidInput(f"upcast: version {since} of topic {topic!r} already has an upcast")

        def register(function: F) -> F:
            self._upcasts.setdefault(topic, {})[since] = upcast_of(topic, function, since)
            return function

        return register

    def schedule(
        self, topic: str, body: Any = None, *, id: str = "default", **options: Unpack[ScheduleOptions]
    ) -> Callable[[F], F]:
        """Declares a schedule beside the handler of its jobs. A starting worker creates it, or updates it to match the
        code, as ``Queue.schedule`` does. If Redis loses it, the worker creates it again. The function becomes the
        topic's handler, unless ``handler`` registers it with options of its own. A schedule that is no longer declared
        stays, unless a worker with ``prune`` starts. ``options``: those of ``Queue.schedule`` (``ScheduleOptions``).

        Raises:
            InvalidInput: an argument is invalid, the topic has another handler, or the id was declared before.
        """
        if callable(topic):
            raise InvalidInput('schedule: name the topic: @worker.schedule("topic", every="10m")')
        definition, new = planned(body, options, declared=True)
        encode(new, self._settings.max_body_bytes)
        topic, id = check_own_topic(topic), check_schedule_id(id)
        one = Declared(topic, id, definition, new)

        def register(function: F) -> F:
            if (topic, id) in self._declared:
                raise InvalidInput(f"topic {topic!r} has a schedule {id!r} here already; give each an id of its own")
            if topic not in self._handlers:
                self._handlers[topic] = handler_of(topic, function, None, None, None)
                self._implied.add(topic)
            elif self._handlers[topic].function is not function:
                raise InvalidInput(f"topic {topic!r} has another handler: declare its schedules with that function")
            self._declared[topic, id] = one
            return function

        return register

    def every_topic(self, function: F) -> F:
        """Registers a function for all topics that have this worker's group, except those with a handler of their own.
        That includes topics that are created while it serves. TTR and retry schedule are those of the topics.

        Raises:
            InvalidInput: there is such a function already, or its signature can't be served.
        """
        if self._every is not None:
            raise InvalidInput("worker: it has a handler for every topic already; one function per worker")
        self._every = handler_of("every topic", function, None, None, None)
        return function

    def take_turns(self, topics: Mapping[str, float] | None = None, priority: Sequence[str] | None = None) -> None:
        """Sets the ``topics`` with weights, or the ``priority``, as the constructor does; from the next ``serve`` on.

        Raises:
            InvalidInput: both are given, or one can't be read.
        """
        scheduler_of(topics, priority)
        self._weights, self._priority = topics, priority

    @property
    def topics(self) -> frozenset[str]:
        """The topics with handlers; with a handler for every topic, also those found while it serves."""
        return frozenset(self._handlers if self._run is None else self._run.handlers)

    def on_dead(self, function: F) -> F:
        """Registers a function that is called for each job this group gives up, once the job is a dead letter in Redis.
        It gets the Job, with the reason and the error in ``job.groups[group]``.
        """
        check(function, "on_dead")
        self._hooks.on_dead.append(function)
        return function

    @property
    def state(self) -> S:
        """What the user's ``on_startup`` functions have made for the handlers, such as a pool of connections:
        ``worker = Worker[Shop]()`` says its type.

        Raises:
            InvalidInput: nobody has set it.
        """
        if isinstance(self._state, _Unset):
            raise InvalidInput("worker: its state is not set; set worker.state in a function with @worker.on_startup")
        return self._state

    @state.setter
    def state(self, state: S) -> None:
        self._state = state

    def on_startup(self, function: F) -> F:
        """Registers a function, plain or asynchronous, that is called in the worker's event loop before it claims jobs,
        in each of its processes. If it raises an exception, the worker does not start, and raises that. ``stop`` and
        signals cancel it.
        """
        check(function, "on_startup")
        self._hooks.on_startup.append(function)
        return function

    def on_shutdown(self, function: F) -> F:
        """Like ``on_startup``, for the end: called when the last handler has ended, the function registered last first.
        What it raises is logged. If the worker did not get past its ``on_startup`` functions, it is not called. A
        signal that comes meanwhile cancels it, if it is not the first.
        """
        check(function, "on_shutdown")
        self._hooks.on_shutdown.append(function)
        return function

    def middleware(self, function: M) -> M:
        """Registers a function that is called around each call of a handler: ``async def timed(attempt, call_next)``,
        which awaits ``call_next()`` once. That raises what the handler raises. If the function raises, the attempt ends
        as if the handler had raised that. A cancellation, because the TTR has passed or the worker stops, can't be
        undone by catching it. The one registered first is the outermost. The TTR covers all of them. ``attempt.on_end``
        reports how the attempt ended for each job.
        """
        check(function, "middleware")
        self._hooks.middleware.append(function)
        return function

    def run(self, burst: Burst = False) -> None:
        """Serves until SIGTERM or SIGINT; with ``burst``, until no job is ready, running or delayed; with "due", until
        no job that is due is left. Only the main thread gets signals: in another thread, it serves until ``stop`` is
        called. In the main thread it also freezes the objects in memory, so that full garbage collections don't delay
        due jobs. When it has drained, it ends the process even if a coroutine ignores its cancellation, or a call in
        the loop's executor goes on. If the program has not configured logging, what the worker logs is shown on stderr
        meanwhile.
        """
        _refuse_at_import("run()")
        if running_loop() is not None:
            raise InvalidInput("worker: run() starts an event loop, and one runs here already; await serve() instead")
        signals = threading.current_thread() is threading.main_thread()
        reserve_standard()
        with shown_in_script(), frozen() if signals else contextlib.nullcontext():
            # Not within `except ImportError`: every exception of a handler would have the ImportError as its context.
            _best_run()(self._serve_alone(burst, signals=signals))

    async def _serve_alone(self, burst: Burst, *, signals: bool) -> None:
        """As ``serve``. A loop waits for all of its tasks and threads before it ends. If some never end, the process
        ends without them; but if this is not the main thread, only when handlers hang: the program may go on.
        """
        error: BaseException | None = None
        try:
            await self.serve(burst, signals=signals)
        except BaseException as raised:
            error = raised
            raise
        finally:
            if left := await left_over():
                code = EXIT_HUNG if isinstance(error, HandlersHung) else int(error is not None)
                ends = signals or code == EXIT_HUNG
                then = "this process ends without it" if ends else "this thread waits for it"
                log.error(f"what can't be ended goes on: {then}", left=left, why=error and what(error))
                if ends:
                    leave(code)

    async def serve(self, burst: Burst = False, *, signals: bool = False) -> None:
        """As ``run``, within a running event loop; ``signals``: handle SIGTERM and SIGINT. If it is cancelled, it hands
        running jobs back at once, without using up an attempt.
        """
        _refuse_at_import("serve()")
        if burst not in (False, True, "due"):
            raise InvalidInput(f"burst: {burst!r} is not True, False or 'due'")
        if not self._handlers and self._every is None:
            raise InvalidInput("worker: no handlers; register one with @worker.handler(topic)")
        if self._run is not None:
            raise InvalidInput("worker: it is serving already")
        for topic in (*(self._weights or ()), *(self._priority or ())):
            if topic not in self._handlers and self._every is None:
                raise InvalidInput(f"worker: it has no handler for {topic!r}, which it gives a weight or a priority")
        self._run = WorkerRun(config_of(self))
        self.name = self._run.name
        try:
            await self._run.serve(burst, signals)
        finally:
            self._run = None

    def stop(self) -> None:
        """Begins to drain, as SIGTERM does: no more jobs are claimed, and running handlers have ``grace_s`` to finish.
        Their jobs are then handed back without using up an attempt. Any thread may call it. It does nothing if the
        worker is not serving.
        """
        if self._run is not None:
            self._run.stop()


def _best_run() -> Callable[[Coroutine[Any, Any, None]], None]:
    """The ``run`` of uvloop where it is installed, else that of asyncio."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    run: Callable[[Coroutine[Any, Any, None]], None] = uvloop.run
    return run


def _what_it_says(
    topic: str | Topic[Any], ttr: Duration | None, retry: RetryInput | None, version: int | None
) -> tuple[str, Any, Duration | None, RetryInput | None, int | None]:
    """Name, type of the bodies, and settings: what is given, else what a Topic says."""
    if isinstance(topic, Topic):
        ttr = topic.ttr if ttr is None else ttr
        return topic.name, topic.body, ttr, topic.retry if retry is None else retry, topic.version
    if callable(topic):  # @worker.handler without parentheses passes the function
        raise InvalidInput('handler: name the topic: @worker.handler("topic")')
    return check_own_topic(topic), Any, ttr, retry, version


def _refuse_at_import(call: str) -> None:
    """It would serve while the command line waits for the module to be imported, and for ever; or in a process that
    imports the module for its handlers.
    """
    if "multiprocessing" in sys.modules and getattr(
        sys.modules["multiprocessing"].current_process(), "_inheriting", False
    ):
        raise InvalidInput(
            f"worker: {call} runs while a process imports its module; put it under if __name__ == '__main__':"
        )
    if target := importing.get():
        rule = "put that under if __name__ == '__main__':"
        raise InvalidInput(f"worker: {target} calls {call} while `streamdq worker` imports it; {rule}")


# -- for other modules of streamdq


def config_of(worker: Worker) -> WorkerConfig:
    """Its configuration.

    Raises:
        InvalidInput: an upcast function does not fit its handler.
    """
    return WorkerConfig(
        where=Where(worker.url, worker.namespace, worker._settings, worker._clock, worker._codec), group=worker.group,
        concurrency=worker.concurrency, scheduler=scheduler_of(worker._weights, worker._priority),
        handlers=Handlers(with_upcasts(worker._handlers, worker._upcasts), worker._every), hooks=worker._hooks,
        declared=list(worker._declared.values()), prune=worker.prune, show_errors=worker.show_errors,
        pool=worker._pool,
    )  # fmt: skip


def run_of(worker: Worker) -> WorkerRun | None:
    """Its call of ``serve``; None: it does not serve."""
    return worker._run


def bound_to(worker: Worker, url: str | None, clock: RedisClock | None) -> tuple[str | None, RedisClock | None]:
    """Serves there from the next ``serve`` on; returns where it would have served.

    Raises:
        InvalidInput: it is serving.
    """
    if worker._run is not None:
        raise InvalidInput("bind: the worker is serving already")
    before = worker.url, worker._clock
    worker.url, worker._clock = url, clock
    return before
