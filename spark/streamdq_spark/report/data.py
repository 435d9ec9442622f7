"""The tables of an analysis, as rows: aggregates, which are few."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from io import BytesIO

import pyarrow.parquet as pq

from streamdq.dump.folder import Folder

from ..table_files import table_files
from .parts import TableRow, Tables


def load_tables(folder: Folder, names: Iterable[str], first_day: date, last_day: date) -> Tables:
    """The rows of these days, both included. For tables about the whole time: the rows of a run over exactly these
    days. Tables that were never computed are left out.
    """
    found = {name: table_files(folder, name) for name in names}
    days = (str(first_day), str(last_day))
    return {name: _rows(folder, files, *days) for name, files in found.items() if files}


def _rows(folder: Folder, files: Iterable[str], first: str, last: str) -> list[TableRow]:
    rows: list[TableRow] = []
    for path in sorted(files):
        keys = dict(part.split("=", 1) for part in path.split("/")[1:-1] if "=" in part)
        day, from_day = keys.get("dt", ""), keys.get("from_dt")
        asked = first <= day <= last if from_day is None else (from_day, day) == (first, last)
        if asked:
            rows += pq.ParquetFile(BytesIO(folder.read(path) or b"")).read().to_pylist()
    return rows
