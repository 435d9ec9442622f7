"""The report for people: an analysis's tables as one HTML file.

`data` reads the tables, `page` renders them; a section takes rows and gives texts and charts. Nothing here needs Spark.
"""

from __future__ import annotations

import os
from pathlib import Path

from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder
from streamdq.times.clock import wall_now

from ..summary import Summary
from .data import load_tables
from .page import TABLES, About, render
from .todo import Settings

__all__ = ["TABLES", "About", "check_report", "load_tables", "render", "write_report"]


def check_report(path: Path) -> None:
    """Checks that a report can be written there, before an analysis takes its time; creates the folder.

    Raises:
        FolderError: it can't.
    """
    folder, trial = LocalFolder(path.parent), f"_report-{os.getpid()}.tmp"
    folder.write(trial, b"")
    folder.remove(trial)


def write_report(
    tables: Folder, summary: Summary, path: Path, *, settings: Settings | None = None, page: str = ""
) -> None:
    """The report of what the analysis covered: its tables. Those that an earlier one left beside them may be of other
    days and another dump. `settings`: those of the topics today, if Redis was asked. `page`: the URL of
    the operations page, to which the ids of jobs lead.

    What a crash leaves: the file as it was.

    Raises:
        FolderError: the file can't be written.
    """
    asked = [name for name in TABLES if name in summary.tables]
    found = load_tables(tables, asked, summary.first_day, summary.last_day)
    rows = {name: found.get(name, ()) for name in asked}
    about = About(summary, wall_now(), settings, page)
    LocalFolder(path.parent).write(path.name, render(rows, about).encode())
