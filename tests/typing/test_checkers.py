"""Type checkers report what tests/typing/orders.py says is wrong, and nothing else of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = Path(__file__).with_name("orders.py")
WRONG = {number for number, line in enumerate(SAMPLE.read_text().splitlines(), 1) if line.endswith("# wrong")}


def reported(program: list[str]) -> str:
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False).stdout


def test_mypy() -> None:
    program = [sys.executable, "-m", "mypy", "--strict", "--output", "json", "--no-warn-unused-configs"]
    found = [json.loads(line) for line in reported([*program, str(SAMPLE)]).splitlines() if line.startswith("{")]

    assert {one["line"] for one in found if one["severity"] == "error"} == WRONG, found
    assert all(Path(one["file"]) == SAMPLE.relative_to(ROOT) for one in found)


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed")
def test_pyright() -> None:
    told = json.loads(reported(["pyright", "--outputjson", "--pythonpath", sys.executable, str(SAMPLE)]))

    found = [one for one in told["generalDiagnostics"] if one["severity"] == "error"]
    assert {one["range"]["start"]["line"] + 1 for one in found} == WRONG, found
