"""What is tried in parts is tried in whole over all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.turns import PARTS, kept_in, part_of


@dataclass(frozen=True)
class Item:
    """As much of pytest's as is looked at."""

    nodeid: str
    thorough: bool = True

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return pytest.mark.thorough.mark if self.thorough and name == "thorough" else None


ITEMS: list[Any] = [Item(f"tests/test_{file}.py::test_{n}[{p}]") for file in "abc" for n in range(40) for p in "xy"]
FIRST: list[Any] = [Item(f"tests/test_first.py::test_{n}", thorough=False) for n in range(5)]


def test_each_has_one_turn_and_the_first_stage_has_all() -> None:
    kept = [kept_in(turn, [*FIRST, *ITEMS])[0] for turn in range(7 * PARTS, 8 * PARTS)]
    assert all(part[: len(FIRST)] == FIRST for part in kept)
    assert sorted(item.nodeid for part in kept for item in part[len(FIRST) :]) == sorted(i.nodeid for i in ITEMS)


def test_nothing_is_lost_between_kept_and_others() -> None:
    kept, others = kept_in(3, ITEMS)
    assert kept
    assert sorted(map(hash, kept + others)) == sorted(map(hash, ITEMS))


def test_the_parameters_of_a_test_stay_together() -> None:
    assert len({part_of(f"tests/test_a.py::test_it[{n}]") for n in range(50)}) == 1
