"""Flows under faults: every join runs, none too early, and what can't go on is blocked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import BINARIES, needs_server
from tests.crash.flows import ROWS, tried
from tests.crash.worker_processes import IN_TURNS
from tests.forked import ROOT

SOME = 60
TRIED = [
    pytest.param(name, id=name, marks=IN_TURNS if name == "redis_killed" else pytest.mark.chaos) for name in ROWS
]  # fmt: skip


@pytest.mark.parametrize("name", TRIED if BINARIES else [needs_server])
def test_flows_in_a_fault(name: str, tmp_path: Path) -> None:
    found = tried(ROWS[name], SOME, BINARIES[-1], tmp_path)
    assert found.broken == []
    assert found.flows + found.excused == SOME


def test_the_page_has_a_row_for_each() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    _, _, table = page.partition("| fault, again and again |")
    rows = re.findall(r"^\| ([^|]+) \|.* \| `(\w+)` \|$", table.partition("\n\n")[0], re.MULTILINE)
    assert rows == [(row.what, name) for name, row in ROWS.items()]
