"""Ids of stream entries: the time when an entry was added, in ms, and a number within that millisecond."""

from __future__ import annotations

FIRST = "0-0"
"""Before every entry."""


def order_of(entry: str) -> tuple[int, int]:
    """The id as a sort key: as text, ids don't sort in the order of the stream.

    Raises:
        ValueError: it is not an entry's id.
    """
    ms, _, sequence = entry.partition("-")
    return int(ms), int(sequence)


def ms_of(entry: str) -> int:
    """When the entry was added, by Redis's clock."""
    return order_of(entry)[0]
