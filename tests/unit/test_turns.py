"""What takes turns is tried in whole over all turns, and each part of it in every turn."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.turns import kept_in

ROOT = Path(__file__).parents[2]


@dataclass
class Item:
    """As much of pytest's as is looked at."""

    originalname: str
    params: dict[str, Any] = field(default_factory=dict)
    turn: pytest.Mark | None = None
    path: str = "test_it.py"
    thorough: bool = True

    @property
    def name(self) -> str:
        return f"{self.originalname}[{'-'.join(map(str, self.params.values()))}]" if self.params else self.originalname

    @property
    def callspec(self) -> SimpleNamespace:
        if not self.params:
            raise AttributeError("callspec")  # pytest's items without parameters have none
        return SimpleNamespace(params=self.params)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return {"in_turn": self.turn, "thorough": pytest.mark.thorough.mark if self.thorough else None}[name]


THIRD, BY_CASE = pytest.mark.in_turn(of=3).mark, pytest.mark.in_turn(of=3, by="case").mark
LONG = pytest.mark.in_turn(of=2, among="long").mark
WHOLE = {name: pytest.mark.in_turn(of=2, among="files", name=name).mark for name in ("a", "b")}
ITEMS: list[Any] = [
    *[Item(f"test_whole_{name}", {"n": n}, mark) for name, mark in WHOLE.items() for n in range(3)],
    *[Item("test_by_itself", {"n": n}, THIRD) for n in range(7)],
    *[Item("test_with_fewer", {"n": n}, THIRD) for n in range(2)],
    *[Item("test_of_a_case", {"case": case}, BY_CASE) for case in "abcdefg"],
    *[Item("test_more_of_a_case", {"case": case, "n": n}, BY_CASE) for case in "abcdefg" for n in range(2)],
    Item("test_of_no_case", {}, BY_CASE),
    Item("test_long", {}, LONG),
    Item("test_longer", {}, LONG),
    Item("test_long", {}, LONG, "test_other.py"),
    Item("test_always"),
    *[Item("test_not_thorough", {"n": n}, THIRD, thorough=False) for n in range(3)],
]


def kept(turn: int) -> list[str]:
    return [item.name for item in kept_in(turn, ITEMS)[0]]


def test_each_has_its_turn() -> None:
    for first in (0, 5, int("af3c9d01e2", 16)):
        assert {(item.path, item.name) for n in range(6) for item in kept_in(first + n, ITEMS)[0]} == {
            (item.path, item.name) for item in ITEMS
        }


def test_every_turn_has_some_of_each() -> None:
    for turn in range(12):
        names = kept(turn)
        long = [name for name in names if "long" in name]
        assert {name.partition("[")[0] for name in names} - {*long} == {
            f"test_whole_{'ab'[turn % 2]}",
            "test_by_itself", "test_with_fewer", "test_of_a_case", "test_more_of_a_case", "test_of_no_case",
            "test_always", "test_not_thorough",
        }  # fmt: skip
        assert len([name for name in names if name.startswith("test_not_thorough")]) == 3
        assert len(long) in (1, 2), "of three in two files"
        assert len([name for name in names if name.startswith("test_by_itself")]) in (2, 3)


def test_a_case_has_its_turn_in_all_its_tests() -> None:
    assert [name for name in kept(1) if "case[" in name] == [
        "test_of_a_case[b]", "test_of_a_case[e]",
        "test_more_of_a_case[b-0]", "test_more_of_a_case[b-1]", "test_more_of_a_case[e-0]", "test_more_of_a_case[e-1]",
    ]  # fmt: skip


def test_what_has_no_turn_is_left_and_nothing_is_twice() -> None:
    now, later = kept_in(2, ITEMS)
    assert sorted(item.name for item in now + later) == sorted(item.name for item in ITEMS)


@pytest.mark.thorough
def test_without_a_turn_all_are_tried() -> None:
    def seeds(*options: str) -> int:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "thorough"]
        command += ["tests/simulation/test_simulation.py", "-k", "what_was_found", *options]
        done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.count("test_what_was_found_stays_mended[")

    assert 1 < seeds("--turn", "0") < seeds() / 2
