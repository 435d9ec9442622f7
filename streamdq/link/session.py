"""Calls to Redis: which may be repeated, until when, and what an error reply means.

An operation is a generator. It yields steps, as a rule Requests, receives what they result in, and never waits itself.
``run`` executes it with blocking calls, ``arun`` awaits them; so the synchronous and the asynchronous API share
everything else.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from redis.exceptions import ResponseError

from ..codec.bodies import Bodies
from ..codec.configured import bodies_of
from ..config import Settings
from ..errors import ServerUnavailable, StreamdqError, TooManyCalls
from ..keys import NamespaceKeys
from ..times.clock import RedisClock
from . import failures
from .address import Target
from .command import Command
from .consumers import consumer_name
from .error_replies import as_streamdq
from .failures import LinkError, LoginRefused, NoCredentials, PoolExhausted

if TYPE_CHECKING:
    from .connection import AsyncLink, Link

T = TypeVar("T")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5


@dataclass(slots=True)
class Request:
    """Commands to send together. It results in their replies, or a LinkError.

    ``node``: of a Cluster; cluster.py makes one for each node. ``changed``, ``chosen``: see AsyncLink.look;
    ``changed`` is None unless the commands are sent there. ``after_s``: how long to wait before. ``begun``: waits for
    the replies; the commands were sent before (``begin``).
    """

    commands: Sequence[Command]
    timeout_s: float
    blocking: bool = False
    changed: Callable[[str], None] | None = None
    chosen: bool = False
    node: str = ""
    after_s: float | None = None
    begun: Callable[[], Awaitable[list[Any]]] | None = None


@dataclass(slots=True)
class Work:
    """A function that blocks, such as one that reads a file. It runs in a thread if the caller awaits."""

    function: Callable[[], Any]


@dataclass(slots=True)
class Gather:
    """Operations to run at the same time, each in a thread if the caller does not await. It results in what each
    returns, or raises.
    """

    ops: Sequence[Generator[Any, Any, Any]]


Step = Request | Work | Gather
Op = Generator[Step, Any, T]


def pause(seconds: float) -> Op[None]:
    """Waits."""
    yield Request((), 0.0, after_s=seconds)


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
        self.last_node_of: Callable[[str], str] = lambda _: ""  # the same, even if it has just failed
        self.route: Callable[[Request], Op[list[Any]]] | None = None  # on Cluster, makes requests to its nodes
        self.permitted = set[str]()  # the nodes that run scripts for this user (store/rights.py)
        self.asking = set[str]()  # those that a call of this process is just asking for that
        self.by_evalsha = dict[str, float]()  # those that can't be called by FCALL, and until when (store/calling.py)
        self.waits_for_redis = True  # False: if nobody listens at first, calls fail at once
        failures.expect(namespace)

    def use(self, link: Link | AsyncLink) -> None:
        """On Cluster, the link knows where commands go."""
        if link.is_cluster:
            self.node_of, self.last_node_of, self.route = link.node_of, link.last_node_of, link.route

    def _call_once(self, request: Request) -> Op[list[Any]]:
        try:
            return (yield request) if self.route is None else (yield from self.route(request))
        except LinkError as error:
            raise self.unavailable(error) from error

    def call(
        self,
        commands: Sequence[Command],
        *,
        repeatable: bool = True,
        timeout_s: float | None = None,
        within_s: float = float("inf"),
        changed: Callable[[str], None] | None = None,
        chosen: bool = False,
    ) -> Op[list[Any]]:
        """The replies of commands sent together, including error replies, within one overall deadline.

        A call that is not ``repeatable`` is sent again only if Redis can't have run it. What a Cluster's node has
        answered is not sent again because another node has not: a job that was enqueued may have ended meanwhile. With
        ``timeout_s``, the commands may block in Redis for that long and are sent only once. ``changed``: the commands
        look at keys, and it is called when these change; ``chosen``: not at all of those (AsyncLink.look).

        Raises:
            ServerUnavailable: no reply by the deadline.
            TooManyCalls: no connection was free by the deadline.
        """
        failures.calls_of(self.keys.namespace)
        if timeout_s is not None:
            return (yield from self._call_once(Request(commands, timeout_s, True, changed, chosen)))
        request, pause_s = Request(commands, min(within_s, self.settings.call_timeout_s)), _FIRST_PAUSE_S
        deadline = time.monotonic() + request.timeout_s
        known: dict[int, Any] = {}  # what some of a Cluster's nodes have answered when others have not
        left: Sequence[int] = range(len(commands))
        reason: LinkError | None = None
        while True:
            try:
                replies: list[Any] = (yield request) if self.route is None else (yield from self.route(request))
                self.waits_for_redis = True  # it was there, and is expected back
                return _in_order(known, left, replies) if known else replies
            except LinkError as error:
                reason = _reason(error, reason)
                left_s = deadline - time.monotonic() - pause_s
                if left_s <= 0 or self._is_final(error, repeatable):
                    raise self.unavailable(reason) from error
                known |= {left[i]: reply for i, reply in error.answered.items()}
                left = sorted({*left}.difference(known))
            # Clients that lost Redis at the same moment must not all come back at the same moment.
            after_s = pause_s * random.uniform(0.5, 1)  # noqa: S311 - no secret
            request = Request([commands[i] for i in left], left_s, after_s=after_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _is_final(self, error: LinkError, repeatable: bool) -> bool:
        """Whether to send the call again would be wrong or useless."""
        return (error.sent and not repeatable) or (error.refused and not self.waits_for_redis)

    def unavailable(self, error: LinkError) -> StreamdqError:
        if isinstance(error, LoginRefused):
            return error.as_streamdq()
        if isinstance(error, NoCredentials):
            return ServerUnavailable(f"{error}; nothing was sent to Redis at {self.address}")
        if isinstance(error, PoolExhausted):
            return TooManyCalls(f"nothing was sent to Redis at {self.address}: {error}")
        also = "its certificates, " if self.address.startswith("rediss") else ""
        return ServerUnavailable(
            f"Redis at {self.address} did not answer: {error}; check that it is running, its URL, {also}and the network"
        )


def _reason(error: LinkError, before: LinkError | None) -> LinkError:
    """The last login may have had no time for an answer; why those before it failed says more."""
    return before if error.timed_out and isinstance(before, LoginRefused | NoCredentials) else error


def _in_order(known: dict[int, Any], left: Sequence[int], replies: Sequence[Any]) -> list[Any]:
    """All replies, in the order of their commands: those that are ``known``, and those to the commands ``left``."""
    found = known | dict(zip(left, replies, strict=True))
    return [found[i] for i in sorted(found)]


def checked(reply: Any) -> Any:
    """The reply; an error reply is raised as one of streamdq's errors.

    Raises:
        ServerRefusesWrites, AuthenticationFailed, UnsupportedServer, ServerError: depending on the reply.
        NewerFormat: a script met data of a newer version.
    """
    if not isinstance(reply, ResponseError):
        return reply
    raise as_streamdq(reply) from reply


def together(ops: Sequence[Op[T]]) -> Op[list[T | Exception]]:
    """Runs operations at the same time, such as one for each of a Cluster's nodes: what each returns, or raises."""
    if len(ops) > 1:
        found: list[T | Exception] = yield Gather(ops)
        return found
    for op in ops:
        try:
            return [(yield from op)]
        except Exception as error:
            return [error]
    return []


def returned(result: T | Exception) -> T:
    """What an operation returned; what it raised is raised."""
    if isinstance(result, Exception):
        raise result
    return result


def run(link: Link, op: Op[T]) -> T:
    """Runs an operation with blocking calls."""
    try:
        step = next(op)
        while True:
            try:
                result = _carry_out(link, step)
            except Exception as error:
                step = op.throw(error)
            else:
                step = op.send(result)
    except StopIteration as stop:
        return cast(T, stop.value)


def _carry_out(link: Link, step: Step) -> Any:
    if isinstance(step, Request):
        if step.after_s is not None:
            time.sleep(step.after_s)
        if not step.commands:
            return []
        return (link.at(step.node) if step.node else link).send(step.commands, step.timeout_s, step.blocking)
    if isinstance(step, Work):
        return step.function()
    with ThreadPoolExecutor(len(step.ops)) as threads:
        return list(threads.map(partial(_result, link), step.ops))


def _result(link: Link, op: Op[T]) -> T | Exception:
    try:
        return run(link, op)
    except Exception as error:
        return error


async def arun(link: AsyncLink, op: Op[T], step: Step | None = None) -> T:
    """Runs an operation, awaiting its calls. ``step``: the operation's first, if it has come so far."""
    try:
        step = step or next(op)
        while True:
            try:
                result = await _await(link, step)
            except Exception as error:
                step = op.throw(error)
            else:
                step = op.send(result)
    except StopIteration as stop:
        return cast(T, stop.value)


async def _await(link: AsyncLink, step: Step) -> Any:
    if isinstance(step, Work):
        return await link.in_thread(step.function)
    if isinstance(step, Gather):
        return await asyncio.gather(*(_aresult(link, op) for op in step.ops))
    if step.after_s is not None:
        await asyncio.sleep(step.after_s)
    if not step.commands:
        return []
    if step.begun is not None:
        return await step.begun()
    if step.changed is not None:
        return await link.look(step.node, step.commands, step.timeout_s, step.changed, step.chosen)
    return await (link.at(step.node) if step.node else link).send(step.commands, step.timeout_s, step.blocking)


async def _aresult(link: AsyncLink, op: Op[T]) -> T | Exception:
    try:
        return await arun(link, op)
    except Exception as error:
        return error


def begin(link: AsyncLink, op: Op[T]) -> Coroutine[Any, Any, T] | None:
    """Sends the operation's first request now, before anything else runs in the event loop; to await what is returned
    carries out the rest. None: nothing was sent, and the operation is of no use any more.
    """
    step = next(op)
    if isinstance(step, Request):
        step.begun = link.begin(step.commands, step.timeout_s)
        if step.begun is not None:
            return arun(link, op, step)
    op.close()
    return None
