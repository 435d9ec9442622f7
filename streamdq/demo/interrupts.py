"""How the demo is interrupted: by a request to end as by Ctrl-C, never between starting a process and knowing it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_Handler = Callable[[int, FrameType | None], None]


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Makes SIGTERM and a closed terminal end the demo like Ctrl-C, with everything that it started."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled_by(interrupt):
        yield


@contextmanager
def _handled_by(handler: _Handler) -> Iterator[None]:
    """Requests that this process was started to ignore, as by `nohup`, stay so."""
    heeded = [number for number in _REQUESTS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, its in before.items():
            signal.signal(number, its)


@contextmanager
def interrupted_afterwards() -> Iterator[None]:
    """Puts off an interruption until the block has ended.

    The signals are not blocked: a process that is started within would inherit that.
    """
    came: list[int] = []
    try:
        with _handled_by(lambda number, _frame: came.append(number)):
            yield
    finally:
        if came:
            raise KeyboardInterrupt
