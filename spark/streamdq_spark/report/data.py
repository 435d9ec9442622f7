"""The tables of an analysis, as rows: aggregates, which are few."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

import pyarrow.parquet as pq

from streamdq.folder import Folder

from .parts import Row, Tables


def load_tables(folder: Folder, names: Iterable[str], first_day: date, last_day: date) -> Tables:
    """The rows of these days, both included; a table that has none is empty."""
    return {name: _rows(folder, name, str(first_day), str(last_day)) for name in names}


def _rows(folder: Folder, table: str, first: str, last: str) -> list[Row]:
    rows: list[Row] = []
    for path in sorted(folder.files(table)):
        day = path.removeprefix(f"{table}/dt=").partition("/")[0]
        if path.endswith(".parquet") and first <= day <= last:
            with folder.open(path) as file:
                rows += pq.ParquetFile(file).read().to_pylist()
    return rows
