"""What `streamdq demo --report` adds: dumps the history, and writes its analysis as a page that stays."""

from __future__ import annotations

import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import terminal
from ..errors import MissingExtra, StreamdqError

DUMP, TABLES, PAGE = "dump", "tables", "report.html"


def check_installed() -> None:
    """
    Raises:
        MissingExtra: a package that the report needs is not installed.
    """
    for package in ("pyarrow", "duckdb", "jinja2", "streamdq_spark"):
        try:
            import_module(package)
        except ModuleNotFoundError:
            raise MissingExtra(package, "analytics") from None


def keep_history(url: str, namespace: str) -> Path:
    """Dumps the history into a new folder, while Redis is running."""
    from ..dump.dumper import Dumper
    from ..dump.open_folder import open_folder

    folder = Path(tempfile.mkdtemp(prefix="streamdq-demo-report-"))
    with Dumper(open_folder(str(folder / DUMP)), url, namespace).opened() as dumper:
        dumper.dump()
    return folder


def write_up(folder: Path) -> Path | None:
    """Writes the report of the dump in the folder. None if that failed, which is reported."""
    from streamdq_spark import analysis
    from streamdq_spark.engines.duck import DuckDB
    from streamdq_spark.report import write_report

    try:
        plan = analysis.plan(str(folder / DUMP), str(folder / TABLES))
        with terminal.progress_bar("analysing") as bar:
            summary = analysis.analyze(DuckDB(), plan, progress=bar.work_on)
        write_report(plan.target, summary, folder / PAGE)
    except StreamdqError as error:
        terminal.complain(f"no report: {error}")
        return None
    return folder / PAGE


def say_where(page: Path) -> None:
    """Prints where the page is, and how to make one for your own queue."""
    lines = [
        f"dump and tables  {page.parent}",
        f"report           {page.as_uri()}",
        "of your own      streamdq dump --out DIR; streamdq report DIR --open",
    ]
    terminal.console().print()
    for line in lines:
        terminal.say(line)


def as_json(page: Path | None) -> dict[str, Any]:
    return {"report": str(page) if page else None}
