"""The tables of an analysis, as rows: aggregates, which are few."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from streamdq.dump.folder import Folder

from ..table_files import read_rows
from .parts import Tables


def load_tables(folder: Folder, names: Iterable[str], first_day: date, last_day: date) -> Tables:
    """The rows of these days, both included. For tables about the whole time: the rows of a run over exactly these
    days. Tables that were never computed are left out.
    """
    found = {name: read_rows(folder, name, first_day, last_day) for name in names}
    return {name: rows.to_pylist() for name, rows in found.items() if rows is not None}
