"""Type checkers report what tests/typing/orders.py says is wrong, and nothing else of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.thorough  # the first stage has `make types`
ROOT = Path(__file__).parents[2]
SAMPLE = Path(__file__).with_name("orders.py")
WRONG = {number for number, line in enumerate(SAMPLE.read_text().splitlines(), 1) if line.endswith("# wrong")}


WRONG_BODIES = {
    'orders.enqueue(queue, Mail(to="a"))': ("Mail", "CloseOrder"),
    'orders.enqueue(queue, {"order_id": 1})': ("dict[str, int]", "CloseOrder"),
    'orders.enqueue(awaited, Mail(to="a"))': ("Mail", "CloseOrder"),
    'orders.enqueue_many(queue, [NewJob(Mail(to="a"))])': ("Mail", "CloseOrder"),
}
"""What is given there and what is expected."""


def found_by(program: list[str]) -> str:
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False).stdout


@pytest.fixture(scope="module")
def found_by_mypy() -> list[dict[str, Any]]:
    program = [sys.executable, "-m", "mypy", "--strict", "--output", "json", "--no-warn-unused-configs"]
    return [json.loads(line) for line in found_by([*program, str(SAMPLE)]).splitlines() if line.startswith("{")]


def test_mypy(found_by_mypy: list[dict[str, Any]]) -> None:
    assert {one["line"] for one in found_by_mypy if one["severity"] == "error"} == WRONG, found_by_mypy
    assert all(Path(one["file"]) == SAMPLE.relative_to(ROOT) for one in found_by_mypy)


@pytest.mark.parametrize(("call", "types"), WRONG_BODIES.items())
def test_mypy_says_in_one_line_which_body_is_expected(
    call: str, types: tuple[str, str], found_by_mypy: list[dict[str, Any]]
) -> None:
    (number,) = (n for n, line in enumerate(SAMPLE.read_text().splitlines(), 1) if call in line)
    (reported,) = (one for one in found_by_mypy if one["line"] == number)

    given, expected = types
    assert reported["message"].endswith(f'has incompatible type "{given}"; expected "{expected}"')
    assert reported["hint"] is None


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed")
def test_pyright() -> None:
    reported = json.loads(found_by(["pyright", "--outputjson", "--pythonpath", sys.executable, str(SAMPLE)]))

    found = [one for one in reported["generalDiagnostics"] if one["severity"] == "error"]
    assert {one["range"]["start"]["line"] + 1 for one in found} == WRONG, found
