"""A Redis command. Only ``link`` and ``store`` may import this (``make lint`` checks it); other rooms call operations
of ``store``.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple


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
    answer; what is sent instead is the time left in ms, counted when it is sent.
    """

    __slots__ = ()

    @property
    def args(self) -> tuple[Any, ...]:
        *words, until = self[1]
        return (*words, max(1, int((until - time.monotonic()) * 1000)))  # 0 would mean: for ever
