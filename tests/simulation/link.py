"""The simulated network between processes and the store, and what stands in for AsyncLink in each process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from redis.exceptions import ResponseError

from streamdq.link.command import Command
from streamdq.link.failures import count_reply, translate
from streamdq.link.tracking import CHOOSE, Changed

from .calls import name_of
from .loop import Process, SimulatedLoop, running
from .store import Fields, Store

_OUTSIDE = Context()  # of the server and the network: no process's


def encoded(command: Command) -> Fields:
    return tuple(
        value if isinstance(value, bytes) else (value if isinstance(value, str) else repr(value)).encode()
        for value in command.args
    )


LATEST_S = 12.0
"""How late a request may arrive."""
KEEPALIVE_S = 10.0
"""After that time the system notices that a connection with a blocked read is dead (link/connection.py)."""


@dataclass
class Faults:
    """What may happen to a call, each with a probability of its own, and how long a message takes."""

    lose_request: float = 0.0  # it never arrives
    lose_reply: float = 0.0
    late: float = 0.0  # it arrives after its caller has given up, perhaps
    refuse: float = 0.0  # no connection
    slow_s: float = 0.0005
    reset: float = 0.5  # of the lost ones: the caller notices at once
    cut: set[Process] = field(default_factory=set)  # nothing reaches the server, and nothing comes back
    down: bool = False  # the server refuses everybody


@dataclass(eq=False)
class _Call:
    process: Process | None
    commands: list[Fields]
    blocking: bool
    future: asyncio.Future[list[Any]]
    flushes: int  # of the store by the time it was sent
    gone: bool = False  # the server knows that nobody waits any more
    lose_reply: bool = False
    changed: Changed | None = None  # called when a key that a GET of the call has read changes
    context: Context = field(default_factory=copy_context)

    @property
    def name(self) -> str:
        return name_of(self.commands[0])


@dataclass(eq=False)
class _Read:
    """A blocked read: of these streams, until then. ``growth``: theirs when it found nothing."""

    call: _Call
    until: float
    fields: Fields  # without BLOCK
    streams: Fields
    growth: list[Any]


@dataclass(eq=False)
class _Watch:
    """A key whose next change is reported to the caller, unless that message is lost. ``value``: what it has now."""

    call: _Call
    key: bytes
    value: Any


class Network:
    """``applied`` is called with each command that reached the store, with its reply."""

    def __init__(
        self,
        loop: SimulatedLoop,
        store: Store,
        random: Random,
        applied: Callable[[Fields, Any], None],
        happened: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._store = store
        self._random = random
        self._applied = applied
        self._happened = happened
        self.faults = Faults()
        self._blocked: list[_Read] = []
        self._watches: list[_Watch] = []
        self.lost_reads: set[tuple[bytes, bytes]] = (
            set()
        )  # stream and entry: a consumer was given it, and never received it
        self.calls = 0

    def _travel(self) -> float:
        return self._random.expovariate(1 / self.faults.slow_s) + 0.00002

    def _later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> None:
        self._loop.call_at(self._loop.time() + delay_s, callback, *args, context=_OUTSIDE)

    def begin(
        self, commands: Sequence[Command], blocking: bool, changed: Changed | None = None
    ) -> asyncio.Future[list[Any]]:
        """Sends a call off. The future gets the replies, or the error that the connection ends with."""
        process, random, faults = running.get(), self._random, self.faults
        call = _Call(
            process,
            [encoded(command) for command in commands],
            blocking,
            self._loop.create_future(),
            self._store.flushes,
            changed=changed,
        )
        self.calls += 1
        if faults.down or random.random() < faults.refuse:
            self._happened(f"refused: {call.name}")
            self._later(self._travel(), self._fail, call, ConnectionRefusedError("refused"), False)
            return call.future
        if process in faults.cut:
            return call.future
        dice = random.random()
        if dice < faults.lose_request:
            self._happened(f"request lost: {call.name}")
            self._maybe_reset(call)
            return call.future
        call.lose_reply = dice < faults.lose_request + faults.lose_reply
        delay_s = self._travel()
        if random.random() < faults.late:
            self._happened(f"late: {call.name}")
            delay_s += random.uniform(0.0, LATEST_S)
        call.future.add_done_callback(lambda _: self._later(self._travel(), self._hang_up, call), context=_OUTSIDE)
        self._later(delay_s, self._arrive, call)
        return call.future

    def _maybe_reset(self, call: _Call) -> None:
        if self._random.random() < self.faults.reset:
            self._later(self._travel(), self._fail, call, ConnectionResetError("reset by peer"), True)
        else:
            self._lead_nowhere(call)

    def _lead_nowhere(self, call: _Call) -> None:
        """Nothing comes back any more. Without keep-alive a blocked read would wait for all of its time."""
        if call.blocking:
            self._later(KEEPALIVE_S, self._die, call)

    @staticmethod
    def _die(call: _Call) -> None:
        """The caller's own system notices that, whether or not anything reaches it."""
        if not call.future.done():
            call.future.set_exception(translate(TimeoutError("the connection is dead"), True))

    def _fail(self, call: _Call, error: Exception, sent: bool) -> None:
        if not call.future.done() and call.process not in self.faults.cut:
            call.future.set_exception(translate(error, sent))

    def _hang_up(self, call: _Call) -> None:
        """The server learns that nobody waits for the reply."""
        if call.process not in self.faults.cut:
            call.gone = True
            self._blocked = [read for read in self._blocked if read.call is not call]

    def hang_up(self, process: Process) -> None:
        """The server learns at once that nobody waits for what this process reads."""
        self._blocked = [read for read in self._blocked if read.call.process is not process]

    # -- at the server

    def _arrive(self, call: _Call) -> None:
        # Settings from before a FLUSHALL would bring back shards that the topic no longer has:
        # docs/reference/failures.md
        flushed = call.name == "configure_shard" and call.flushes < self._store.flushes
        if self.faults.down or call.process in self.faults.cut or flushed:
            self._happened(f"request lost: {call.name}")
            return
        if call.blocking and b"BLOCK" in call.commands[0]:
            self._read(call)
        else:
            self._reply(call, [self._apply(fields) for fields in call.commands])
            self._watch(call)

    def _apply(self, fields: Fields) -> Any:
        reply = self._store.apply(fields)
        self._applied(fields, reply)
        self._serve_blocked()
        self._tell_of_changes()
        return reply

    def _reply(self, call: _Call, replies: list[Any]) -> None:
        if call.lose_reply:
            self._happened(f"reply lost: {call.name}")
            self._note_lost(call, replies)
            self._maybe_reset(call)
            return
        self._later(self._travel(), self._deliver, call, replies)

    def _deliver(self, call: _Call, replies: list[Any]) -> None:
        if not call.future.done() and call.process not in self.faults.cut and not self.faults.down:
            for reply in replies:
                if isinstance(reply, ResponseError):
                    count_reply(reply)
            call.future.set_result(replies)
        else:
            self._note_lost(call, replies)
            self._lead_nowhere(call)

    def _note_lost(self, call: _Call, replies: list[Any]) -> None:
        if call.name == "XREADGROUP":
            for stream, rows in (part for reply in replies if isinstance(reply, list) for part in reply):
                self.lost_reads |= {(stream, entry) for entry, *_ in rows}

    # -- blocked reads

    def _read(self, call: _Call) -> None:
        fields, timeout_ms = _unblocked(call.commands[0])
        reply = self._store.apply(fields)
        if reply:
            self._applied(fields, reply)
            self._reply(call, [reply])
        elif not call.gone:
            until, streams = self._loop.time() + timeout_ms / 1000, _streams(fields)
            self._blocked.append(_Read(call, until, fields, streams, self._store.growth(streams)))
            self._later(timeout_ms / 1000, self._unblock, call)

    def _unblock(self, call: _Call) -> None:
        if any(read.call is call for read in self._blocked):
            self._blocked = [read for read in self._blocked if read.call is not call]
            self._reply(call, [None])

    def _serve_blocked(self) -> None:
        """After each write, first come, first served."""
        for read in list(self._blocked):
            growth = self._store.growth(read.streams)
            if growth == read.growth:
                continue
            reply = self._store.apply(read.fields)
            if reply:
                self._blocked.remove(read)
                self._applied(read.fields, reply)
                self._reply(read.call, [reply])
            else:
                read.growth = growth
                self._store.forget_last()

    # -- keys that callers look at

    def _watch(self, call: _Call) -> None:
        for name, key, *_ in call.commands if call.changed else ():
            if name == b"GET":
                self._watches.append(_Watch(call, key, self._store.value(key)))

    def _tell_of_changes(self) -> None:
        for watch in [one for one in self._watches if one.value != self._store.value(one.key)]:
            self._watches.remove(watch)
            self._tell(watch)

    def _tell(self, watch: _Watch) -> None:
        """A reader that gets no message looks again some time."""
        call = watch.call
        if call.process in self.faults.cut or self._random.random() < self.faults.lose_reply:
            self._happened("notification lost")
        elif call.changed is not None:
            at = self._loop.time() + self._travel()
            self._loop.call_at(at, call.changed, watch.key.decode(), context=call.context)

    def forget(self, key: str, changed: Changed) -> None:
        self._watches = [one for one in self._watches if (one.key, one.call.changed) != (key.encode(), changed)]

    # -- faults

    def drop_all(self) -> None:
        """Every connection is cut: the server restarts, or another one takes over."""
        watches, self._watches = self._watches, []
        for watch in watches:
            self._tell(watch)
        for read in self._blocked:
            self._later(self._travel(), self._fail, read.call, ConnectionResetError("reset by peer"), True)
        self._blocked.clear()


def _unblocked(fields: Fields) -> tuple[Fields, int]:
    """The same read without BLOCK, and how long it may block, in ms."""
    i = fields.index(b"BLOCK")
    return (*fields[:i], *fields[i + 2 :]), int(fields[i + 1])


def _streams(fields: Fields) -> Fields:
    names = fields[fields.index(b"STREAMS") + 1 :]
    return names[: len(names) // 2]


class SimulatedLink:
    """In the place of AsyncLink, one for each object that opens connections."""

    is_cluster = False

    def __init__(self, network: Network, target: Any) -> None:
        self._network = network
        self.target = target

    def begin(self, commands: Sequence[Command], timeout_s: float) -> Callable[[], Awaitable[list[Any]]]:
        return partial(self._answered, self._network.begin(commands, False), commands, timeout_s)

    async def look(
        self, _node: str, commands: Sequence[Command], timeout_s: float, changed: Changed, chosen: bool = False
    ) -> list[Any]:
        """Keys that are not chosen are not looked at here."""
        assert chosen
        sent = [command for command in commands if command.args != CHOOSE]
        replies = iter(await self._answered(self._network.begin(sent, False, changed), sent, timeout_s))
        return [b"OK" if command.args == CHOOSE else next(replies) for command in commands]

    def forget_looks(self, key: str, changed: Changed) -> None:
        self._network.forget(key, changed)

    async def send(self, commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        return await self._answered(self._network.begin(commands, blocking), commands, timeout_s)

    async def _answered(
        self, future: asyncio.Future[list[Any]], commands: Sequence[Command], timeout_s: float
    ) -> list[Any]:
        process, name = running.get(), name_of(encoded(commands[0]))
        if process is not None:
            process.calling.append(name)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError as error:
            raise translate(error, True) from error
        finally:
            future.cancel()
            if process is not None:
                process.calling.remove(name)

    @staticmethod
    def drop_begun() -> None:
        """There is no connection that another call might use."""

    @staticmethod
    async def in_thread(function: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, function)

    @staticmethod
    def stay() -> None:
        """There is one event loop."""

    @staticmethod
    def node_of(_key: str) -> str:
        return ""

    async def close(self) -> None:
        """There is nothing to close."""
