"""SQL by Spark, for what lies on an object store, or is larger than one machine."""

from __future__ import annotations

import re

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from streamdq.dump.folder import Folder

from ..events import read_files
from ..failures import spark_errors
from ..places import check_reach, to_read
from ..table_files import table_files
from . import EVENTS_VIEW, Found, Source, answers_nothing, event_columns, found_in, refused

QUOTES = "spark.sql.ansi.doubleQuotedIdentifiers"
"""As in standard SQL, `"group"` is a column."""

_TELLS = re.compile(r"\s*(describe|desc|show|explain)\b", re.IGNORECASE)
"""What answers though it is no subquery."""


def ask(spark: SparkSession, source: Source, query: str, most: int | None = None) -> Found:
    """The answer, at most so many rows.

    Raises:
        InvalidInput: Spark can't make sense of the query, or it is none.
        AnalysisError: Spark can't reach the folders.
        SparkFailed: Spark failed during the work.
    """
    spark.conf.set(QUOTES, "true")
    with spark_errors(source.dump.folder.url):
        check_reach(spark, source.dump.folder)
        events = read_files(spark, source.dump, source.files)
        events.selectExpr(*event_columns("unix_millis")).createOrReplaceTempView(EVENTS_VIEW)
        for name in source.names:
            assert source.tables is not None
            _table(spark, source.tables, name).createOrReplaceTempView(name)
        try:
            _check_answers(spark, query)
            answer = spark.sql(query)
            answer = answer if most is None else answer.limit(most + 1)
            table = answer.toArrow()
        except (AnalysisException, ParseException) as error:
            raise refused(_words_of(error), query, source) from error
    return found_in(table, most)


def _check_answers(spark: SparkSession, query: str) -> None:
    """Whether the statement does nothing but answer. Spark carries out any other as soon as it reads it, so what
    writes or changes something has to be found before: it is no subquery.

    Raises:
        InvalidInput: it does something else.
        ParseException: Spark can't make sense of it.
    """
    if _TELLS.match(query):
        return
    try:
        spark.sql(f"SELECT * FROM (\n{query.rstrip().rstrip(';')}\n)")  # noqa: S608
    except ParseException:
        spark.sql(f"EXPLAIN {query}")  # without doing it; an error is then of the statement as it was written
        raise answers_nothing() from None


def _table(spark: SparkSession, folder: Folder, name: str) -> DataFrame:
    """Its columns are those of all its files: an older version may have written some with fewer."""
    files = (to_read(folder, path) for path in table_files(folder, name))
    return spark.read.option("mergeSchema", "true").parquet(*files)


def _words_of(error: AnalysisException | ParseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].split(" SQLSTATE:")[0] if lines else "Spark does not understand it"
