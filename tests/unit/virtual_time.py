"""Time that passes only while everything waits: a test of minutes takes milliseconds, and each moment is exact."""

from __future__ import annotations

import asyncio
import functools
import random
import selectors
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

P = ParamSpec("P")
R = TypeVar("R")


class _Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class _Selector(selectors.SelectSelector):
    """Where the loop would sleep, the clock goes on instead."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found:
            return found
        assert timeout is not None, "everything waits, and for nothing that will happen"
        self._clock.now_s += max(0.0, timeout)
        return []


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs the test in a loop of its own; ``time.monotonic`` is the loop's time. Not for tests with threads."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        clock = _Clock()
        with (
            patch.object(time, "monotonic", clock),
            patch.object(random, "uniform", lambda _least, most: most),  # each pause is its longest
            asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(_Selector(clock))) as runner,
        ):
            runner.run(test(*args, **kwargs))

    return run


def in_this_thread(instead: Callable[P, R], of_others: Callable[P, R]) -> Callable[P, R]:
    """What a test puts in place of a function of ``time``: threads of earlier tests, as Spark's, use the real one."""
    this = threading.get_ident()

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return (instead if threading.get_ident() == this else of_others)(*args, **kwargs)

    return call
