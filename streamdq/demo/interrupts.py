"""How the demo is interrupted: by a request to end as by Ctrl-C, never between starting a process and knowing it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Makes SIGTERM and a closed terminal end the demo like Ctrl-C, with everything that it started."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _REQUESTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupted_afterwards() -> Iterator[None]:
    """Puts off an interruption until the block has ended.

    The signals are not blocked: a process that is started within would inherit that.
    """
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in _REQUESTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            raise KeyboardInterrupt
