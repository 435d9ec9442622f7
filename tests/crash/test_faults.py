"""Each fault under load: what was accepted is neither lost nor early, little runs again, and soon all is as before.

Most take seconds: `pytest -m chaos`, or `make faults`, which prints the table of docs/reliability.md.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import BINARIES, needs_server
from tests.crash.faults import FAULTS
from tests.crash.scene import Fault, broken, tried
from tests.crash.worker_processes import IN_TURNS
from tests.forked import ROOT
from tests.servers import Binary

ROWS = [
    pytest.param(
        fault, binary, id=f"{fault.name}-{binary.name}",
        marks=IN_TURNS if fault.quick and binary is BINARIES[-1] else pytest.mark.chaos,
    )
    for fault in FAULTS
    for binary in BINARIES
]  # fmt: skip


@pytest.mark.parametrize(("fault", "binary"), ROWS or [needs_server])
def test_a_fault_under_load(fault: Fault, binary: Binary, tmp_path: Path) -> None:
    if why := fault.needs(binary):
        pytest.skip(why)
    assert broken(tried(fault, binary, tmp_path), timed=False) == []


def test_the_page_has_a_row_for_each_fault() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    _, _, table = page.partition("| fault | Redis |")
    rows = re.findall(r"^\| ([^|]+) \|.* \| `(\w+)` \|$", table.partition("\n\n")[0], re.MULTILINE)
    assert rows == [(fault.what, fault.name) for fault in FAULTS]


# -- the judge
