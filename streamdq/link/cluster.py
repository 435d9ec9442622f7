"""Redis Cluster: which node serves a key, and what to do when a node redirects to another one.

``routed`` makes of a request one for each node. A redirected command has not run, even if other commands of the call
have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, ResponseError, TryAgainError

from .command import Behind, Command
from .failures import LinkError, PoolExhausted
from .session import Op, Request, pause

_REDIRECTS = 5
_LEARN_S = 1.0
_TURN_S = 0.005
_NOT_RUN = (AskError, TryAgainError, ClusterDownError)  # a MovedError is an AskError, too
_ASKING = Command("", ("ASKING",))
_SLOTS = Command("", ("CLUSTER", "SLOTS"))
_UNKNOWN = ResponseError("not asked yet")

Unit = tuple[list[int], list[Any]]
"""A command and those behind it: their indexes, and the replies of the node that was asked."""
Replies = dict[int, Any]
To = Callable[[str, Sequence[Command]], Request]
"""Makes a request to a node."""


class Slots:
    """This process's table of which node serves which slot."""

    def __init__(self, hosts: Sequence[tuple[str, int]], on_change: Callable[[], None] = lambda: None) -> None:
        """``on_change`` is called when the table has changed, also for a single slot."""
        self._seeds = [f"{host}:{port}" for host, port in hosts]
        self._nodes: dict[int, str] = {}
        self._suspects: set[str] = set()
        self._on_change = on_change
        self.version = 0
        self.is_learning = False
        self.learned_at = float("-inf")  # when it was asked for, on the monotonic clock

    @property
    def names(self) -> set[str]:
        """The nodes that serve slots."""
        return set(self._nodes.values())

    def node_of(self, key: str) -> str | None:
        """The node that serves the key; None if it is not known or has just failed."""
        node = self._nodes.get(key_slot(key.encode()))
        return None if node in self._suspects else node

    def last_node_of(self, key: str) -> str | None:
        """The node that serves the key, even if it has just failed; None if it is not known."""
        return self._nodes.get(key_slot(key.encode()))

    def any_node_of(self, key: str) -> str:
        """The node that serves the key, even if it has just failed.

        Raises:
            LinkError: no node serves it.
        """
        node = self.last_node_of(key)
        if node is None:
            raise LinkError(ConnectionError(f"no Cluster node serves {key}"), sent=False)
        return node

    def suspect(self, node: str) -> None:
        """Notes that the node did not answer or can't serve: the next call that needs it asks the others for its
        successor.
        """
        self._suspects.add(node)

    def moved(self, slot: int, node: str) -> None:
        """Corrects one slot only: there is no need to ask for all slots when one moves."""
        self._nodes[slot] = node
        self._on_change()

    def candidates(self) -> list[str]:
        """The nodes to ask, in a different order each time, because a node that is cut off from the others may have an
        old table. Nodes that failed come last.
        """
        names = list(dict.fromkeys([*sorted(self.names), *self._seeds]))
        turn = self.version % len(names)
        return sorted(names[turn:] + names[:turn], key=lambda name: name in self._suspects)

    def learn(self, ranges: Sequence[Any], asked: str) -> None:
        """Takes over the reply to CLUSTER SLOTS of the node that was ``asked``."""
        nodes: dict[int, str] = {}
        for first, last, (host, port, *_), *_ in ranges:
            nodes.update(dict.fromkeys(range(first, last + 1), address(host, port, asked)))
        self._nodes = nodes
        self._suspects = set()
        self.version += 1
        self._on_change()


def address(host: bytes | str | None, port: int, asked: str) -> str:
    """A node's name. If the reply has no host, it means the host of the node that was ``asked``."""
    text = host.decode() if isinstance(host, bytes) else host
    return f"{asked.rpartition(':')[0] if text in (None, '', '?') else text}:{port}"


def learned(slots: Slots, timeout_s: float) -> Op[None]:
    """Learns the slots. Many may need them at once; only one asks.

    Raises:
        LinkError: no node has ever answered.
    """
    version, began, pause_s = slots.version, time.monotonic(), _TURN_S
    # Not for ever: who asks may be a thread that a forked child doesn't have.
    while slots.is_learning and time.monotonic() - began < min(timeout_s, _LEARN_S):
        yield from pause(pause_s)
        pause_s *= 2
    if slots.version != version:
        return
    if (left_s := timeout_s - (time.monotonic() - began)) <= 0:
        raise LinkError(TimeoutError("the Cluster's nodes don't answer who serves which slot"), sent=False)
    slots.is_learning = True
    try:
        yield from _ask_all(slots, left_s)
    finally:
        slots.is_learning = False


def _ask_all(slots: Slots, timeout_s: float) -> Op[None]:
    """Asks one node after the other, each only briefly: a node that hangs must not use up the call's time."""
    began = time.monotonic()
    names = slots.candidates()
    failed: LinkError | None = None
    for left, name in zip(range(len(names), 0, -1), names, strict=True):
        brief_s = min(_LEARN_S, (began + timeout_s - time.monotonic()) / (left + 1))
        try:
            (reply,) = yield from _asked(slots, Request([_SLOTS], brief_s, node=name))
        except LinkError as error:
            failed = LinkError(error, sent=False)
            continue
        if not isinstance(reply, ResponseError):
            slots.learn(reply, name)
            slots.learned_at = began
            return
        failed = LinkError(reply, sent=False)
    if failed is not None and not slots.names:
        raise failed
    # the old table may still be correct


def _asked(slots: Slots, request: Request) -> Op[list[Any]]:
    """The replies of one node."""
    try:
        replies: list[Any] = yield request
    except LinkError as error:
        if not isinstance(error, PoolExhausted):
            slots.suspect(request.node)
        raise
    return replies


def routed(slots: Slots, request: Request) -> Op[list[Any]]:
    """The replies in order. If it is ``blocking``, each node gets the whole time-out, which all nodes share otherwise.

    Raises:
        LinkError: a node did not answer, or its slot is migrating; ``sent`` covers all commands, and what the other
            nodes answered is in ``answered``.
    """
    if request.after_s is not None:
        yield from pause(request.after_s)
    commands, deadline = request.commands, time.monotonic() + request.timeout_s
    replies: dict[int, Any] = {}
    pending, ran = list(range(len(commands))), False

    def to(node: str, some: Sequence[Command]) -> Request:
        left_s = request.timeout_s if request.blocking else deadline - time.monotonic()
        return replace(request, node=node, commands=some, timeout_s=left_s, after_s=None)

    for _ in range(_REDIRECTS):
        try:
            yield from _known(slots, commands, pending, to("", ()).timeout_s)
            for name, indexes in _by_node(slots, commands, pending):
                got = yield from _asked(slots, to(name, [commands[i] for i in indexes]))
                units = _units(commands, indexes, got)
                ran |= _any_ran(units)
                replies |= yield from _all_followed(slots, name, commands, units, to)
        except LinkError as error:
            error.sent |= ran
            error.answered = _answered(commands, replies)
            raise
        pending = [i for i in pending if isinstance(replies[i], MovedError)]
        if not pending:
            return [replies[i] for i in range(len(commands))]
    raise LinkError(ConnectionError("the Cluster's nodes name one another for a slot"), sent=ran)


def _known(slots: Slots, commands: Sequence[Command], pending: Sequence[int], timeout_s: float) -> Op[None]:
    """Learns the slots if a key's node is not known."""
    if any(slots.node_of(commands[i].key) is None for i in pending):
        yield from learned(slots, timeout_s)


def _units(commands: Sequence[Command], indexes: list[int], replies: list[Any]) -> list[Unit]:
    """What was sent to a node: each command with those behind it, which share its fate."""
    starts = [at for at, i in enumerate(indexes) if not isinstance(commands[i], Behind)]
    return [(indexes[start:end], replies[start:end]) for start, end in pairwise([*starts, len(indexes)])]


def _answered(commands: Sequence[Command], replies: dict[int, Any]) -> dict[int, Any]:
    """The replies of commands that have run, together with all behind them."""
    units = _units(commands, [*range(len(commands))], [replies.get(i, _UNKNOWN) for i in range(len(commands))])
    whole = [unit for unit in units if not any(isinstance(reply, ResponseError) for reply in unit[1])]
    return {i: reply for indexes, got in whole for i, reply in zip(indexes, got, strict=True)}


def _any_ran(units: Sequence[Unit]) -> bool:
    return not all(isinstance(replies[0], _NOT_RUN) for _, replies in units)


def _by_node(slots: Slots, commands: Sequence[Command], pending: list[int]) -> Iterator[tuple[str, list[int]]]:
    names = [(slots.any_node_of(commands[i].key), i) for i in pending]
    for name in dict.fromkeys(name for name, _ in names):
        yield name, [i for other, i in names if other == name]


def _all_followed(slots: Slots, name: str, commands: Sequence[Command], units: Sequence[Unit], to: To) -> Op[Replies]:
    """The replies by index, after redirections have been followed."""
    replies: Replies = {}
    for indexes, got in units:
        whole = yield from _followed(slots, name, [commands[i] for i in indexes], got, to)
        replies.update(zip(indexes, whole, strict=True))
    return replies


def _followed(
    slots: Slots,
    name: str,
    unit: Sequence[Command],
    replies: Sequence[Any],
    to: To,
) -> Op[Sequence[Any]]:
    """The replies to a command and those behind it, or the replies of the node to which the slot is migrating. After a
    MovedError, which is then the reply to all of them, the table has the new node.
    """
    reply = replies[0]
    if isinstance(reply, AskError) and not isinstance(reply, MovedError):
        name = address(reply.host, reply.port, name)
        _, *replies = yield from _asked(slots, to(name, [_ASKING, *unit]))
        reply = replies[0]
    if isinstance(reply, MovedError):
        slots.moved(reply.slot_id, address(reply.host, reply.port, name))
        return [reply] * len(replies)
    if isinstance(reply, TryAgainError | AskError):  # the script's keys are on both sides of a migration
        raise LinkError(reply, sent=False)
    if isinstance(reply, ClusterDownError):
        slots.suspect(name)
        raise LinkError(reply, sent=False)
    return replies
