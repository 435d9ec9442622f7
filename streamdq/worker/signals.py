"""The signals that end a worker."""

from __future__ import annotations

import atexit
import signal
import time
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)
ONE_SIGNAL_S = 1.0
"""Signals within this time are one: systemd sends SIGTERM to each process of a service, and a supervisor passes its own
on; coreutils' timeout sends one to the process and one to its group; people press Ctrl-C twice.
"""
_DEFAULTS: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}


def drop_until(moment: float) -> None:
    """Drops the signals that come until then, on the monotonic clock, as they belong to one that was heard. Later ones
    have their default effect.
    """

    def handle(number: int, _frame: FrameType | None) -> None:
        if time.monotonic() > moment:
            signal.signal(number, _DEFAULTS[number])
            signal.raise_signal(number)

    for number in SIGNALS:
        signal.signal(number, handle)


def drop_at_exit() -> None:
    """Drops the signals once nothing can hold up the end of this process any more. Python takes its handlers down then,
    and a signal would decide the exit code.
    """

    def drop() -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    atexit.register(drop)
