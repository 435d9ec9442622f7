"""A Redis command. Only ``link`` and ``store`` may import this (``make lint`` checks it); other rooms call operations
of ``store``.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from hiredis import pack_command


class Command(NamedTuple):
    """One Redis command, and a key that tells which Cluster node it goes to."""

    key: str
    args: tuple[Any, ...]


class Behind(Command):
    """A command about what its connection wrote before, such as WAIT. It is sent right behind the command before it in
    the call, on the same connection, also where a Cluster's node redirects that command to.
    """

    __slots__ = ()


class Waiting(Behind):
    """A command that waits in Redis. The last of its arguments is the moment, by ``time.monotonic``, at which it should
    answer; instead of it, the time left in ms is sent, counted at that moment.
    """

    __slots__ = ()

    @property
    def args(self) -> tuple[Any, ...]:
        *words, until = self[1]
        return (*words, max(1, int((until - time.monotonic()) * 1000)))  # 0 would mean: for ever


_NUMBERS = frozenset({int, float})


def packed(command: Command) -> bytes:
    """The command as it is sent. Numbers are written here: hiredis calls repr for them, which lets signals' handlers
    run, and the process crashes if one raises, such as a KeyboardInterrupt.
    """
    words: Any = tuple([str(arg) if arg.__class__ in _NUMBERS else arg for arg in command.args])
    whole: bytes = pack_command(words)
    return whole
