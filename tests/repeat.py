"""The command that repeats a failure, for CI to print last."""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).parents[1] / "build" / "repeat"


def remember(command: str) -> None:
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(command + "\n", encoding="utf-8")
