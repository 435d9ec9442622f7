"""What of a dump the questions look at: each gets the history of its days."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame, SparkSession

from streamdq.dump.folder import Folder

from . import day_values
from .answered import hours
from .dump_files import Dump, GoodFile
from .events import read_few, read_files
from .failures import SPARK_ERRORS
from .questions import History, Question
from .questions.values import on_days, week_of
from .session import FEW_EVENTS


@dataclass(frozen=True, slots=True)
class Reading:
    """The files that a question reads, and the days of which it only needs what the tables have, or, with `by_values`,
    what `day_values` has. `last_ms`: when the last event of all of them finished, if their footers say so.
    """

    files: tuple[GoodFile, ...]
    answered: frozenset[date]
    last_ms: int | None
    by_values: bool = False

    @property
    def events(self) -> int:
        return _events(self.files)


def reading(
    dump: Dump, first: date, last: date, question: Question, answered: Collection[date], valued: Collection[date] = ()
) -> Reading:
    """What a question that is asked for these days reads. `answered`: the days that the tables have already; `valued`:
    those that `day_values` has.
    """
    since, until = _span(dump, first, last, question)
    begin = _moved(first, -question.whole.days)
    files = dump.between(since, until)
    last_ms = _last_ms(files)
    known: set[date] = set()
    if question.by_hour:
        known.update(answered)
    elif question.by_values and last_ms is not None:
        known.update(day for day in valued if week_of(day, last_ms) is not None)
    past = frozenset(day for day in known if since <= day < begin)
    return Reading(tuple(file for file in files if file.day not in past), past, last_ms, question.by_values)


@contextmanager
def histories(spark: SparkSession, dump: Dump, tables: Folder) -> Iterator[Callable[[Reading], History]]:
    """Yields a function that gives a question its history; questions that read the same files share one. If there are
    few events, the driver reads them and Spark keeps them, because to open the many files takes longer than the rest.
    """

    def history_of(wanted: Reading) -> History:
        if wanted.by_values:
            if wanted not in of_values:
                of_values[wanted] = _of_values(spark, dump, wanted, tables, found)
            return of_values[wanted]
        if not (history := found.get(wanted.files)):
            history = found[wanted.files] = History(_read(spark, dump, wanted.files), _last_ms(wanted.files))
            if _few(wanted.files):
                history.keep(history.events)
        if not wanted.answered:
            return history
        if wanted not in after:
            after[wanted] = history.after(hours(spark, tables, wanted.answered), wanted.last_ms)
        return after[wanted]

    found: dict[tuple[GoodFile, ...], History] = {}
    after: dict[Reading, History] = {}
    of_values: dict[Reading, History] = {}
    try:
        yield history_of
    finally:
        with suppress(*SPARK_ERRORS):  # the Java process has ended, and what it kept with it
            for history in (*found.values(), *of_values.values()):
                history.forget()


def _events(files: Iterable[GoodFile]) -> int:
    return sum(file.rows for file in files)


def _few(files: Iterable[GoodFile]) -> bool:
    return _events(files) < FEW_EVENTS


def _read(spark: SparkSession, dump: Dump, files: Sequence[GoodFile]) -> DataFrame:
    return (read_few if _few(files) else read_files)(spark, dump, files)


def _of_values(
    spark: SparkSession, dump: Dump, wanted: Reading, tables: Folder, found: Mapping[tuple[GoodFile, ...], History]
) -> History:
    past = None
    if wanted.answered and wanted.last_ms is not None:
        past = day_values.kept(spark, tables, wanted.answered, wanted.last_ms)
    # To look at few events that Spark keeps already is faster than to open the files of some days again.
    kept = [history for files, history in found.items() if _few(files) and {*wanted.files} <= {*files}]
    if kept:
        events = kept[0].events.where(on_days(file.day for file in wanted.files))
    else:
        events = _read(spark, dump, wanted.files)
    return History(events, wanted.last_ms, past)


def events_to_read(
    dump: Dump,
    first: date,
    last: date,
    questions: Mapping[str, Question],
    answered: Collection[date],
    valued: Collection[date] = (),
) -> int:
    """How many events the question that reads most of them reads."""
    return max(reading(dump, first, last, question, answered, valued).events for question in questions.values())


def _span(dump: Dump, first: date, last: date, question: Question) -> tuple[date, date]:
    """The days whose events a question gets."""
    days = [file.day for file in dump.files]
    until = min(_moved(last, question.lookahead.days), max(days))
    # The weeks of values end with the last event, on whatever day that is.
    end = max((day for day in days if day <= until), default=until) if question.by_values else first
    since = _moved(end, -question.lookback.days)
    return max(since, min(days)), until


def _last_ms(files: Sequence[GoodFile]) -> int | None:
    """When the last event of these files finished, if their footers say so."""
    found = [file.last_ms for file in files]
    return None if None in found else max((last for last in found if last is not None), default=None)


def _moved(day: date, days: int) -> date:
    return date.fromordinal(min(max(day.toordinal() + days, date.min.toordinal()), date.max.toordinal()))
