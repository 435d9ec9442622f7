"""Durable changes: a script, and behind it in the same round trip what tells how far its change has come.

WAIT and WAITAOF cover what their own connection wrote before them; since Redis 7.2, a command that wrote nothing does
not count. Replicas and the append-only file receive all writes in one order, so a later write covers every earlier one,
of any client. A call that is repeated after a lost reply or after NotDurable may find its work done. So that its
success still means that this work is durable, a script that is called durably always writes: enqueue, replace and
restore count first, the others write if they are called with ``cover``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from redis.exceptions import ResponseError

from ..errors import DurabilityUnsupported, NotDurable
from ..job.durability import replicas_of
from ..link import failures
from ..link.command import Behind, Command, Waiting
from ..link.session import Op, Session, checked

_TO_ANSWER, _MOST_TO_ANSWER_S = 0.4, 0.3  # Redis ends a wait up to 0.1 s late, and the reply must come in time
_AOF_SETTINGS = ("CONFIG", "GET", "*append*")
_AT_ONCE = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}


class _Proof(Protocol):
    """Tells whether what the connection wrote is durable."""

    def command(self, key: str, until: float) -> Command: ...

    def lack(self, reply: Any) -> str:
        """What is missing; '' if nothing is."""


class Durable:
    """One level of durability. ``call`` is what Scripts call with."""

    def __init__(self, session: Session, level: str) -> None:
        self._session = session
        self._level = level
        count = replicas_of(level)
        self._proof: _Proof | None = _Replicas(count) if count else None

    def call(self, commands: Sequence[Command], *, repeatable: bool = True) -> Op[list[Any]]:
        """Like Session.call. If a command fails, nothing is said about durability.

        Raises:
            NotDurable: the commands have run, but were not confirmed in time.
            DurabilityUnsupported: the server can't confirm it; nothing was sent.
        """
        key, timeout_s = commands[0].key, self._session.settings.call_timeout_s
        proof = self._proof or (yield from self._disk(key))
        until = time.monotonic() + timeout_s - min(_MOST_TO_ANSWER_S, timeout_s * _TO_ANSWER)
        sent = [*commands, proof.command(key, until)]
        *replies, confirmed = yield from self._session.call(sent, repeatable=repeatable)
        if any(isinstance(reply, ResponseError) for reply in replies):
            return replies
        why = str(confirmed) if isinstance(confirmed, ResponseError) else proof.lack(confirmed)
        if why:
            if not replicas_of(self._level):
                self._proof = None  # the server may be another one by now
            failures.count("not_durable")
            raise NotDurable(self._level, why)
        return replies

    def lack(self, key: str) -> Op[str]:
        """Why the server that has the key can't give this level at present; '' if it can."""
        count = replicas_of(self._level)
        if count:
            (reply,) = yield from self._session.call([Command(key, ("INFO", "replication"))])
            there = int(_fields(checked(reply))["connected_slaves"])
            return "" if there >= count else f"its server has {there} of {count} replicas"
        try:
            yield from self._disk(key)
        except DurabilityUnsupported as error:
            return str(error).partition(": ")[2]
        return ""

    def _disk(self, key: str) -> Op[_Proof]:
        """How the server that has the key confirms that a change is on its disk."""
        asked = [Command(key, ("INFO", "server")), Command(key, ("INFO", "persistence"))]
        replies = yield from self._session.call(asked)
        info = _fields(b"\r\n".join(checked(reply) for reply in replies))
        version = info.get("valkey_version") or info["redis_version"]
        if info["aof_enabled"] != "1":
            raise DurabilityUnsupported(
                "durable='disk': Redis has no append-only file: CONFIG SET appendonly yes, and in redis.conf"
            )
        proof: _Proof = _AofWritten()
        if not _waits_for_disk(info):
            proof = _AofAtOnce()
            (reply,) = yield from self._session.call([Command(key, _AOF_SETTINGS)])
            if isinstance(reply, ResponseError):
                why = f"CONFIG GET, which would tell whether it has `appendfsync always`, is not allowed ({reply})"
            else:
                why = proof.lack(reply)
            if why:
                raise DurabilityUnsupported(
                    f"durable='disk': this server, {info.get('server_name', 'redis')} {version}, has no WAITAOF that "
                    f"can be relied on; {why}. Change that, or use Redis 8"
                )
        self._proof = proof
        return proof


class _Replicas:
    def __init__(self, count: int) -> None:
        self._count = count

    def command(self, key: str, until: float) -> Command:
        return Waiting(key, ("WAIT", self._count, until))

    def lack(self, reply: Any) -> str:
        return "" if reply >= self._count else f"{reply} of {self._count} replicas confirmed it in time"


class _AofWritten:
    """With WAITAOF."""

    def command(self, key: str, until: float) -> Command:
        return Waiting(key, ("WAITAOF", 1, 0, until))

    def lack(self, reply: Any) -> str:
        return "" if reply[0] >= 1 else "Redis did not confirm in time that it is on disk"


class _AofAtOnce:
    """With ``appendfsync always`` a reply is sent only after its change is on disk. The server that wrote it answers
    whether it is set so, as others may be set differently.
    """

    def command(self, key: str, until: float) -> Command:  # noqa: ARG002
        return Behind(key, _AOF_SETTINGS)

    def lack(self, reply: Any) -> str:
        texts = [value.decode() for value in reply]
        found = dict(zip(texts[::2], texts[1::2], strict=True))
        wrong = [f"`{name} {found.get(name)}`" for name, value in _AT_ONCE.items() if found.get(name) != value]
        needed = " and ".join(f"`{name} {value}`" for name, value in _AT_ONCE.items())
        return f"it has {' and '.join(wrong)}; the level needs {needed}" if wrong else ""


def _waits_for_disk(info: Mapping[str, str]) -> bool:
    """Whether the server has a WAITAOF that waits for the disk. With `appendfsync everysec`, that of Redis 7.4 and of
    Valkey confirms up to a second too early (redis/redis#13793; on Valkey 9.1.2, 12 confirmations came with 2 writes to
    disk).
    """
    version = tuple(int(part) for part in info["redis_version"].split(".")[:2])
    return "valkey_version" not in info and (version == (7, 2) or version >= (8, 0))


def _fields(info: bytes) -> Mapping[str, str]:
    lines = (line.partition(":") for line in info.decode().splitlines())
    return {name: value for name, _, value in lines}
