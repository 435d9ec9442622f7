"""Calls to Redis: which may be repeated, until when, and what an error reply means.

An operation is a generator. It yields Requests (and Pauses), receives the replies, and never waits itself. ``run``
executes it with blocking calls, ``arun`` awaits them; so the synchronous and the asynchronous API share everything
else.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import secrets
import socket
import time
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from redis.exceptions import ResponseError

from ..codec.bodies import Bodies
from ..codec.configured import bodies_of
from ..codec.protocol import Codec
from ..config import Settings
from ..errors import InvalidInput, ServerUnavailable, TooManyCalls
from ..keys import NamespaceKeys, plain
from ..times.clock import RedisClock, wall_s
from . import failures
from .address import Target
from .batcher import Batched
from .command import Command
from .connection import AsyncLink, ConnectionLimits, Link, LinkError
from .error_replies import as_streamdq
from .failures import Crowded

T = TypeVar("T")
_NAMESPACE = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_CONSUMER = re.compile(r"(.+)-(\d{1,10})-([0-9a-z]{6}|[0-9a-z]{10})")  # six: as releases up to 0.1 wrote it
_NAMED = 10
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5


@dataclass(slots=True)
class Request:
    """Commands to send together. ``changed``: see AsyncLink.look; it is None unless the commands are sent there."""

    commands: Sequence[Command]
    timeout_s: float
    blocking: bool = False
    changed: Callable[[str], None] | None = None


@dataclass(slots=True)
class Pause:
    """Wait before the next request."""

    seconds: float


@dataclass(slots=True)
class Work:
    """A function that blocks, such as one that reads a file. It runs in a thread if the caller awaits."""

    function: Callable[[], Any]


@dataclass(slots=True)
class Together:
    """Operations to run at the same time, each in a thread if the caller does not await."""

    ops: Sequence[Generator[Any, Any, Any]]


Op = Generator[Request | Pause | Work | Batched | Together, Any, T]
CallResult = tuple[T | None, Exception | None]
"""What a call returned, or the exception that it raised."""


class Session:
    """What every operation needs: settings, keys, the clock, and Redis's address for error messages."""

    def __init__(
        self,
        settings: Settings,
        namespace: str,
        clock: RedisClock,
        target: Target,
        bodies: Bodies | None = None,
    ) -> None:
        self.settings = settings
        self.keys = NamespaceKeys(namespace)
        self.bodies = bodies or bodies_of(namespace, settings)
        self.clock = clock
        self.address = target.describe()
        self.is_cluster = target.kind == "cluster"
        self.is_fake = target.kind == "memory"
        self.consumer = consumer_name()
        self.node_of: Callable[[str], str] = lambda _: ""  # on Cluster, the node that serves a key
        self.permitted = set[str]()  # the nodes that run scripts for this user (store/rights.py)
        self.asking = set[str]()  # those that a call of this process is just asking for that
        self.waits_for_redis = True  # False: if nobody listens at first, calls fail at once
        failures.expect(namespace)

    def _call_once(self, request: Request) -> Op[list[Any]]:
        try:
            replies: list[Any] = yield request
        except LinkError as error:
            raise self.unavailable(error) from error
        return replies

    def call(
        self,
        commands: Sequence[Command],
        *,
        repeatable: bool = True,
        timeout_s: float | None = None,
        within_s: float = float("inf"),
        changed: Callable[[str], None] | None = None,
    ) -> Op[list[Any]]:
        """The replies of commands sent together, including error replies, within one overall deadline.

        A call that is not ``repeatable`` is sent again only if Redis can't have run it. What a Cluster's node has
        answered is not sent again because another node has not: a job that was enqueued may have ended by then. With
        ``timeout_s``, the commands may block in Redis for that long and are sent only once. ``changed``: the commands
        look at keys, and it is called when these change (AsyncLink.look).

        Raises:
            ServerUnavailable: no reply by the deadline.
            TooManyCalls: no connection was free by then.
        """
        failures.calls_of(self.keys.namespace)
        if timeout_s is not None:
            return (yield from self._call_once(Request(commands, timeout_s, True, changed)))
        left_s, pause_s = min(within_s, self.settings.call_timeout_s), _FIRST_PAUSE_S
        deadline = time.monotonic() + left_s
        told: _Told | None = None
        while True:
            try:
                replies: list[Any] = yield Request(commands, left_s)
                self.waits_for_redis = True  # it was there, and is expected back
                return replies if told is None else told.whole(replies)
            except LinkError as error:
                told, commands = _left(told, commands, error.answered)
                left_s = deadline - time.monotonic() - pause_s
                in_vain = error.refused and not self.waits_for_redis
                if left_s <= 0 or in_vain or (error.sent and not repeatable):
                    raise self.unavailable(error) from error
            # Clients that lost Redis at the same moment must not all come back at the same moment.
            yield Pause(pause_s * random.uniform(0.5, 1))  # noqa: S311 - no secret
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def unavailable(self, error: LinkError) -> ServerUnavailable:
        if isinstance(error, Crowded):
            return TooManyCalls(f"nothing was sent to Redis at {self.address}: {error}")
        return ServerUnavailable(
            f"Redis at {self.address} did not answer: {error}; check that it is running, its URL, and the network"
        )


class _Told:
    """The replies to some of a call's commands."""

    def __init__(self, count: int) -> None:
        self._replies: list[Any] = [None] * count
        self._left = [*range(count)]  # the indexes of those that have none yet

    def left_of(self, commands: Sequence[Command], answered: Mapping[int, Any]) -> list[Command]:
        """Those of the commands left that have no reply yet. ``answered``: replies by the index of these commands."""
        for i, reply in answered.items():
            self._replies[self._left[i]] = reply
        kept = [i for i in range(len(commands)) if i not in answered]
        self._left = [self._left[i] for i in kept]
        return [commands[i] for i in kept]

    def whole(self, replies: Sequence[Any]) -> list[Any]:
        """All replies in order, with these of the commands that were left."""
        for i, reply in zip(self._left, replies, strict=True):
            self._replies[i] = reply
        return self._replies


def _left(
    told: _Told | None, commands: Sequence[Command], answered: Mapping[int, Any]
) -> tuple[_Told | None, Sequence[Command]]:
    """What is known of the replies, and the commands left, after some were ``answered``, as a rule none."""
    if answered:
        told = told or _Told(len(commands))
        commands = told.left_of(commands, answered)
    return told, commands


def consumer_name() -> str:
    """A name that no other process ever had: with a reused name, a process would take over a dead consumer's claims.
    ``begun_ms`` reads it.
    """
    host = "".join(c if c.isalnum() or c in "-." else "-" for c in socket.gethostname())
    return f"{host}-{os.getpid()}-{_digits(int(wall_s()), 6)}{_digits(secrets.randbelow(36**4), 4)}"


def _digits(number: int, count: int) -> str:
    return "".join(_DIGITS[number // 36**i % 36] for i in reversed(range(count)))


def begun_ms(consumer: str) -> tuple[str, int | None, int | None]:
    """The host and the process id in a consumer's name, and when it was named, in ms by its host's clock; None: its
    name does not tell.
    """
    found = _CONSUMER.fullmatch(consumer)
    if found is None:
        return consumer, None, None
    host, pid, named = found.groups()
    return host, int(pid), int(named[:6], 36) * 1000 if len(named) == _NAMED else None


def check_namespace(namespace: str) -> str:
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise InvalidInput(f"namespace: {namespace!r} is not valid; use 1 to 64 of A-Z a-z 0-9 . _ : -")
    return plain(namespace)


def open_session(
    url: str | None,
    namespace: str | None,
    settings: Settings | None,
    clock: RedisClock | None,
    link: type[Any],
    codec: Sequence[Codec] | None = None,
) -> tuple[Any, Session]:
    """A Link or AsyncLink, and what operations need to know. ``url`` None: ``$STREAMDQ_URL``, else the embedded
    server; ``namespace`` None: ``$STREAMDQ_NAMESPACE``, else ``streamdq``; ``codec`` None: ``$STREAMDQ_CODEC``.
    """
    settings = settings or Settings()
    namespace = check_namespace(settings.namespace if namespace is None else namespace)
    bodies = bodies_of(namespace, settings, codec)
    limits = ConnectionLimits(settings.max_connections, settings.max_blocked_reads)
    opened = link(url or settings.url, settings.call_timeout_s, limits)
    session = Session(settings, namespace, clock or RedisClock(), opened.target, bodies)
    session.node_of = opened.node_of
    return opened, session


def checked(reply: Any) -> Any:
    """The reply; an error reply is raised as one of streamdq's errors.

    Raises:
        ServerRefusesWrites, AuthenticationFailed, UnsupportedServer, ServerError: depending on the reply.
        NewerFormat: a script met data of a newer version.
    """
    if not isinstance(reply, ResponseError):
        return reply
    raise as_streamdq(reply) from reply


def together(ops: Sequence[Op[T]]) -> Op[list[CallResult[T]]]:
    """Runs operations at the same time, such as one for each of a Cluster's nodes."""
    found: list[CallResult[T]] = []
    if len(ops) > 1:
        found = yield Together(ops)
        return found
    for op in ops:
        try:
            found.append(((yield from op), None))
        except Exception as error:
            found.append((None, error))
    return found


def returned(result: CallResult[T]) -> T:
    """What the call returned; what it raised is raised."""
    value, error = result
    if error is not None:
        raise error
    return cast(T, value)


def result_of(function: Callable[[], T]) -> CallResult[T]:
    """What the function returns, and what it raises."""
    try:
        return function(), None
    except Exception as error:
        return None, error


def _carried_out(op: Op[T], result: Any, error: Exception | None) -> Any:
    """The operation's next step, after one that is no request."""
    return op.send(result) if error is None else op.throw(error)


def _wait_for(link: Link, step: Pause | Work | Together) -> CallResult[Any]:
    """What the step results in, and the error that it raises."""
    if isinstance(step, Together):
        calls = [partial(result_of, partial(run, link, op)) for op in step.ops]
        with ThreadPoolExecutor(len(calls)) as threads:
            return [future.result() for future in [threads.submit(call) for call in calls]], None
    if isinstance(step, Pause):
        time.sleep(step.seconds)
        return None, None
    return result_of(step.function)


async def _await(link: AsyncLink, step: Pause | Work | Together) -> CallResult[Any]:
    if isinstance(step, Together):
        return await asyncio.gather(*(_result(link, op) for op in step.ops)), None
    if isinstance(step, Pause):
        await asyncio.sleep(step.seconds)
        return None, None
    found: tuple[Any, Exception | None] = await link.in_thread(result_of, step.function)
    return found


def run(link: Link, op: Op[T]) -> T:
    """Runs an operation with blocking calls."""
    try:
        step = next(op)
        while True:
            if isinstance(step, Request):
                try:
                    replies = link.send(step.commands, step.timeout_s, step.blocking)
                except LinkError as error:
                    step = op.throw(error)
                else:
                    step = op.send(replies)
            elif isinstance(step, Batched):
                try:
                    (result,) = run(link, step.operation([step.item]))
                except Exception as error:
                    step = op.throw(error)
                else:
                    step = op.send(result)
            else:
                step = _carried_out(op, *_wait_for(link, step))
    except StopIteration as stop:
        return cast(T, stop.value)


async def _result(link: AsyncLink, op: Op[T]) -> CallResult[T]:
    try:
        return await arun(link, op), None
    except Exception as error:
        return None, error


async def _sent(link: AsyncLink, step: Request) -> list[Any]:
    if step.changed is not None:
        return await link.look(step.commands, step.timeout_s, step.changed)
    return await link.send(step.commands, step.timeout_s, step.blocking)


async def arun(link: AsyncLink, op: Op[T]) -> T:
    """Runs an operation, awaiting its calls."""
    try:
        step = next(op)
        while True:
            if isinstance(step, Request):
                try:
                    replies = await _sent(link, step)
                except LinkError as error:
                    step = op.throw(error)
                else:
                    step = op.send(replies)
            elif isinstance(step, Batched):
                try:
                    result = await link.batcher.result(step, partial(arun, link))
                except Exception as error:
                    step = op.throw(error)
                else:
                    step = op.send(result)
            else:
                step = _carried_out(op, *(await _await(link, step)))
    except StopIteration as stop:
        return cast(T, stop.value)


def begin(link: AsyncLink, op: Op[T]) -> Coroutine[Any, Any, T] | None:
    """Sends the operation's first request now, before anything else runs in the event loop; to await what is returned
    carries out the rest. None: nothing was sent, and the operation is of no use any more.
    """
    step = next(op)
    begun = link.begin(step.commands) if isinstance(step, Request) else None
    if begun is None:
        op.close()
        return None
    return _rest(link, op, step, begun)  # type: ignore[arg-type]


async def _rest(link: AsyncLink, op: Op[T], step: Request, begun: Any) -> T:
    def go_on() -> Op[T]:
        """What is left of the operation, of which one step is there already."""
        try:
            following = op.send(replies) if failed is None else op.throw(failed)
            while True:
                try:
                    result = yield following
                except Exception as error:
                    following = op.throw(error)
                else:
                    following = op.send(result)
        except StopIteration as stop:
            return cast(T, stop.value)

    replies, failed = [], None
    try:
        replies = await link.replies(begun, step.commands, step.timeout_s)
    except LinkError as error:
        failed = error
    return await arun(link, go_on())


async def may_wait(link: AsyncLink, session: Session) -> None:
    """Checks that this user may wait for jobs and rings on a Cluster; elsewhere that needs no right of its own.

    Raises:
        AuthenticationFailed: the user may not.
        ServerUnavailable
    """
    if link.is_cluster:
        try:
            await link.check_looks()
        except LinkError as error:
            raise session.unavailable(error) from error
