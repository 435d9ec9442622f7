"""How many processes a worker has for handlers with ``process=True``, and what they may use."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..errors import InvalidInput


@dataclass(frozen=True, slots=True)
class ProcessPool:
    """The processes of a worker's handlers with ``process=True``: ``Worker(pool=ProcessPool(4))``.

    ``size``: how many at once; None: one per core. ``memory_bytes``: the most address space of each, on Linux; beyond
    it, the handler gets a MemoryError. ``max_calls``: after so many calls a process is replaced by a new one, for code
    that leaks memory.

    Raises:
        InvalidInput: a number is below 1.
    """

    size: int | None = None
    memory_bytes: int | None = None
    max_calls: int | None = None

    def __post_init__(self) -> None:
        for name in ("size", "memory_bytes", "max_calls"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InvalidInput(f"pool: {name}={value!r} is not a whole number of at least 1")

    @property
    def processes(self) -> int:
        if self.size is not None:
            return self.size
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
