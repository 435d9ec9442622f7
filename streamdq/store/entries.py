"""Where an entry stands in its stream: its id is the time at which it was added, in ms, and a number within that."""

from __future__ import annotations

FIRST = "0-0"
"""Before every entry."""


def order_of(entry: str) -> tuple[int, int]:
    """Ids as text don't sort in the order of the stream; these do.

    Raises:
        ValueError: it is not an entry's id.
    """
    ms, _, sequence = entry.partition("-")
    return int(ms), int(sequence)


def ms_of(entry: str) -> int:
    """When it was added, by Redis's clock."""
    return order_of(entry)[0]
