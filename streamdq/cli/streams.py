"""The standard streams of a command: one may be closed or full, or its encoding may lack characters."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare() -> None:
    """Opens the streams that the caller has closed: otherwise a connection or file would get their number, and the
    output of child processes would go there. Characters that stdout's encoding lacks are escaped: a job with such an id
    has already been enqueued when it is printed.
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
    return opened  # another file has the number by now


def give_up() -> None:
    """Drops output that can't be written; otherwise Python would try again when it exits."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                devnull = os.open(os.devnull, os.O_WRONLY)
                os.dup2(devnull, stream.fileno())
                os.close(devnull)
