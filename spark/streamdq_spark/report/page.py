"""The report: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

from jinja2 import Environment, PackageLoader, StrictUndefined

from streamdq.process.logs import visible
from streamdq.schedules.civil import zone

from ..summary import Summary
from .budget import budget
from .capacity import capacity
from .causes import causes
from .compared import compared
from .cost import cost
from .do_this import do_this
from .errors import errors, hosts
from .failures import advice, dead_letters, duplicates, retries
from .flows import flows
from .headline import tiles, unusual, worse_and_better
from .load import anomalies, forecast, throughput, workers
from .parts import Colours, Section, TableRow, Tables
from .timing import punctuality, time_to_finish
from .todo import Settings
from .words import day, number

TABLES = (
    "punctuality", "punctuality_topics", "lateness_causes", "throughput", "retries", "dead_letters", "time_to_finish",
    "workers", "duplicates", "cost_by_topic", "cost_by_key", "advice", "anomalies", "incidents", "forecast",
    "forecast_accuracy", "changes", "capacity", "budget", "budget_incidents", "errors", "error_classes", "hosts",
    "flows", "compared",
)  # fmt: skip
_WITH_TOPICS = ("throughput", "punctuality_topics", "advice", "cost_by_topic", "forecast")
"""The first of them that exists tells which topics are the largest."""
MOST_TO_DO = 3
MOST_FOLDED = 25


@dataclass(frozen=True, slots=True)
class About:
    """What the analysis covered, and what else the page says. `settings`: of the topics today, if Redis was asked;
    `page`: the URL of the operations page, to which ids lead.
    """

    summary: Summary
    made_at: datetime
    settings: Settings | None = None
    page: str = ""

    @property
    def days(self) -> str:
        first, last = self.summary.first_day, self.summary.last_day
        return f"{first}" if first == last else f"{first} to {last}"

    @property
    def span(self) -> str:
        first, last = (
            day(datetime.combine(at, time.min, UTC)) for at in (self.summary.first_day, self.summary.last_day)
        )
        return first if first == last else f"{first} to {last}"


def render(tables: Tables, about: About) -> str:
    """The page, from the rows of tables named as in TABLES. Parts whose table is missing are left out. Characters that
    would turn the text around them, as may be in names, are shown as escapes.
    """
    environment = Environment(
        loader=PackageLoader("streamdq_spark.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    covered = about.summary
    tables = {name: _in_zone(rows, zone(covered.tz)) for name, rows in tables.items()}
    worse, better, unknown = worse_and_better(tables)
    sections = _sections(tables, about)
    page = environment.get_template("page.html").render(
        about=about,
        covered=covered,
        events=number(covered.events),
        made_at=f"{about.made_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        todo=do_this(tables, about.settings, covered.slo_ms),
        most_to_do=MOST_TO_DO,
        most_folded=MOST_FOLDED,
        asked=about.settings is not None,
        tiles=tiles(tables, covered.slo_ms, covered.objective),
        worse=worse,
        better=better,
        unknown=unknown,
        unusual=unusual(tables),
        chapters=[
            (title, [section for section in sections if (section.id in ids) == (title == "What is coming")])
            for title, ids in (("What happened", _COMING), ("What is coming", _COMING))
        ],
    )
    return visible(page)


_COMING = {"forecast", "capacity"}


def _in_zone(rows: Sequence[TableRow], tz: ZoneInfo) -> list[TableRow]:
    """With times by the clocks of the zone. Each has its offset and not the zone: Python takes times of the same zone
    for equal if its clocks show the same, which they do twice in the night in which they are set back.
    """

    def local(at: datetime) -> datetime:
        own = at.astimezone(tz)
        return own.replace(tzinfo=timezone(own.utcoffset() or timedelta(0)))

    times = [name for name, value in rows[0].items() if name in _TIMES] if rows else []
    if not times:
        return list(rows)
    return [{**row, **{name: local(row[name]) for name in times if row[name] is not None}} for row in rows]


_TIMES = {"hour", "first_hour", "last_hour", "first", "last"}  # a day is UTC's


def _sections(tables: Tables, about: About) -> list[Section]:
    """The sections whose tables exist, in the order of the page."""
    slo_ms, objective, tz = about.summary.slo_ms, about.summary.objective, about.summary.tz
    whole = {name: tables.get(name, ()) for name in TABLES}
    colours = Colours.of(next((rows for name in _WITH_TOPICS if (rows := whole[name])), ()))
    sections: dict[str, Callable[[], Section]] = {
        "throughput": lambda: throughput(whole, colours),
        "punctuality_topics": lambda: punctuality(whole, slo_ms, objective, colours),
        "budget": lambda: budget(whole, slo_ms, objective, colours),
        "lateness_causes": lambda: causes(whole, objective),
        "forecast": lambda: forecast(whole, tz, colours),
        "capacity": lambda: capacity(whole, slo_ms, objective, colours),
        "anomalies": lambda: anomalies(whole, tz),
        "advice": lambda: advice(whole, about.settings),
        "retries": lambda: retries(whole),
        "errors": lambda: errors(whole, about.page),
        "dead_letters": lambda: dead_letters(whole, about.page, colours),
        "time_to_finish": lambda: time_to_finish(whole, colours),
        "flows": lambda: flows(whole, colours),
        "workers": lambda: workers(whole),
        "hosts": lambda: hosts(whole),
        "duplicates": lambda: duplicates(whole, about.page, colours),
        "cost_by_topic": lambda: cost(whole, colours),
    }
    found = [make() for name, make in sections.items() if name in tables]
    spans = about.summary.compare
    return [compared(whole, spans), *found] if spans else found
