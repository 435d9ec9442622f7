"""The levels of durability: where a change is for certain when the call that made it returns."""

from __future__ import annotations

import re

from ..errors import InvalidInput

MEMORY = "memory"
"""In the memory of the server that made it."""
DISK = "disk"
"""On that server's disk, in its append-only file."""
PATTERN = r"^(memory|disk|replicas:[1-9][0-9]{0,2})$"
"""``replicas:N``: in the memory of N replicas as well."""

_LEVEL = re.compile(PATTERN)


def check_level(level: str | None) -> str | None:
    """The level as given; None stands for a default.

    Raises:
        InvalidInput: there is no such level.
    """
    if level is None or (isinstance(level, str) and _LEVEL.fullmatch(level)):
        return level
    raise InvalidInput(f"durable: {level!r} is none of 'memory', 'disk' and 'replicas:N', with N from 1 to 999")


def replicas_of(level: str) -> int:
    """How many replicas must confirm a change; 0 at the other levels."""
    return int(level.partition(":")[2] or 0)
