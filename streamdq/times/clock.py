"""Clocks. Only Redis's clock decides what is due; tests can replace it by their own."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

from .durations import Duration, to_ms


def wall_s() -> float:
    """This host's clock, in seconds since 1970. It decides nothing about jobs. It is for timestamps in signatures, logs
    and files, and for checks such as a token's expiry.
    """
    return time.time()


def wall_ms() -> int:
    return int(wall_s() * 1000)


def wall_now() -> datetime:
    """This host's clock, as a datetime in UTC."""
    return datetime.fromtimestamp(wall_s(), UTC)


class RedisClock:
    """The real one: scripts ask Redis."""

    manual = False

    def argument(self) -> str:
        """The first argument of every script: '' = ask Redis, otherwise the time in ms."""
        return ""

    def on_change(self, callback: Callable[[], object]) -> Callable[[], None]:  # noqa: ARG002  (ManualClock's)
        """Calls ``callback`` when time jumps, which real time never does. Returns a function that ends this."""
        return lambda: None


class ManualClock(RedisClock):
    """A clock that stands still until it is advanced, so that a 15 h retry takes no time to test.

    Give every Queue and Worker of a test the same one. Scripts then use it instead of Redis's clock. It is safe to
    advance it from any thread.
    """

    manual = True

    def __init__(self, start_ms: int | None = None) -> None:
        self.now_ms = wall_ms() if start_ms is None else start_ms
        self._callbacks: list[Callable[[], object]] = []

    def argument(self) -> str:
        return str(self.now_ms)

    def advance(self, duration: Duration) -> None:
        """Moves time forward by this much, and wakes everything that waits for it."""
        self.now_ms += to_ms(duration, "advance")
        for callback in list(self._callbacks):
            callback()

    def on_change(self, callback: Callable[[], object]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)


class RedisTime:
    """An estimate of Redis's clock from this host's monotonic clock: never ahead, and behind by less than a round trip.

    When a reply arrives, Redis's time is at least what the reply says. The best of recent replies is kept.
    """

    def __init__(self) -> None:
        self._offset_s = -math.inf
        self._since = 0.0

    def observe(self, now_ms: int, arrived: float) -> None:
        offset_s = now_ms / 1000 - arrived
        # Replace a best that is older than 30 s, as clocks drift, or far ahead: then Redis's clock was set back.
        if offset_s > self._offset_s or arrived - self._since > 30 or offset_s < self._offset_s - 0.5:
            self._offset_s, self._since = offset_s, arrived

    def to_monotonic(self, ms: int) -> float:
        return ms / 1000 - self._offset_s

    def now_ms(self) -> float:
        return (time.monotonic() + self._offset_s) * 1000
