"""Which days the tables of an output folder have already, so that an analysis need not read their events again.

A day counts as answered as long as its files in the dump are those from which its rows were computed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamdq.dump.folder import Folder
from streamdq.errors import FolderError

from .dump_files import Dump, GoodFile
from .questions.common import hour_number
from .table_files import table_files
from .tables import DAY, days_in, read_table

_THROUGHPUT = f"topic string, hour timestamp, done long, retry long, dead long, {DAY} string"
_PUNCTUALITY = f"topic string, hour timestamp, attempts long, within_slo long, {DAY} string"
_COUNTS = ("attempts", "done", "failed", "late")


@dataclass(frozen=True, slots=True)
class Record:
    """A file of the output folder that tells from which files of the dump it has something of each day.

    `needed`: the questions that a run has to answer for it. `folders`: where that is. `version`: of what it has; that
    of another is not used.
    """

    file: str
    needed: frozenset[str]
    folders: tuple[str, ...]
    version: int = 0

    def days(self, folder: Folder, dump: Dump, slo_ms: int) -> frozenset[date]:
        """The days of the dump that the folder has as they are."""
        told, now = self._told(folder), self._marks(folder, dump.files, slo_ms)
        return frozenset(date.fromisoformat(day) for day, mark in now.items() if told.get(day) == mark)

    def forget(self, folder: Folder, goes: Callable[[str], bool]) -> None:
        """Before what there is of days that go (as text) is removed or written anew: after a crash it may be of any
        files.
        """
        told = self._told(folder)
        left = {day: mark for day, mark in told.items() if not goes(day)}
        if left != told:
            self._tell(folder, left)

    def remember(self, folder: Folder, files: Iterable[GoodFile], slo_ms: int) -> None:
        """These are the files from which what there is of their days was computed."""
        self._tell(folder, self._told(folder) | self._marks(folder, files, slo_ms))

    def _marks(self, folder: Folder, files: Iterable[GoodFile], slo_ms: int) -> dict[str, str]:
        """By day, what tells its files from any others, and which of the folders have nothing of it: that one has not
        any more is how somebody removed it.
        """
        held = {name: days_in(name, table_files(folder, name)) for name in self.folders}
        of_day: dict[str, list[tuple[str, int, int, int | None]]] = {}
        for file in files:
            of_day.setdefault(str(file.day), []).append((file.path, file.bytes, file.rows, file.last_ms))
        what = [slo_ms, self.version] if self.version else [slo_ms]
        return {
            day: _hash([*what, *(name for name in self.folders if day not in held[name]), sorted(own)])
            for day, own in of_day.items()
        }

    def _told(self, folder: Folder) -> dict[str, str]:
        with suppress(ValueError, AttributeError, FolderError):
            return dict(json.loads(folder.read(self.file) or b"{}").items())
        return {}

    def _tell(self, folder: Folder, marks: dict[str, str]) -> None:
        folder.write(self.file, json.dumps(marks, indent=2, sort_keys=True).encode() + b"\n")


def _hash(told: object) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


_HOURLY = ("punctuality", "throughput")
HOURS = Record("answered.json", frozenset(_HOURLY), _HOURLY)
"""The tables that tell what happened in each hour."""


def hours(spark: SparkSession, folder: Folder, days: Iterable[date]) -> DataFrame:
    """topic, hour, attempts, done, failed, late of these days, as by `History.hours`, from their tables."""
    of_days = F.col(DAY).isin(*(str(day) for day in days))
    keys = ("topic", hour_number(F.col("hour")).alias("hour"))
    failed, none = F.col("retry") + F.col("dead"), F.lit(0).cast("long")
    done = (
        read_table(spark, folder, "throughput", _THROUGHPUT)
        .where(of_days)
        .select(*keys, (F.col("done") + failed).alias("attempts"), "done", failed.alias("failed"), none.alias("late"))
    )
    late = (
        read_table(spark, folder, "punctuality", _PUNCTUALITY)
        .where(of_days)
        .select(
            *keys,
            *(none.alias(name) for name in _COUNTS[:-1]),
            (F.col("attempts") - F.col("within_slo")).alias("late"),
        )
    )
    both = done.unionByName(late).groupBy("topic", "hour")
    return both.agg(*(F.sum(name).alias(name) for name in _COUNTS))
