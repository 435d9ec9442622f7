"""Redis Cluster: which node serves a key, and what to do when a node redirects to another one.

``routed`` is a generator, like operations: it yields exchanges with one node and receives their replies, so that the
blocking and the awaiting link share it. A redirected command has not run, even if other commands of the call have.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, ResponseError, TryAgainError

from .command import Behind, Command
from .failures import LinkError

_REDIRECTS = 5
_LEARN_S = 1.0
_NOT_RUN = (AskError, TryAgainError, ClusterDownError)  # a MovedError is an AskError, too
_ASKING = Command("", ("ASKING",))
_SLOTS = Command("", ("CLUSTER", "SLOTS"))
_UNKNOWN = ResponseError("not asked yet")


@dataclass(slots=True)
class Exchange:
    """Commands for one node, ``host:port``."""

    node: str
    commands: Sequence[Command]
    timeout_s: float


@dataclass(slots=True)
class Learn:
    """Asks the link to learn the slots (``learning``), one caller at a time, unless another has done so since
    ``version``.
    """

    version: int
    timeout_s: float


Steps = Generator[Exchange | Learn, Any, list[Any]]
Unit = tuple[list[int], list[Any]]
"""A command and those behind it: their indexes, and the replies of the node that was asked."""


class Slots:
    """This process's table of which node serves which slot."""

    def __init__(self, hosts: Sequence[tuple[str, int]]) -> None:
        self._seeds = [f"{host}:{port}" for host, port in hosts]
        self._nodes: dict[int, str] = {}
        self._suspects: set[str] = set()
        self.version = 0
        self.changes = 0  # of the table, also of a single slot

    @property
    def names(self) -> set[str]:
        """The nodes that serve slots."""
        return set(self._nodes.values())

    def node_of(self, key: str) -> str | None:
        """The node that serves the key; None if it is not known or has just failed."""
        node = self._nodes.get(key_slot(key.encode()))
        return None if node in self._suspects else node

    def any_node_of(self, key: str) -> str:
        """The node that serves the key, even if it has just failed.

        Raises:
            LinkError: no node serves it.
        """
        node = self._nodes.get(key_slot(key.encode()))
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
        self.changes += 1

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
        self.changes += 1


def address(host: bytes | str | None, port: int, asked: str) -> str:
    """A node's name. If the reply has no host, it means the host of the node that was ``asked``."""
    text = host.decode() if isinstance(host, bytes) else host
    return f"{asked.rpartition(':')[0] if text in (None, '', '?') else text}:{port}"


def learning(slots: Slots, timeout_s: float) -> Steps:
    """Asks one node after the other, each only briefly: a node that hangs must not use up the call's time.

    Raises:
        LinkError: none answered.
    """
    deadline = time.monotonic() + timeout_s
    names = slots.candidates()
    failed: LinkError | None = None
    for left, name in zip(range(len(names), 0, -1), names, strict=True):
        brief_s = min(_LEARN_S, (deadline - time.monotonic()) / (left + 1))
        try:
            (reply,) = yield Exchange(name, [_SLOTS], brief_s)
        except LinkError as error:
            failed = LinkError(error, sent=False)
            continue
        if not isinstance(reply, ResponseError):
            slots.learn(reply, name)
            return []
        failed = LinkError(reply, sent=False)
    assert failed is not None
    if not slots.names:
        raise failed
    return []  # the old table may still be correct


def routed(slots: Slots, commands: Sequence[Command], timeout_s: float, blocking: bool) -> Steps:
    """The replies in order. ``blocking``: each node gets the whole time-out, which all nodes share otherwise.

    Raises:
        LinkError: a node did not answer, or its slot is migrating; ``sent`` covers all commands, and what the other
            nodes answered is in ``answered``.
    """
    deadline = time.monotonic() + timeout_s
    replies: dict[int, Any] = {}
    pending, ran = list(range(len(commands))), False

    def left_s() -> float:
        return timeout_s if blocking else deadline - time.monotonic()

    for _ in range(_REDIRECTS):
        try:
            yield from _known(slots, commands, pending, left_s())
            for name, indexes in _by_node(slots, commands, pending):
                got = yield Exchange(name, [commands[i] for i in indexes], left_s())
                units = _units(commands, indexes, got)
                ran |= _any_ran(units)
                replies |= yield from _all_followed(slots, name, commands, units, left_s())
        except LinkError as error:
            error.sent |= ran
            error.answered = _answered(commands, replies)
            raise
        pending = [i for i in pending if isinstance(replies[i], MovedError)]
        if not pending:
            return [replies[i] for i in range(len(commands))]
    raise LinkError(ConnectionError("the Cluster's nodes name one another for a slot"), sent=ran)


def _known(
    slots: Slots, commands: Sequence[Command], pending: list[int], timeout_s: float
) -> Generator[Any, Any, None]:
    if any(slots.node_of(commands[i].key) is None for i in pending):
        yield Learn(slots.version, timeout_s)


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


def _all_followed(
    slots: Slots, name: str, commands: Sequence[Command], units: Sequence[Unit], timeout_s: float
) -> Generator[Any, Any, dict[int, Any]]:
    """The replies by index, after redirections have been followed."""
    replies: dict[int, Any] = {}
    for indexes, got in units:
        unit = [commands[i] for i in indexes]
        replies.update(zip(indexes, (yield from _followed(slots, name, unit, got, timeout_s)), strict=True))
    return replies


def _followed(
    slots: Slots, name: str, unit: Sequence[Command], replies: Sequence[Any], timeout_s: float
) -> Generator[Any, Any, Sequence[Any]]:
    """The replies to a command and those behind it, or the replies of the node to which the slot is migrating. After a
    MovedError, which is then the reply to all of them, the table has the new node.
    """
    reply = replies[0]
    if isinstance(reply, AskError) and not isinstance(reply, MovedError):
        name = address(reply.host, reply.port, name)
        _, *replies = yield Exchange(name, [_ASKING, *unit], timeout_s)
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
