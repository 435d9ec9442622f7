"""How workers hear at once that an attempt was aborted. This is only a hint: its progress in the shard counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..link.command import Command
from ..link.session import Op, Session, checked

_MOST = 256
_KEPT_MS = 600_000


class AbortedAttempt(NamedTuple):
    """A running attempt: its shard (ShardKeys.prefix), its consumer, and the entries of its claim."""

    shard: str
    consumer: bytes
    main: bytes
    entry: bytes


def notify_workers(session: Session, attempts: Sequence[AbortedAttempt]) -> Op[None]:
    """Notifies the workers that run these attempts. One call."""
    key = session.keys.aborts
    commands = [
        Command(
            key,
            ("XADD", key, "MAXLEN", "~", _MOST, "*", "c", one.consumer, "s", one.shard, "m", one.main, "e", one.entry),
        )
        for one in attempts
    ]
    for reply in (yield from session.call([*commands, Command(key, ("PEXPIRE", key, _KEPT_MS))])):
        checked(reply)


def attempt_in(fields: Sequence[Any]) -> AbortedAttempt | None:
    """The attempt in the fields of an entry; None if another client has put it there."""
    if len(fields) != 8:
        return None
    _, consumer, _, shard, _, main, _, entry = fields
    return AbortedAttempt(shard.decode(errors="replace"), consumer, main, entry)
