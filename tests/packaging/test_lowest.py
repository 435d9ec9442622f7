"""The core works with the lowest releases that pyproject.toml allows of what it depends on.

They get an environment of their own, with the newest pytest and so on that go with them. `make test-versions` tries
other combinations.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.packaging.versions import UV, Column, columns, run
from tests.servers import binaries


@pytest.mark.thorough
@pytest.mark.skipif(UV is None, reason="uv is not installed")
def test_the_core_on_the_lowest_releases() -> None:
    outcome = run(Column("lowest releases", Path(sys.executable), lowest=True))
    assert outcome.ok, outcome.output[-7000:]
    assert outcome.versions[1] == "6.4.0"


def test_this_python_and_each_server_have_a_column() -> None:
    found = columns()
    names = [column.name for column in found]
    assert len(names) == len(set(names))
    assert any(column.lowest for column in found)
    assert {binary.name for binary in binaries()} <= set(names)
