"""The events of some days of a dump, for what needs no tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame, SparkSession

from streamdq.errors import InvalidInput

from .dump_files import Dump, GoodFile, open_dump
from .events import read_few, read_files
from .failures import spark_errors
from .places import check_reach
from .session import FEW_EVENTS


@dataclass(frozen=True, slots=True)
class Days:
    """The files of these days."""

    dump: Dump
    files: tuple[GoodFile, ...]

    @property
    def events(self) -> int:
        return sum(file.rows for file in self.files)

    @contextmanager
    def read(self, spark: SparkSession) -> Iterator[DataFrame]:
        """The events, with the columns of `EVENTS`. What Spark fails at within the block is told in plain words.

        Raises:
            BadDump: a file is damaged.
            AnalysisError: Spark can't reach the folder.
            SparkFailed: Spark failed during the work.
        """
        with spark_errors(self.dump.folder.url):
            check_reach(spark, self.dump.folder)
            few = self.events < FEW_EVENTS
            events = (read_few if few else read_files)(spark, self.dump, self.files)
            if few:  # else each use would take them from Python anew
                events.persist()
            yield events
            events.unpersist()


def open_days(input: str, first: date | None, last: date | None, *, quarantine: bool = False) -> Days:
    """The days from `first` to `last`, both included; None: as far as the dump goes. `quarantine`: bad files are left
    out.

    Raises:
        InvalidInput: no events in these days.
        HistoryUnreadable: there is no dump.
        BadDump: a file is bad and `quarantine` is off.
    """
    dump = open_dump(input, quarantine=quarantine)
    files = tuple(dump.between(first or date.min, last or date.max))
    if not files:
        days = [file.day for file in dump.files]
        held = f"it holds {min(days)} to {max(days)}" if days else "it holds none at all"
        raise InvalidInput(f"the dump {dump.folder.url} has no events on the requested days: {held}")
    return Days(dump, files)
