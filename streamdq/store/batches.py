"""How much goes into one script call. A script blocks every other client, so a call is limited by jobs, by their bytes,
and by the groups whose progress it reads for each job. So it takes Redis a few milliseconds at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
MAX_BYTES = 256 * 1024
"""Of records in one call. Redis copies them a few times: measured, about 1 ms where the machine is at rest."""

FREED_BYTES = 16 * 1024 * 1024
"""Of records that go in one call: giving their memory back was measured as 20 µs for 250 KB."""

REPLACED_BYTES = MAX_BYTES // 2
"""Of new records in one call of replace, which reads as many of those they take the place of."""

_LOOKS = 1500
"""Groups times jobs in one call that looks at every group's progress with every job: up to 2 µs each, measured."""


def most_jobs(most: int, groups: int) -> int:
    """How many jobs fit in a call that looks at each of so many groups for each job; ``most`` where these are few."""
    return max(1, min(most, _LOOKS // max(1, groups)))


def parts(items: Sequence[T], bytes_of: Callable[[T], int], most: int, max_bytes: int = MAX_BYTES) -> Iterator[list[T]]:
    """The items in turn, at most so many and so large together; one that is larger than that goes alone."""
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
