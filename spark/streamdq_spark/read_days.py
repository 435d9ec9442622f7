"""The events of some days of a dump, in Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from .days import Days
from .events import read_few, read_files
from .failures import spark_errors
from .places import check_reach
from .possible import condition
from .session import FEW_EVENTS


@contextmanager
def events_of(spark: SparkSession, days: Days) -> Iterator[DataFrame]:
    """The events that can be, with the columns of `EVENTS`. Spark's failures within the block become errors in plain
    words.

    Raises:
        BadDump: a file is damaged.
        AnalysisError: Spark can't reach the folder.
        SparkFailed: Spark failed during the work.
    """
    with spark_errors(days.dump.folder.url):
        check_reach(spark, days.dump.folder)
        few = days.events < FEW_EVENTS
        events = (read_few if few else read_files)(spark, days.dump, days.files)
        if days.impossible:
            events = events.where(condition("unix_millis"))
        if few:  # else each use would take them from Python anew
            events.persist()
        yield events
        events.unpersist()
