"""From a dump to its tables: answers every requested question for the requested days."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import EVENTS
from streamdq.dump.open_folder import open_folder
from streamdq.errors import InvalidInput
from streamdq.schedules.civil import zone

from . import day_values, measured, reading
from .answered import HOURS
from .day_values import VALUES
from .dump_files import Dump, open_dump
from .failures import spark_errors
from .measures import DEFAULT_TZ, OBJECTIVE, SLO_MS
from .places import check_reach
from .questions import COMPARED, QUESTIONS, Context, Question, Span, beside_waiting
from .reading import Known
from .side_by_side import Tell, side_by_side
from .summary import SUMMARY, Summary
from .tables import of_days, write_table
from .waiting import Waiting

_AT_ONCE = min(4, os.cpu_count() or 1)
"""So many questions are asked at once: while one is planned, which takes one core, the tasks of another run. As many
tasks run as there are cores, so it needs no more memory.
"""
_FIRST = ("punctuality", "workers", "time_to_finish", "capacity")
"""Each makes a pass over the events that others rest on: so that these do not wait for the same one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked dump, the days to analyze, where the tables go, what counts as on time, by whose clocks hours are
    compared, and which time spans are, if any.
    """

    dump: Dump
    first_day: date
    last_day: date
    target: Folder
    slo_ms: int = SLO_MS
    objective: float = OBJECTIVE
    tz: str = DEFAULT_TZ
    compare: tuple[Span, Span] | None = None


def plan(
    input: str,
    output: str,
    first_day: date | None = None,
    last_day: date | None = None,
    *,
    quarantine: bool = False,
    slo_ms: int = SLO_MS,
    objective: float = OBJECTIVE,
    tz: str = DEFAULT_TZ,
    compare: tuple[str, str] | None = None,
) -> Plan:
    """The plan of an analysis, checked as far as that is possible without Spark.

    The days are those from `first_day` to `last_day`, both included; None: as far as the dump goes. `quarantine`: bad
    files are left out and counted. `slo_ms`: an attempt that starts within it is on time; `objective`: the share that
    is to be, below 1, so that there is a budget. `tz`: the time zone by whose clocks hours are the same hour of a week.
    `compare`: two time spans within these days, ``A..B``, for the table ``compared``.

    Raises:
        InvalidInput: a folder that can't be used or holds tables of another SLO or time zone, no such zone, no
            events in these days, or a time span that is none or is not within them.
        BadDump: the dump holds a bad file and `quarantine` is off.
    """
    if first_day and last_day and last_day < first_day:
        raise InvalidInput(f"--to {last_day} is before --from {first_day}")
    if date.max in (first_day, last_day):
        raise InvalidInput(f"no day follows {date.max}: leave out --to for the dump's last day")
    if slo_ms < 1 or not 0 < objective < 1:
        raise InvalidInput(
            f"an SLO of {slo_ms} ms for {objective:.9g} of the attempts: 1 ms or more, and a share below 1"
        )
    zone(tz)
    target = _target(input, output)
    measured.check(target, slo_ms, objective, tz)
    dump = open_dump(input, quarantine=quarantine)
    days = _days(dump, first_day, last_day)
    return Plan(dump, *days, target, slo_ms, objective, tz, _spans(compare, *days))


def _spans(compare: tuple[str, str] | None, first: date, last: date) -> tuple[Span, Span] | None:
    if compare is None:
        return None
    begin, end = Span.parse(f"{first}..{first}").since, Span.parse(f"{last}..{last}").until
    one, other = Span.parse(compare[0]), Span.parse(compare[1])
    for span in (one, other):
        if span.since < begin or span.until > end:
            raise InvalidInput(f"compare: {span.text} is not within the days that are analysed, {first} to {last}")
    if one.since < other.until and other.since < one.until:
        raise InvalidInput(f"compare: {one.text} and {other.text} overlap")
    return one, other


def check_output(plan: Plan) -> None:
    """Checks the output folder before Spark starts, and creates it.

    Raises:
        FolderBusy: another analysis writes its tables there.
        FolderError: it can't be written to.
    """
    with _alone(plan.target):
        pass


def chosen(names: Collection[str], *, compare: bool = False) -> dict[str, Question]:
    """The questions with these names; all if none is given. `compare`: there are time spans to compare, which is one
    more.

    Raises:
        InvalidInput: there is no such question.
    """
    if unknown := [name for name in names if name not in QUESTIONS]:
        raise InvalidInput(f"no table {unknown[0]!r}; tables are {', '.join(QUESTIONS)}")
    found = {name: question for name, question in QUESTIONS.items() if name in names or not names}
    return found | ({COMPARED.name: COMPARED} if compare else {})


def analyze(
    spark: SparkSession,
    plan: Plan,
    *,
    waiting: Waiting | None = None,
    questions: Mapping[str, Question] = QUESTIONS,
    progress: Tell | None = None,
) -> Summary:
    """Answers the questions, one table each. Idempotent; other days of the tables stay. `progress` is called in several
    threads, one after another.

    What a crash leaves: some tables new and some old, and the summary of the run before.

    Raises:
        BadDump: Spark could not read a file.
        FolderBusy: another analysis writes its tables there.
        FolderError: the output can't be written to.
        AnalysisError: Spark can't reach a folder.
        SparkFailed: Spark failed during the work.
        InvalidInput: the output holds tables of another SLO or time zone by now.
    """
    for folder in (plan.dump.folder, plan.target):
        with spark_errors(folder.url):
            check_reach(spark, folder)
    own = plan.slo_ms, plan.objective, plan.tz
    with _alone(plan.target):
        measured.check(plan.target, *own)  # again: another analysis may have written there since the plan was made
        measured.note(plan.target, *own)
        return _analyze(spark, plan, waiting, questions, progress)


def _alone(target: Folder) -> AbstractContextManager[None]:
    """Keeps other analyses out: two that replace the same days at once would leave rows of both."""
    return target.lock("analysis", "another analysis")


def _analyze(
    spark: SparkSession,
    plan: Plan,
    waiting: Waiting | None,
    questions: Mapping[str, Question],
    progress: Tell | None,
) -> Summary:
    dump, first, last = plan.dump, plan.first_day, plan.last_day
    covered = dump.between(first, last)
    events = sum(file.rows for file in covered)
    summary = Summary(first, last, events, len(covered), _lost(dump), _resets(dump), dump.unlisted, dump.bad)
    summary.slo_ms, summary.objective, summary.tz = plan.slo_ms, plan.objective, plan.tz
    summary.compare = (plan.compare[0].text, plan.compare[1].text) if plan.compare else None
    goes_on = any(file.day > last for file in dump.files)
    with spark_errors("what waits in Redis"):
        asked = _waiting(spark, waiting)
        context = Context(first, last, *asked, plan.slo_ms, plan.objective, plan.tz, plan.compare, goes_on)
    known = _known(plan)
    tells_hours = questions.keys() & HOURS.needed
    if tells_hours:
        HOURS.forget(plan.target, lambda day: str(first) <= day <= str(last))
    summary.tables = _answer(spark, plan, context, _asked(questions, waiting), known, progress)
    plan.target.write(SUMMARY, json.dumps(summary.as_json(), indent=2).encode() + b"\n")
    if tells_hours == HOURS.needed:
        HOURS.remember(plan.target, covered, plan.slo_ms)
    return summary


def _answer(
    spark: SparkSession,
    plan: Plan,
    context: Context,
    questions: Mapping[str, Question],
    known: Known,
    progress: Tell | None,
) -> dict[str, int]:
    """Writes the tables, and returns how many rows they have."""
    dump, first, last = plan.dump, plan.first_day, plan.last_day
    with reading.histories(spark, dump, plan.target) as read:

        def write(question: Question) -> int:
            with spark_errors(question.name):
                wanted = reading.reading(dump, first, last, question, known)
                rows = of_days(question.answer(read(wanted), context), question.day, first, last)
                return write_table(rows, plan.target, question.name, first, last, few=not wanted.many)

        def keep() -> int:
            with spark_errors("what is kept of each day"):
                wanted = reading.reading(dump, first, last, questions["hosts"], known)
                day_values.keep(read(wanted), plan.target, wanted.files, known.values, plan.slo_ms, wanted.valued)
            return 0

        order = [*(name for name in _FIRST if name in questions), *(name for name in questions if name not in _FIRST)]
        work: dict[str, Callable[[], int]] = {name: partial(write, questions[name]) for name in order}
        if questions.keys() >= VALUES.needed:
            work["values by day"] = keep  # last, when most of it has been computed for the tables
        counted = side_by_side(work, _AT_ONCE, progress)
    return {name: counted[name] for name in questions}


def events_to_read(plan: Plan, questions: Mapping[str, Question] = QUESTIONS, waiting: Waiting | None = None) -> int:
    """How many events the question that reads most of them reads."""
    asked = _asked(questions, waiting)
    return reading.events_to_read(plan.dump, plan.first_day, plan.last_day, asked, _known(plan))


def _asked(questions: Mapping[str, Question], waiting: Waiting | None) -> Mapping[str, Question]:
    return questions if waiting is None else beside_waiting(questions)


def _known(plan: Plan) -> Known:
    of_plan = plan.target, plan.dump, plan.slo_ms
    return Known(HOURS.days(*of_plan), VALUES.days(*of_plan))


def _lost(dump: Dump) -> int:
    return sum(mark.lost for mark in dump.manifest.streams) + dump.manifest.unreadable


def _resets(dump: Dump) -> int:
    return sum(mark.resets for mark in dump.manifest.streams)


def _target(input: str, output: str) -> Folder:
    if not output.strip():
        raise InvalidInput("the output is blank: pass a folder or a URL")
    source, target = open_folder(input), open_folder(output)
    if _is_inside(source, target):
        raise InvalidInput(f"the output {output} is inside the dump: use another folder")
    if isinstance(target, LocalFolder) and target.root.exists() and not target.root.is_dir():
        raise InvalidInput(f"the output {output} is a file: pass a folder")
    return target


def _is_inside(source: Folder, target: Folder) -> bool:
    """Whether tables there would lie among the events, whatever the folders are called."""
    if isinstance(source, LocalFolder) and isinstance(target, LocalFolder):
        dump, tables = (Path(os.path.realpath(folder.root)) for folder in (source, target))
        return tables == dump or tables.is_relative_to(dump / EVENTS)
    return target.url == source.url or f"{target.url}/".startswith(f"{source.full(EVENTS)}/")


def _days(dump: Dump, first: date | None, last: date | None) -> tuple[date, date]:
    """The requested days, limited to those with events."""
    days = [file.day for file in dump.files]
    asked = [day for day in days if (not first or day >= first) and (not last or day <= last)]
    if not asked:
        held = f"it holds {min(days)} to {max(days)}" if days else "it holds none at all"
        raise InvalidInput(f"the dump {dump.folder.url} has no events on the requested days: {held}")
    _check_follows(dump, asked)
    return first or min(asked), last or max(asked)


def _check_follows(dump: Dump, days: Collection[date]) -> None:
    """An analysis needs the day after each."""
    if max(days) == date.max:
        raise InvalidInput(
            f"the dump {dump.folder.url} has events of {date.max}, which no day follows, as of a clock that was wrong: "
            f"leave them out with --to {max((day for day in days if day < date.max), default='YYYY-MM-DD')}"
        )


def _waiting(spark: SparkSession, waiting: Waiting | None) -> tuple[DataFrame | None, datetime | None]:
    if waiting is None:
        return None, None
    return spark.createDataFrame(waiting.rows, "topic string, due_hour timestamp, jobs long"), waiting.asked_at
