"""The second stage is tried in parts: ``--turn N`` keeps the N-th, so that commits try one after another.

A part has whole test functions, with all their parameters: what a fixture makes for them is made once.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import pytest

PARTS = 20


def kept_in(turn: int, items: Iterable[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of this turn, and the others. What belongs to the first stage is always kept."""
    kept: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        its = item.get_closest_marker("thorough") is None or part_of(item.nodeid) == turn % PARTS
        (kept if its else others).append(item)
    return kept, others


def part_of(nodeid: str) -> int:
    return zlib.crc32(nodeid.partition("[")[0].encode()) % PARTS


def others_later(values: Iterable[object], *first: object) -> list[object]:
    """Parameters of a test: all but the first belong to the second stage."""
    return [value if value in first else pytest.param(value, marks=pytest.mark.thorough) for value in values]
