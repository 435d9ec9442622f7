"""The names of consumers."""

from __future__ import annotations

import os
import re
import secrets
import socket
from itertools import count

from ..times.clock import wall_s

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NUMBERS = count(secrets.randbelow(36**4))  # from one that other processes of this second hardly begin with
_NAME = re.compile(r"(.+)-(\d{1,10})-([0-9a-z]{6})[0-9a-z]{4}")


def consumer_name() -> str:
    """A name that no other process ever had: with a reused name, a process would take over a dead consumer's claims.
    ``begun_ms`` reads it.
    """
    host = "".join(c if c.isalnum() or c in "-." else "-" for c in socket.gethostname())
    return f"{host}-{os.getpid()}-{_digits(int(wall_s()), 6)}{_digits(next(_NUMBERS), 4)}"


def _digits(number: int, length: int) -> str:
    """The last ones of the number."""
    return "".join(_DIGITS[number // 36**i % 36] for i in reversed(range(length)))


def begun_ms(consumer: str) -> tuple[str, int | None, int | None]:
    """The host and the process id in a consumer's name, and when it was named, in ms by its host's clock; None: its
    name does not tell.
    """
    found = _NAME.fullmatch(consumer)
    if found is None:
        return consumer, None, None
    host, pid, named = found.groups()
    return host, int(pid), int(named, 36) * 1000
