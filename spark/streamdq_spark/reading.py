"""What of a dump the questions look at: each gets the history of its days."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from functools import partial

from pyspark.sql import SparkSession

from streamdq.dump.folder import Folder

from .answered import hours
from .day_values import is_split, kept
from .dump_files import Dump, GoodFile
from .events import read_few, read_files
from .failures import SPARK_ERRORS
from .questions import History, Question
from .questions.history import KeptDays
from .questions.once import Once
from .session import FEW_EVENTS, MANY_EVENTS


@dataclass(frozen=True, slots=True)
class Reading:
    """The files that a question reads, the days of which it only needs what the tables have, and those of which it
    only needs the values that were kept. Of all of them: `last_ms`, when the last event finished, if their footers say
    so, and `all_events`, how many there are.
    """

    files: tuple[GoodFile, ...]
    answered: frozenset[date]
    valued: frozenset[date]
    last_ms: int | None
    all_events: int

    @property
    def events(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def few(self) -> bool:
        """Whether what is read is so little that the driver can do that, and one partition is best."""
        return self.events < FEW_EVENTS

    @property
    def many(self) -> bool:
        """Whether they are so many that several tasks should share even an answer; the tables of the days before may
        have many rows, too.
        """
        return self.all_events >= MANY_EVENTS


@dataclass(frozen=True, slots=True)
class Known:
    """The days of a dump that an output folder has already: their hours in its tables, and what `ByDay` keeps."""

    hours: AbstractSet[date] = frozenset()
    values: AbstractSet[date] = frozenset()


def reading(dump: Dump, first: date, last: date, question: Question, known: Known) -> Reading:
    """What a question that is asked for these days reads."""
    since, until = _span(dump, first, last, question)
    begin = _moved(first, -question.whole.days)
    files = dump.between(since, until)
    last_ms = _last_ms(files)
    before = {file.day for file in files if file.day < first}
    near = {day for day in before if day >= begin}
    valued = frozenset(_of_one_week(near & known.values, last_ms)) if question.by_day else frozenset()
    answered: frozenset[date] = frozenset()
    if question.by_hour:
        answered = frozenset(known.hours & ((before - near) | valued))
        valued &= answered
    read = tuple(file for file in files if file.day not in answered | valued)
    return Reading(read, answered, valued, last_ms, sum(file.rows for file in files))


@contextmanager
def histories(spark: SparkSession, dump: Dump, tables: Folder) -> Iterator[Callable[[Reading], History]]:
    """Yields a function that gives a question its history; questions that read the same files share one. If there are
    few events, the driver reads them and Spark keeps them, because to open the many files takes longer than the rest.
    Several threads may call it.
    """

    def whole(wanted: Reading) -> History:
        if wanted.few:
            events = read_few(spark, dump, wanted.files).coalesce(1)  # then nothing has to be shuffled
        else:
            events = read_files(spark, dump, wanted.files)
        history = History(events, _last_ms(wanted.files), wanted.events, many=wanted.many)
        found.append(history)
        if wanted.few:
            history.keep(history.events)
        return history

    def history_of(wanted: Reading) -> History:
        history = once.get(wanted.files, lambda: whole(wanted))
        if wanted.answered:
            history = once.get((wanted.files, wanted.answered), partial(after, history, wanted))
        if wanted.valued:
            history = history.beside(once.get((wanted.files, wanted.valued, "kept"), partial(days, history, wanted)))
        return history

    def after(history: History, wanted: Reading) -> History:
        return history.after(hours(spark, tables, wanted.answered), wanted.last_ms)

    def days(history: History, wanted: Reading) -> KeptDays:
        return KeptDays(history.keep(kept(spark, tables, wanted.valued)))

    once = Once()
    found: list[History] = []
    try:
        yield history_of
    finally:
        with suppress(*SPARK_ERRORS):  # the Java process has ended, and what it kept with it
            for history in found:
                history.forget()


def events_to_read(dump: Dump, first: date, last: date, questions: Mapping[str, Question], known: Known) -> int:
    """How many events the question that reads most of them reads."""
    return max((reading(dump, first, last, question, known).events for question in questions.values()), default=0)


def _span(dump: Dump, first: date, last: date, question: Question) -> tuple[date, date]:
    """The days whose events a question gets."""
    days = [file.day for file in dump.files]
    since, until = _moved(first, -question.lookback.days), _moved(last, question.lookahead.days)
    return max(since, min(days)), min(until, max(days))


def _of_one_week(days: AbstractSet[date], last_ms: int | None) -> set[date]:
    """Those of which what is kept tells in which week it was; none if it is not known when the weeks end."""
    return set() if last_ms is None else {day for day in days if not is_split(day, last_ms)}


def _last_ms(files: Sequence[GoodFile]) -> int | None:
    """When the last event of these files finished, if their footers say so."""
    found = [file.last_ms for file in files]
    return None if None in found else max((last for last in found if last is not None), default=None)


def _moved(day: date, days: int) -> date:
    return date.fromordinal(min(max(day.toordinal() + days, date.min.toordinal()), date.max.toordinal()))
