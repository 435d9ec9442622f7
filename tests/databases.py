"""Which kinds of database ``make test`` tries."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest


def first_with_sqlite(items: Iterable[pytest.Item], folder: Path) -> None:
    """What works alike with each kind of database is tried with SQLite first; servers are left to ``make
    test-all``. A test that names its databases is tried with PostgreSQL, too.
    """
    prefix = f"tests/{folder.name}/"
    for item in items:
        if not item.nodeid.startswith(prefix):
            continue
        kind = item.callspec.params.get("database") if hasattr(item, "callspec") else None
        named = any(mark.args[0] == "database" for mark in item.iter_markers("parametrize"))
        if kind == "mariadb" or (kind == "postgresql" and not named):
            item.add_marker("thorough")
