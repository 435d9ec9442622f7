"""The tables by Spark, on this machine or on a cluster.

Spark counts what is made of events. What is made of these counts, which the fact table brings here anyway, DuckDB
calculates in this process: for so few rows, to plan a query takes Spark longer than to run it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date
from functools import partial
from threading import Lock

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamdq.dump.folder import Folder

from ..errors import SparkGone
from ..events import read_few, read_files
from ..failures import SPARK_ERRORS, spark_errors
from ..memory import heap
from ..once import Once
from ..places import check_reach
from ..questions import (
    Statement,
    counted,
    declared,
    event_view,
    functions,
    kept,
    needed,
    of_facts,
    statement_of,
    tables,
)
from ..session import FEW_EVENTS
from .base import Answers, Engine, Work
from .duck import DuckAnswers, database

_TYPES = {
    "text": "STRING", "integer": "BIGINT", "number": "DOUBLE", "numbers": "ARRAY<DOUBLE>", "flag": "BOOLEAN",
    "time": "BIGINT",  # ms, until it is written
}  # fmt: skip
_QUOTES = "spark.sql.ansi.doubleQuotedIdentifiers"
"""As in standard SQL, `"group"` is a column."""
_PERCENTILE = re.compile(r"percentile_cont\((0\.\d+)\) WITHIN GROUP \(ORDER BY ((?:[^()]|\([^()]*\))+)\)")
_SHARED = ("retry_waits", "jobs")
"""What several tables read. None has a WITH: in a query with one of its own, Spark would compute it anew."""


class Spark(Engine):
    """Spark, in this session."""

    at_once = 4
    """While one is planned, which takes one core, the tasks of another run. As many tasks run as there are cores, so it
    needs no more memory.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def check(self, *folders: Folder) -> None:
        """Raises: AnalysisError, if Spark can't reach one."""
        for folder in folders:
            with spark_errors(folder.url):
                check_reach(self._spark, folder)

    @contextmanager
    def answers(self, work: Work) -> Iterator[Answers]:
        with database(heap()) as opened:
            found = SparkAnswers(self._spark, work, DuckAnswers(opened, work))
            try:
                yield found
            except SparkGone:
                found.held.clear()  # it is lost, and to ask for it takes time
                raise
            finally:
                with suppress(*SPARK_ERRORS):
                    found.forget()


class SparkAnswers(Answers):
    """`here`: what this process calculates, one table at a time."""

    def __init__(self, spark: SparkSession, work: Work, here: DuckAnswers) -> None:
        self._spark, self._work, self._here = spark, work, here
        self._once, self._one_at_a_time = Once(), Lock()
        self.held: list[DataFrame] = []
        with spark_errors(work.dump.folder.url):
            self._prepare()

    def rows(self, name: str) -> pa.Table:
        """Raises: BadDump, AnalysisError, SparkGone, SparkFailed."""
        with spark_errors(name):
            if not of_facts(name) and name not in kept():
                return self._count(statement_of(name))
            for view in counted(name):
                self._once.get(("here", view.name), partial(self._hand_over, view))
        with self._one_at_a_time:
            return self._here.rows(name)

    def forget(self) -> None:
        for rows in self.held:
            rows.unpersist()

    def _hand_over(self, view: Statement) -> None:
        rows = self._count(view)
        with self._one_at_a_time:
            self._here.give(view, rows)

    def _count(self, statement: Statement) -> pa.Table:
        for view in needed(statement.name)[: None if statement.name in tables() else -1]:
            self._once.get(view.name, partial(self._make, view))
        query = f"(\n{self._query(statement)}\n)"
        return self._spark.sql(declared(statement, query, _TYPES)).toArrow()

    def _query(self, statement: Statement) -> str:
        return together(statement.rendered(self._work.values))

    def _prepare(self) -> None:
        """Defines the functions, and reads the events."""
        self._spark.conf.set(_QUOTES, "true")
        for function in functions("spark", self._work.values):
            self._spark.sql(function)
        events = self._events()
        for name, files in self._work.files.items():
            days = {(file.day - date(1970, 1, 1)).days for file in files}
            events.where(F.col("day").isin(*days)).createOrReplaceTempView(name)

    def _events(self) -> DataFrame:
        """All that any table reads. Few are read by the driver, as to open the many files takes Spark longer than the
        rest, and are one partition, so that nothing has to be shuffled.
        """
        work = self._work
        few = work.events < FEW_EVENTS
        read = read_few if few else read_files
        read(self._spark, work.dump, work.all_files).createOrReplaceTempView("all_rows")
        events = self._spark.sql(event_view("all_rows", work.columns, work.values, work.where))
        return self._hold(events.coalesce(1) if few else events)

    def _hold(self, rows: DataFrame) -> DataFrame:
        """In memory, or on disk where that is full, as several statements read them."""
        self.held.append(rows.persist())
        return rows

    def _make(self, view: Statement) -> None:
        rows = self._spark.sql(self._query(view))
        (self._hold(rows) if view.name in _SHARED else rows).createOrReplaceTempView(view.name)


def together(query: str) -> str:
    """The query, with all percentiles of the same values taken at once: for each call of its own, Spark collects the
    values anew.
    """
    shares = sorted({found[1] for found in _PERCENTILE.finditer(query)})
    return _PERCENTILE.sub(
        lambda found: f"percentile({found[2]}, array({', '.join(shares)}))[{shares.index(found[1])}]", query
    )
