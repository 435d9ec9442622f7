"""What `streamdq demo --report` adds: dumps the history, and writes Spark's analysis of it as a page that stays."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import terminal
from ..errors import MissingExtra, StreamdqError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DUMP, TABLES, PAGE = "dump", "tables", "report.html"


def check_installed() -> None:
    """
    Raises:
        MissingExtra: a package that the report needs is not installed.
    """
    for package in ("pyarrow", "pyspark", "streamdq_spark"):
        try:
            import_module(package)
        except ModuleNotFoundError:
            raise MissingExtra(package, "spark") from None


def keep_history(url: str, namespace: str) -> Path:
    """Dumps the history into a new folder, while Redis is running."""
    from ..dump.dumper import Dumper
    from ..dump.open_folder import open_folder

    folder = Path(tempfile.mkdtemp(prefix="streamdq-demo-report-"))
    with Dumper(open_folder(str(folder / DUMP)), url, namespace).opened() as dumper:
        dumper.dump()
    return folder


def write_up(folder: Path, session: Callable[[], AbstractContextManager[SparkSession]] | None = None) -> Path | None:
    """Writes the report of the dump in the folder. None if Spark has failed, which is reported."""
    from streamdq_spark import analysis
    from streamdq_spark.report import write_report
    from streamdq_spark.session import SMALL
    from streamdq_spark.session import session as start

    try:
        plan = analysis.plan(str(folder / DUMP), str(folder / TABLES))
        with terminal.progress_bar("starting Spark") as bar, session() if session else start(settings=SMALL) as spark:
            summary = analysis.analyze(spark, plan, progress=bar.work_on)
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
        "of your own      streamdq dump --out DIR; streamdq analyze DIR --output DIR --report FILE",
    ]
    terminal.console().print()
    for line in lines:
        terminal.say(line)


def as_json(page: Path | None) -> dict[str, Any]:
    return {"report": str(page) if page else None}
