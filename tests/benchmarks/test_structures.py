"""The structures that could hold waiting jobs: each of them returns what was put in, and nothing that was withdrawn."""

from __future__ import annotations

import pytest

from benchmarks import structures
from benchmarks.structures import PARTS, STRUCTURES, main
from tests.conftest import BINARIES

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not BINARIES, reason="no Redis server on this machine"),
]


def test_the_table_has_a_line_for_each(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(structures, "FEW", 2_000)
    monkeypatch.setattr(structures, "_ROUNDS", 2)
    monkeypatch.setattr(structures, "_ONES", 2)
    assert main(["--jobs", "12k"]) == 0
    output = capsys.readouterr().out
    assert all(structure.name in output for structure in (*STRUCTURES, *PARTS))
    assert "nan" not in output
