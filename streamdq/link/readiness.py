"""Waiting for a socket: with ``poll``, which takes any descriptor."""

from __future__ import annotations

import select
from typing import Any

POLLIN, POLLOUT = 1, 4  # POSIX leaves their values open; every system has these


class _Select:
    """The same with ``select``, for programs in which ``poll`` is missing: eventlet removes it, as it would block all
    others.
    """

    def __init__(self) -> None:
        self._read: list[Any] = []
        self._write: list[Any] = []

    def register(self, of: Any, events: int) -> None:
        if events & POLLIN:
            self._read.append(of)
        if events & POLLOUT:
            self._write.append(of)

    def poll(self, timeout_ms: float | None = None) -> list[Any]:
        found = select.select(self._read, self._write, [], None if timeout_ms is None else timeout_ms / 1000)
        return [*found[0], *found[1]]


def new_poll() -> Any:
    """An object with ``register`` and ``poll``."""
    return select.poll() if hasattr(select, "poll") else _Select()
