"""A slot of a Cluster that is on its way to another node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import redis
from redis.crc import key_slot
from redis.exceptions import AskError, TryAgainError

from streamdq.link.address import parse_url
from streamdq.link.command import Command
from streamdq.link.session import Op, Request
from streamdq.store.assembly import Script, function_of, load_script, script_names, sha_of, source_of


@cache
def _by_word() -> dict[Any, str]:
    return {word: name for name in script_names() for word in (function_of(name), sha_of(name), source_of(name))}


def script_of(command: Command) -> Script | None:
    """The script that it calls."""
    name, *rest = command.args
    found = _by_word().get(rest[0]) if name in ("EVAL", "EVALSHA", "FCALL") else None
    return load_script(found) if found else None


class MovingSlot:
    """The slot of a key. It can be set to MIGRATING and back at any time; none of its keys moves. So all keys that
    exist are here, and one that becomes empty belongs to the other node.
    """

    def __init__(self, url: str, key: str) -> None:
        self._slot = key_slot(key.encode())
        clients = [redis.Redis(host=host, port=port) for host, port in parse_url(url).hosts]
        ids = [client.execute_command("CLUSTER", "MYID") for client in clients]
        ranges = clients[0].execute_command("CLUSTER", "SLOTS")
        (owner,) = (int(node[1]) for first, last, node, *_ in ranges if int(first) <= self._slot <= int(last))
        (here,) = (i for i, client in enumerate(clients) if client.connection_pool.connection_kwargs["port"] == owner)
        self.source, self._target = clients[here], ids[here - 1]
        self.refuses: Callable[[str], object] = str  # called with the name of each script that was refused
        for client in clients:
            if client is not self.source:
                client.close()

    @contextmanager
    def migrating(self) -> Iterator[None]:
        self.source.execute_command("CLUSTER", "SETSLOT", self._slot, "MIGRATING", self._target)
        try:
            yield
        finally:
            self.source.execute_command("CLUSTER", "SETSLOT", self._slot, "STABLE")

    def ask(self, command: Command) -> Any:
        """The reply of the node that the slot leaves, or the error."""
        try:
            return self.source.execute_command(*command.args)
        except redis.ResponseError as error:
            return error

    def refused_at_first(self, op: Op[Any]) -> Op[Any]:
        """The operation. Before each script of it that waits while its slot moves, the same is called while it moves:
        Redis must refuse that. Other slots, as of the topic's other shards, may be on other nodes, and do not move.
        """
        step = next(op)
        try:
            while True:
                if isinstance(step, Request):
                    self._refuse(step.commands)
                try:
                    reply = yield step
                except Exception as error:
                    step = op.throw(error)
                else:
                    step = op.send(reply)
        except StopIteration as stop:
            return stop.value

    def _refuse(self, commands: Sequence[Command]) -> None:
        for command in commands:
            script = script_of(command)
            if script is not None and script.waits and key_slot(command.key.encode()) == self._slot:
                with self._all_there(command), self.migrating():
                    reply = self.ask(command)
                assert isinstance(reply, AskError | TryAgainError), (script.name, reply)
                self.refuses(script.name)

    @contextmanager
    def _all_there(self, command: Command) -> Iterator[None]:
        """All keys of the script exist, but for the one that never does: Redis must not refuse it for another."""
        _, _, count, *rest = command.args
        made = [key for key in rest[: count - 1] if self.source.set(key, "", nx=True)]
        try:
            yield
        finally:
            if made:
                self.source.delete(*made)

    def close(self) -> None:
        self.source.close()
