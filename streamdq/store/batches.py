"""How much goes into one script call. A script blocks every other client, so a call must take Redis a few milliseconds
at most. It is limited by the number of jobs, by their bytes, and by the groups whose progress it reads for each job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
MAX_BYTES = 256 * 1024
"""Of records in one call. Redis copies them a few times; this took about 1 ms on an idle machine."""

FREED_BYTES = 16 * 1024 * 1024
"""Of records that one call deletes: to free 250 KB took 20 µs."""

REPLACED_BYTES = MAX_BYTES // 2
"""Of new records in one call of replace, which also reads the records that they replace."""

_LOOKS = 1500
"""Groups × jobs in one call that reads every group's progress with every job: each took up to 2 µs."""


def most_jobs(most: int, groups: int) -> int:
    """How many jobs fit into a call that reads the progress of this many groups for each job; at most ``most``."""
    return max(1, min(most, _LOOKS // max(1, groups)))


def parts(items: Sequence[T], bytes_of: Callable[[T], int], most: int, max_bytes: int = MAX_BYTES) -> Iterator[list[T]]:
    """The items in parts of at most ``most`` items and ``max_bytes``; an item larger than that makes its own part."""
    part: list[T] = []
    size = 0
    for item in items:
        more = bytes_of(item)
        if part and (len(part) >= most or size + more > max_bytes):
            yield part
            part, size = [], 0
        part.append(item)
        size += more
    if part:
        yield part
