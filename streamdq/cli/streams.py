"""The standard streams of a command: one may be closed, full, or of an encoding that lacks characters."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare() -> None:
    """Opens those that the caller has closed, as else a connection or a file would get their number, and what a child
    process prints would be sent there. What stdout's encoding lacks is written as an escape: a job with such an id has
    been enqueued by the time it is printed.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            setattr(sys, name, open(_devnull_at(number), mode, encoding="utf-8"))  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _devnull_at(number: int) -> int:
    opened = os.open(os.devnull, os.O_RDWR)
    if opened == number:
        return opened
    try:
        os.fstat(number)
    except OSError:
        os.dup2(opened, number)
        os.close(opened)
        return number
    return opened  # something else has the number by now


def give_up() -> None:
    """Drops what can't be written, which Python would try again as it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                devnull = os.open(os.devnull, os.O_WRONLY)
                os.dup2(devnull, stream.fileno())
                os.close(devnull)
