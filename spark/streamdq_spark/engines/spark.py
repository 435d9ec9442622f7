"""The tables by Spark, on this machine or on a cluster.

Intermediate results are written to a hidden folder beside the tables and read from there: so the plan of what follows
is short, and a worker that is lost takes none of them along.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, IntegerType, LongType, StringType, StructField, StructType

from streamdq.dump.folder import Folder

from ..events import read_few, read_files
from ..failures import SPARK_ERRORS, spark_errors
from ..once import Once
from ..places import check_reach, spark_url, to_read
from ..questions import FACTS, Statement, event_view, functions, needed, tables, views
from ..session import FEW_EVENTS
from ..table_files import remove_folder
from .base import Answers, Engine, Work, pools_of

_TYPES = {
    "text": "STRING", "integer": "BIGINT", "number": "DOUBLE", "numbers": "ARRAY<DOUBLE>", "flag": "BOOLEAN",
    "time": "BIGINT",  # ms, until it is written
}  # fmt: skip
_ARROW: dict[pa.DataType, DataType] = {
    pa.string(): StringType(), pa.int32(): IntegerType(), pa.int64(): LongType(), pa.float64(): DoubleType(),
}  # fmt: skip
_QUOTES = "spark.sql.ansi.doubleQuotedIdentifiers"
"""As in standard SQL, `"group"` is a column."""
_HELD = ".intermediate"
_ANEW = ("lives",)
"""What takes as long to write and to read as to calculate."""


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
    def answers(self, work: Work, target: Folder) -> Iterator[Answers]:
        remove_folder(target, _HELD)
        found = SparkAnswers(self._spark, work, target)
        try:
            yield found
        finally:
            with suppress(*SPARK_ERRORS):  # the Java process has ended, and what it kept with it
                found.forget()
            remove_folder(target, _HELD)


class SparkAnswers(Answers):
    def __init__(self, spark: SparkSession, work: Work, target: Folder) -> None:
        self._spark, self._work, self._target = spark, work, target
        self._once = Once()
        self._kept: list[DataFrame] = []
        with spark_errors(work.dump.folder.url):
            self._prepare()

    def rows(self, name: str) -> pa.Table:
        """Raises: BadDump, SparkGone, SparkFailed."""
        with spark_errors(name):
            self._make_ready(name)
            return self._ask(tables().get(name) or views()[name]).toArrow()

    def forget(self) -> None:
        for kept in self._kept:
            kept.unpersist()

    def _ask(self, statement: Statement) -> DataFrame:
        columns = ", ".join(f'CAST("{name}" AS {_TYPES[kind]}) AS "{name}"' for name, kind in statement.columns.items())
        source = f"(\n{statement.rendered(self._work.values)}\n)" if statement.name in tables() else statement.name
        return self._spark.sql(f"SELECT {columns} FROM {source} AS answer")  # noqa: S608

    def _prepare(self) -> None:
        """Defines the functions, and gives what is read."""
        self._spark.conf.set(_QUOTES, "true")
        for function in functions("spark", self._work.values):
            self._spark.sql(function)
        few = self._few_events() if self._work.events < FEW_EVENTS else None
        for name, files in self._work.files.items():
            if few is None:
                events = self._many_events(name)
            else:
                days = {(file.day - date(1970, 1, 1)).days for file in files}
                events = few.where(F.col("day").isin(*days))
            events.createOrReplaceTempView(name)
        self._given(FACTS, self._work.known_facts)
        self._given("waiting", self._work.waiting)

    def _few_events(self) -> DataFrame:
        """All of them, read by the driver, because to open the many files takes Spark longer than the rest."""
        read_few(self._spark, self._work.dump, self._work.all_files).createOrReplaceTempView("few_rows")
        events = self._spark.sql(event_view("few_rows", self._work.columns, self._work.values))
        return self._keep(events.coalesce(1))  # then nothing has to be shuffled

    def _many_events(self, name: str) -> DataFrame:
        rows = f"{name}_rows"
        read_files(self._spark, self._work.dump, self._work.files[name]).createOrReplaceTempView(rows)
        return self._keep(self._spark.sql(event_view(rows, self._work.columns, self._work.values)))

    def _keep(self, events: DataFrame) -> DataFrame:
        """In memory, or on disk where that is full: most of the views read them."""
        self._kept.append(events.persist())
        return events

    def _given(self, name: str, rows: pa.Table) -> None:
        # A client of Spark Connect does not see of which types a table without rows is.
        schema = StructType([StructField(field.name, _ARROW[field.type]) for field in rows.schema])
        self._spark.createDataFrame(rows, schema).coalesce(1).createOrReplaceTempView(name)

    def _make_ready(self, name: str) -> None:
        for view in needed(name):
            self._once.get(view.name, partial(self._make, view))

    def _make(self, view: Statement) -> None:
        if "pools" in view.sources:
            self._given("pools", pools_of(tuple(row) for row in self._spark.table("worked_on").collect()))
        rows = self._spark.sql(view.rendered(self._work.values))
        if view.name not in _ANEW:
            path = f"{_HELD}/{view.name}"
            placed = rows.coalesce(1) if self._work.events < FEW_EVENTS else rows
            placed.write.mode("overwrite").parquet(spark_url(self._target, path))
            rows = self._spark.read.schema(rows.schema).parquet(to_read(self._target, path))
        rows.createOrReplaceTempView(view.name)
