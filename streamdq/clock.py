"""Clocks. Only Redis's clock decides what is due; tests can replace it by a clock of their own."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

from .durations import Duration, to_ms


def wall_s() -> float:
    """This host's clock, in seconds since 1970. It decides nothing about jobs: it dates what is signed, logged or
    written to files, and what others state by the clock, such as a token's end.
    """
    return time.time()


def wall_ms() -> int:
    return int(wall_s() * 1000)


def wall_now() -> datetime:
    """In UTC."""
    return datetime.fromtimestamp(wall_s(), UTC)


class RedisClock:
    """The real one: scripts ask Redis."""

    manual = False

    def argument(self) -> str:
        """What every script takes as its first argument: '' = ask Redis, else the time in ms."""
        return ""

    def on_change(self, callback: Callable[[], object]) -> Callable[[], None]:  # noqa: ARG002  (ManualClock's)
        """``callback`` is called when time jumps; real time never does. Call what is returned to end that."""
        return lambda: None


class ManualClock(RedisClock):
    """A clock that stands still until it is told to go on, so that a 15 h retry takes no time to test.

    Every Queue and Worker of a test must be given the same one. Whatever the hosts' or Redis's clocks say, scripts
    go by it. Safe to advance from any thread.
    """

    manual = True

    def __init__(self, start_ms: int | None = None) -> None:
        self.now_ms = wall_ms() if start_ms is None else start_ms
        self._callbacks: list[Callable[[], object]] = []

    def argument(self) -> str:
        return str(self.now_ms)

    def advance(self, duration: Duration) -> None:
        """Time goes on by this much, and whoever waits for it is woken."""
        self.now_ms += to_ms(duration, "advance")
        for callback in list(self._callbacks):
            callback()

    def on_change(self, callback: Callable[[], object]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)


class RedisTime:
    """Redis's clock, as a monotonic clock here can tell it: never ahead of it, and behind by less than a round trip.

    Redis's time at the moment a reply arrives is at least what the reply says; the best of recent replies is kept.
    """

    def __init__(self) -> None:
        self._offset_s = -math.inf
        self._since = 0.0

    def observe(self, now_ms: int, arrived: float) -> None:
        offset_s = now_ms / 1000 - arrived
        # Older than 30 s: clocks drift apart. Far behind the best: Redis's clock was set back.
        if offset_s > self._offset_s or arrived - self._since > 30 or offset_s < self._offset_s - 0.5:
            self._offset_s, self._since = offset_s, arrived

    def to_monotonic(self, ms: int) -> float:
        return ms / 1000 - self._offset_s

    def now_ms(self) -> float:
        return (time.monotonic() + self._offset_s) * 1000
