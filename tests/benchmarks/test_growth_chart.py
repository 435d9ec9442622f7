"""The chart of what calls cost while many jobs wait: which sizes are where hash tables grow, the table, the picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import growth_chart
from benchmarks.growth_chart import is_rehashing, main
from tests.conftest import BINARIES

needs_redis = pytest.mark.skipif(not BINARIES, reason="no Redis server on this machine")


def point(waiting: int, ratio: float) -> dict[str, Any]:
    found = {"us": 4 * ratio, "few_us": 4.0, "ratio": ratio}
    calls = dict.fromkeys(growth_chart._LINES, found)
    return {"waiting": waiting, "rehashing": is_rehashing(waiting), "used_memory": 1, "calls": calls}


@pytest.mark.thorough
@needs_redis
def test_figures_are_measured_written_and_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(growth_chart, "_ROUNDS", 3)
    monkeypatch.setattr(growth_chart, "_OF_EACH", 2)
    monkeypatch.setattr(growth_chart, "FEW", 1_000)
    monkeypatch.setattr(growth_chart, "SIZES", (4_000,))
    figures, first, again = (tmp_path / name for name in ("growth.json", "first.svg", "again.svg"))
    assert main(["--up-to", "6k", "--json", str(figures), "--chart", str(first)]) == 0
    assert main(["--from", str(figures), "--chart", str(again)]) == 0
    points = json.loads(figures.read_text())["points"]
    assert [point["waiting"] for point in points] == [4_000, 6_000]
    assert all(was["us"] > 0 < was["few_us"] for point in points for was in point["calls"].values())
    assert first.read_text() == again.read_text()
    assert "6 k" in capsys.readouterr().out
