"""Handlers: which function runs a topic's jobs, which parameters it takes, and how users' functions are called."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter
from pydantic_core import to_json

from .. import forks
from ..config import MAX_BATCH
from ..errors import BodyUnreadable, InvalidInput
from ..job.job import Job
from ..process.leaving import leave_child
from .running_job import RunningJob

Keep = Callable[[Any], None]
_LAZY = (GeneratorType, AsyncGeneratorType, map, filter)


@dataclass(slots=True)
class Handler:
    """One topic's function. If ``batch`` is None, each call gets one job."""

    topic: str
    function: Callable[..., Any]
    validate: Callable[[bytes], Any]  # turns the body's JSON into the function's argument
    is_async: bool  # otherwise it is called in a thread; if it returns an awaitable, that is awaited
    wants_job: str | None  # the name of the parameter that takes the job
    batch: int | None
    ttr_ms: int | None
    retry: str | None
    version: int | None = None  # of the bodies that it takes; None: whatever comes
    upcasts: Sequence[Upcast] = ()  # in their order
    takes_body: bool = True
    result_ms: int | None = None  # how long what it returns is kept
    process: bool = False  # it is called in another process

    @property
    def bare(self) -> Handler:
        """For another process, which only calls it."""
        return replace(self, validate=_unchecked, upcasts=())

    @property
    def defined_at(self) -> str:
        """As a call of it in another process is shown."""
        code: Any = getattr(_code_of(self.function), "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}" if code else ""

    def accept(self, job: Job) -> Any:
        """The function's argument, from a body that is encoded or has a version.

        Raises:
            BodyUnreadable: this process can't read it, or it has a newer version than the handler takes.
            ValidationError: it is not what the handler takes.
            Exception: of an upcast function or a validator.
        """
        version = job.version
        if self.version is not None and version > self.version:
            raise BodyUnreadable(f"it has version {version}, and this handler takes version {self.version} at most")
        later = [upcast.function for upcast in self.upcasts if version < upcast.since]
        if not later:
            return self.validate(job.json)
        body = job.body
        for function in later:
            body = function(body)
        return self.validate(to_json(body))

    def call(self, body: Any, job: Any) -> Any:
        """Calls the function; for batches, ``job`` is a list of jobs."""
        bodies = (body,) if self.takes_body else ()
        if self.wants_job is None:
            return self.function(*bodies)
        return self.function(*bodies, **{self.wants_job: job})


def _unchecked(body: bytes) -> Any:
    raise NotImplementedError(body)


class Upcast(NamedTuple):
    """Turns a body of the version before ``since`` into one of ``since``."""

    since: int
    function: Callable[[Any], Any]


class Handlers(dict[str, Handler]):
    """A worker's handlers, by topic. With a handler for every topic, all topics have one, as jobs of topics that are no
    longer served may still be in hand; only those that are served are kept.
    """

    def __init__(self, named: Mapping[str, Handler], every: Handler | None) -> None:
        super().__init__(named)
        self.named = frozenset(named)
        self.every = every

    def __missing__(self, topic: str) -> Handler:
        if self.every is None:
            raise KeyError(topic)
        return replace(self.every, topic=topic)

    def serve(self, topics: Iterable[str]) -> None:
        """Keeps those of these topics and the topics with handlers of their own."""
        kept = self.named.union(topics)
        for topic in self.keys() - kept:
            del self[topic]
        for topic in kept - self.keys():
            self[topic] = self[topic]


def handler_of(
    topic: str,
    function: Callable[..., Any],
    batch: int | None,
    ttr_ms: int | None,
    retry: str | None,
    version: int | None = None,
    expected: Any = Any,
    result_ms: int | None = None,
    *,
    process: bool = False,
) -> Handler:
    """Reads the function's signature: the first parameter is the body, one annotated RunningJob or named ``job`` the
    job. A function without a parameter for the body, such as that of a schedule, is called without it.
    ``expected``: the body's type if the parameter has none.

    Raises:
        InvalidInput: the signature can't be served, or pydantic can't check the body's type.
    """
    if batch is not None and (isinstance(batch, bool) or not 1 <= batch <= MAX_BATCH):
        raise InvalidInput(f"handler of {topic!r}: batch={batch!r} is not between 1 and {MAX_BATCH}")
    name = getattr(function, "__qualname__", repr(function))
    code = _code_of(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise InvalidInput(f"handler {name}: is a generator function, so calling it runs nothing; take the `yield` out")
    if process and inspect.iscoroutinefunction(code):
        raise InvalidInput(f"handler {name}: process=True is for `def` handlers; another process awaits nothing")
    body_type, job_name, takes_body = _parameters_of(function, code, name)
    if batch is not None:
        body_type = _item_type(body_type, name, takes_body)
    validate = _validator(expected if body_type is Any else body_type, name)
    return Handler(
        topic, function, validate, inspect.iscoroutinefunction(code), job_name, batch, ttr_ms, retry, version,
        takes_body=takes_body, result_ms=result_ms, process=process,
    )  # fmt: skip


def with_upcasts(handlers: Mapping[str, Handler], upcasts: Mapping[str, Mapping[int, Upcast]]) -> dict[str, Handler]:
    """The handlers, each with the upcast functions of its topic.

    Raises:
        InvalidInput: a topic has upcast functions but no handler, or they go beyond the version that its handler takes.
    """
    made = dict(handlers)
    for topic, own in upcasts.items():
        if topic not in handlers:
            raise InvalidInput(f"upcast: topic {topic!r} has no handler in this worker; its name may be misspelt")
        newest, version = max(own), handlers[topic].version
        if version is not None and version < newest:
            raise InvalidInput(
                f"upcast: version {newest} of topic {topic!r} has an upcast, but the handler takes version {version}"
            )
        in_order = [own[since] for since in sorted(own)]
        made[topic] = replace(handlers[topic], version=version or newest, upcasts=in_order)
    return made


def upcast_of(topic: str, function: Callable[[Any], Any], since: int) -> Upcast:
    """Checks the function: it runs in the event loop, before the handler.

    Raises:
        InvalidInput: it is asynchronous or a generator.
    """
    code = _code_of(function)
    if inspect.iscoroutinefunction(code) or inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise InvalidInput(f"upcast of {topic!r}: must be a plain function that returns the new body")
    return Upcast(since, function)


class _Parameters(NamedTuple):
    """``job_name``: of the parameter that takes the job, or None if there is none."""

    body_type: Any
    job_name: str | None
    takes_body: bool


def _parameters_of(function: Callable[..., Any], code: Callable[..., Any], name: str) -> _Parameters:
    parameters = list(inspect.signature(function).parameters.values())
    hints = _hints_of(code, name)
    job_name = next((p.name for p in parameters if p.name == "job" or _is_job(hints.get(p.name))), None)
    others = [p for p in parameters if p.name != job_name]
    if all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in others):
        return _Parameters(Any, job_name, takes_body=False)
    bodies = _of_bodies(others)
    if len(bodies) != 1 or bodies[0].kind is inspect.Parameter.KEYWORD_ONLY:
        takes = ", ".join(parameter.name for parameter in parameters)
        raise InvalidInput(
            f"handler {name}: must take the body first, or no body, and may take `job: RunningJob`; it takes {takes}"
        )
    return _Parameters(hints.get(bodies[0].name, Any), job_name, takes_body=True)


def _hints_of(code: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(code, include_extras=True)  # Annotated may restrict the body
    except Exception as error:  # whatever the text of an annotation does when it is evaluated
        raise InvalidInput(f"handler {name}: can't resolve its annotations: {error}") from None


def _of_bodies(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Those that take the body: one, if all is well. ``*args`` of a decorator takes it if nothing else does."""
    required = [parameter for parameter in parameters if _is_required(parameter)]
    return required or [parameter for parameter in parameters if parameter.kind is parameter.VAR_POSITIONAL]


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )


def _item_type(body_type: Any, name: str, takes_body: bool) -> Any:
    """The item type of a list of bodies."""
    body_type = _bare(body_type)
    if not takes_body or (body_type not in (Any, list) and get_origin(body_type) is not list):
        raise InvalidInput(f"handler {name}: with batch= its first parameter is a list, such as list[dict]")
    return (get_args(body_type) or (Any,))[0]


def _validator(body_type: Any, name: str) -> Callable[[bytes], Any]:
    try:
        return TypeAdapter(body_type).validator.validate_json
    except Exception as error:  # of what is no type pydantic may raise anything
        why = str(error).partition("\n")[0]
        raise InvalidInput(f"handler {name}: pydantic can't check {body_type!r}, is it a type? {why}") from None


def _code_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a call runs: that of a partial, or ``__call__`` of an object's class. It does not look behind
    decorators: they decide whether the wrapped function is called, awaited, or both.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


def _bare(hint: Any) -> Any:
    """The type without ``Annotated``."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _is_job(hint: Any) -> bool:
    """Whether it is that of a job, or of a batch of jobs. Job may stand for RunningJob."""
    hint = _bare(hint)
    if get_origin(hint) is list:
        return get_args(hint) in ((RunningJob,), (Job,))
    return hint is RunningJob or hint is Job


# -- calls of users' functions; what they raise is returned as a value


def check(function: Callable[..., Any], name: str) -> None:
    """Checks a function that is registered as ``name``.

    Raises:
        InvalidInput: it can't be called, or a call runs none of its code.
    """
    if not callable(function):
        raise InvalidInput(f"{name}: {function!r} is not a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(f"{name}: {function.__qualname__} is a generator function, so calling it runs nothing")


def called(function: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    """What the function returns, and what it raises. The exception is returned as a value because some can't be raised
    where the result is awaited: a Future can't hold a StopIteration, and a KeyboardInterrupt or SystemExit would end
    the event loop. A child that the function has forked ends with it.
    """
    depth = forks.depth
    try:
        result = function(*args)
    except BaseException as error:
        return None, _in_parent(depth, error)
    return result, _in_parent(depth, None)


def _in_parent(depth: int, error: BaseException | None) -> BaseException | None:
    """What a user's function has raised. In a child that it has forked, the process ends. ``depth``: from before."""
    if forks.depth != depth:
        leave_child(error)
    return error


async def run_keeping(keep: Keep, function: Callable[..., Any], *args: Any) -> BaseException | None:
    """As ``run``; ``keep`` is called with what the function has returned in the end."""
    result, error = called(function, *args)
    return await completed(result, keep) if error is None else error


async def run(function: Callable[..., Any], *args: Any) -> BaseException | None:
    """Calls the function and awaits what it returns, as ``completed`` does; returns the exception."""
    depth = forks.depth
    try:
        result = function(*args)
        if type(result) is CoroutineType:  # an async def's, and nearly always the only thing to await
            result = await result
    except BaseException as error:
        return _in_parent(depth, error)
    _in_parent(depth, None)
    return None if result is None else await completed(result)


async def completed(result: Any, keep: Keep | None = None) -> BaseException | None:
    """Awaits the result of a call, and the results of that, until nothing is left to await; returns the exception. A
    plain function may return the coroutine, Task or Future that does its work. A generator is an error, because none
    of its code has run. ``keep``: is called with the last result.
    """
    depth = forks.depth
    try:
        while result is not None:
            if isinstance(result, Future):
                result = asyncio.wrap_future(result)
            if inspect.isawaitable(result):
                result = await result
            elif isinstance(result, _LAZY):
                raise TypeError(f"the handler returned a {type(result).__name__}: none of its code has run")
            else:
                break
        if keep is not None:
            keep(result)
    except BaseException as error:
        return _in_parent(depth, error)
    return _in_parent(depth, None)


def is_complete(result: Any) -> bool:
    """Whether ``completed`` would find nothing to await in the result of a call, and no error."""
    return result is None or not (isinstance(result, (Future, *_LAZY)) or inspect.isawaitable(result))


def drop(result: Any) -> None:
    """Disposes of a call's result that nobody will await."""
    if isinstance(result, CoroutineType):
        result.close()
    elif isinstance(result, Future):
        result.cancel()
