"""From a dump to its tables: answers every requested question for the requested days."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import NormalDist

import pyarrow as pa
import pyarrow.compute as pc

from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import EVENTS
from streamdq.dump.open_folder import open_folder
from streamdq.errors import InvalidInput
from streamdq.schedules.civil import zone

from . import measured
from .dump_files import Dump, GoodFile, open_dump, read_file
from .engines.base import Answers, Engine, Work
from .facts import Facts
from .measures import BUDGET_DAYS, BURN_LIMITS, BUSY, DEFAULT_TZ, MIN_LATE, OBJECTIVE, SLO_MS
from .questions import COMPARED, QUESTIONS, READ, Statement, Value, event_columns, needed, tables
from .side_by_side import Tell, side_by_side
from .spans import Span
from .summary import SUMMARY, Summary
from .table_files import write_table
from .waiting import Waiting

_FIRST = ("punctuality", "workers", "time_to_finish", "capacity")
"""Each makes a pass over the events that others rest on: so that these do not wait for the same one."""
_DAYS_BEFORE, _DAYS_AFTER = 14, 2
"""The days before of which events are read, for the answers about the last two weeks, and those after, in which
attempts of the last day may end.
"""
_HOURS_BEFORE = 93
"""So many days before, hours are looked at. A forecast takes 92: so that two earlier month starts can be compared with
usual days. Incidents take 74: eight weeks and the day that begins them, the seven days that tell the level, the seven
in which hours are compared with it, and two more, as windows and days by the clock reach further.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked dump, the days to analyze, where the tables go, what counts as on time, by whose clocks hours are
    compared, which time spans are, if any, and which days are holidays.
    """

    dump: Dump
    first_day: date
    last_day: date
    target: Folder
    slo_ms: int = SLO_MS
    objective: float = OBJECTIVE
    tz: str = DEFAULT_TZ
    compare: tuple[Span, Span] | None = None
    holidays: tuple[date, ...] = ()


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
    holidays: Sequence[date] = (),
) -> Plan:
    """The plan of an analysis, checked as far as that is possible without Spark.

    The days are those from `first_day` to `last_day`, both included; None: as far as the dump goes. `quarantine`: bad
    files are left out and counted. `slo_ms`: an attempt that starts within it is on time; `objective`: the share that
    is to be, below 1, so that there is a budget. `tz`: the time zone by whose clocks hours are the same hour of a week.
    `compare`: two time spans within these days, ``A..B``, for the table ``compared``. `holidays`: past and coming ones,
    for the forecast.

    Raises:
        InvalidInput: a folder that can't be used or holds tables of another namespace, SLO or time zone, no such zone,
            no events in these days, or a time span that is none or is not within them.
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
    dump = open_dump(input, quarantine=quarantine)
    measured.check(target, slo_ms, objective, tz, dump.manifest.namespace)
    days = _days(dump, first_day, last_day)
    return Plan(dump, *days, target, slo_ms, objective, tz, _spans(compare, *days), tuple(holidays))


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


def chosen(names: Collection[str], *, compare: bool = False) -> tuple[str, ...]:
    """The tables with these names; all if none is given. `compare`: there are time spans to compare, which is one more.

    Raises:
        InvalidInput: there is no such table.
    """
    if unknown := [name for name in names if name not in QUESTIONS]:
        raise InvalidInput(f"no table {unknown[0]!r}; tables are {', '.join(QUESTIONS)}")
    found = tuple(name for name in QUESTIONS if name in names or not names)
    return (*found, COMPARED) if compare else found


def analyze(
    engine: Engine,
    plan: Plan,
    *,
    waiting: Waiting | None = None,
    questions: Sequence[str] = QUESTIONS,
    progress: Tell | None = None,
) -> Summary:
    """Calculates these tables. Idempotent; other days of the tables stay. `progress` is called in several threads, one
    after another.

    What a crash leaves: some tables new and some old, and the summary of the run before.

    Raises:
        BadDump: a file could not be read.
        FolderBusy: another analysis writes its tables there.
        FolderError: the output can't be written to.
        AnalysisError: the engine failed during the work, or can't reach a folder.
        InvalidInput: the output holds tables of another namespace, SLO or time zone by now.
    """
    engine.check(plan.dump.folder, plan.target)
    own = plan.slo_ms, plan.objective, plan.tz, plan.dump.manifest.namespace
    with _alone(plan.target):
        measured.check(plan.target, *own)  # again: another analysis may have written there since the plan was made
        measured.note(plan.target, *own)
        return _analyze(engine, plan, waiting, questions, progress)


def _alone(target: Folder) -> AbstractContextManager[None]:
    """Keeps other analyses out: two that replace the same days at once would leave rows of both."""
    return target.lock("analysis", "another analysis")


def _analyze(
    engine: Engine, plan: Plan, waiting: Waiting | None, questions: Sequence[str], progress: Tell | None
) -> Summary:
    dump, first, last = plan.dump, plan.first_day, plan.last_day
    covered = dump.between(first, last)
    set_aside = sum(file.impossible for file in covered)
    events = sum(file.rows for file in covered) - set_aside
    summary = Summary(first, last, events, len(covered), _lost(dump), _resets(dump), dump.unlisted, dump.bad)
    summary.slo_ms, summary.objective, summary.tz = plan.slo_ms, plan.objective, plan.tz
    summary.set_aside = set_aside + dump.set_aside
    summary.compare = (plan.compare[0].text, plan.compare[1].text) if plan.compare else None
    facts = _facts(plan)
    read = _Read.of(plan, questions, facts)
    work = Work(dump, read.files, read.columns, _values(plan, waiting), facts.rows(read.known), _waiting(waiting))
    with engine.answers(work) as answers:
        counted = side_by_side(_pieces(answers, plan, questions), engine.at_once, progress)
        facts.keep({name: answers.rows(name) for name in read.fresh}, read.fresh)
    summary.tables = {name: counted[name] for name in questions}
    plan.target.write(SUMMARY, json.dumps(summary.as_json(), indent=2).encode() + b"\n")
    return summary


def _pieces(answers: Answers, plan: Plan, questions: Sequence[str]) -> dict[str, Callable[[], int]]:
    order = [*(name for name in _FIRST if name in questions), *(name for name in questions if name not in _FIRST)]

    def answer(name: str) -> int:
        table = tables()[name]
        rows = _with_moments(table, answers.rows(name))
        return write_table(plan.target, name, rows, plan.first_day, plan.last_day, table.day)

    return {name: partial(answer, name) for name in order}


def _with_moments(table: Statement, rows: pa.Table) -> pa.Table:
    """With times as such, which are in ms."""
    for name, kind in table.columns.items():
        if kind == "time":
            moment = rows[name].cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
            rows = rows.set_column(rows.schema.get_field_index(name), name, moment)
    return rows


def events_to_read(plan: Plan, questions: Sequence[str] = QUESTIONS) -> int:
    """How many events an analysis reads."""
    files = _Read.of(plan, questions, _facts(plan)).files.values()
    return sum(file.rows for file in {file.path: file for own in files for file in own}.values())


def _facts(plan: Plan) -> Facts:
    return Facts(plan.target, plan.dump.files, plan.slo_ms)


@dataclass(frozen=True, slots=True)
class _Read:
    """What these tables need: `files`: by the names of `questions.READ`; `columns`: of the events; `known`: the days of
    kept views that come from the fact table; `fresh`: those that are counted.
    """

    files: dict[str, tuple[GoodFile, ...]]
    columns: tuple[str, ...]
    known: dict[str, frozenset[date]]
    fresh: dict[str, frozenset[date]]

    @classmethod
    def of(cls, plan: Plan, questions: Sequence[str], facts: Facts) -> _Read:
        statements = [*(tables()[name] for name in questions), *needed(*questions)]
        found = cls({}, event_columns(statements), {}, {})
        for source in READ:
            if users := [statement for statement in statements if source in statement.sources]:
                found._add(source, plan, users, facts)
        return found

    def _add(self, source: str, plan: Plan, users: Sequence[Statement], facts: Facts) -> None:
        since, until = _window(source, plan)
        before = plan.first_day - timedelta(days=1)
        known = [facts.known(user.name, since, before) if user.kept else frozenset() for user in users]
        common = frozenset.intersection(*known)
        self.files[source] = tuple(file for file in plan.dump.between(since, until) if file.day not in common)
        for user in users:
            if user.kept:
                self.known[user.name] = common
                self.fresh[user.name] = frozenset(file.day for file in self.files[source])


def _window(source: str, plan: Plan) -> tuple[date, date]:
    first, last = plan.first_day, plan.last_day
    if source == "ended":
        return first, _moved(last, _DAYS_AFTER)
    if source == "lately":  # there may be days without events at the end
        return _moved(max(file.day for file in plan.dump.files if file.day <= last), -_DAYS_BEFORE), last
    return _moved(first, -{"asked": 0, "recent": _DAYS_BEFORE, "earlier": _HOURS_BEFORE}[source]), last


def _moved(day: date, days: int) -> date:
    return date.fromordinal(min(max(day.toordinal() + days, date.min.toordinal()), date.max.toordinal()))


def _values(plan: Plan, waiting: Waiting | None) -> dict[str, Value]:
    """Of the parameters of the questions."""
    last_ms = _last_ms(plan)
    first_hour, end_hour = (_hour(_ms(day)) for day in (plan.first_day, plan.last_day + timedelta(days=1)))
    goes_on = any(file.day > plan.last_day for file in plan.dump.files)
    now_ms = round(waiting.asked_at.timestamp() * 1000) if waiting else last_ms
    values: dict[str, Value] = {
        "slo_ms": plan.slo_ms, "objective": plan.objective, "tz": plan.tz, "asked": waiting is not None,
        "objective_z": max(0.0, NormalDist().inv_cdf(plan.objective)), "busy": BUSY, "min_late": MIN_LATE,
        "budget_days": BUDGET_DAYS, "page_1h": BURN_LIMITS["burn_1h"], "page_6h": BURN_LIMITS["burn_6h"],
        "ticket_3d": BURN_LIMITS["burn_3d"], "first_hour": first_hour, "end_hour": end_hour, "last_ms": last_ms,
        "last_hour": _hour(last_ms), "now_ms": now_ms, "now_hour": _hour(now_ms),
        "open_hour": end_hour if goes_on else _hour(last_ms),  # the first that may go on
        "holidays": day_list(plan.holidays),
        "budget_hour": end_hour - 1 if goes_on else _hour(last_ms),
    }  # fmt: skip
    if plan.compare:
        before, after = plan.compare
        values |= {
            "before_since": before.since, "before_until": before.until, "after_since": after.since,
            "after_until": after.until,
        }  # fmt: skip
    return values


def day_list(days: Iterable[date]) -> str:
    """As the questions search it: the numbers of days since 1970, each between commas."""
    return "".join(f",{(day - date(1970, 1, 1)).days}" for day in days) + ","


def _last_ms(plan: Plan) -> int:
    """When the last event finished, of the days that are asked for and those before."""
    last = max(file.day for file in plan.dump.files if file.day <= plan.last_day)
    files = plan.dump.between(last, last)
    return max(_last_of(plan.dump.folder, file) if file.last_ms is None else file.last_ms for file in files)


def _last_of(folder: Folder, file: GoodFile) -> int:
    """Of a file whose footer does not say."""
    last: datetime = pc.max(read_file(folder, file)["finished"]).as_py()
    return round(last.timestamp() * 1000)


def _ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000


def _hour(ms: int) -> int:
    return ms // 3_600_000


def _waiting(waiting: Waiting | None) -> pa.Table:
    rows = waiting.rows if waiting else []
    return pa.table(
        {
            "topic": pa.array([topic for topic, _, _ in rows], pa.string()),
            "hour": pa.array([_hour(round(hour.timestamp() * 1000)) for _, hour, _ in rows], pa.int64()),
            "jobs": pa.array([jobs for _, _, jobs in rows], pa.int64()),
        }
    )


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
