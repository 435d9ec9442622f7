"""``python -m benchmarks.spark_methods``: how good the forecast and the search for unusual hours are.

Both are asked of made-up hours of which it is known what should be said: 13 weeks with a rhythm of days and weeks, the
chance of counts, and 5 % more from hour to hour. The forecast's figures are those of its own test, the table
`forecast_accuracy`. Into the last four weeks an incident a week is put, at random hours: how many of them are found,
and how many of the incidents found are such. Clocks are changed eight days before the end.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table as RichTable

from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import Manifest
from streamdq.schedules.civil import zone
from streamdq.terminal import table
from streamdq_spark.analysis import day_list
from streamdq_spark.dump_files import Dump
from streamdq_spark.engines.base import Work
from streamdq_spark.engines.duck import DuckDB
from streamdq_spark.facts import as_facts
from streamdq_spark.questions import READ, event_columns, views

DAY_H, WEEK_H = 24, 7 * 24
FIRST = int(datetime(2026, 1, 5, tzinfo=UTC).timestamp()) // 3600
WEEKS, JUDGED_WEEKS = 13, 4
LAST = FIRST + WEEKS * WEEK_H
PARIS = "Europe/Paris"
BY_HOUR = (2, 1, 1, 1, 1, 2, 4, 7, 10, 12, 13, 14, 15, 14, 13, 13, 14, 16, 18, 20, 19, 14, 8, 4)
BY_DAY = (10, 10, 10, 11, 13, 16, 14)
FAILED, LATE = 0.02, 0.002
VARIES = 0.05
SEEDS = 10
HOLIDAYS = tuple(date(2026, *day) for day in ((2, 16), (4, 3)))
CAMPAIGN, MONTH_START, HOLIDAY, BATCH = 3.0, 3.0, 0.3, 1000


@dataclass(frozen=True, slots=True)
class Scenario:
    """`per_hour`: on average, at the end. `growth`: a week. `lasts`: hours of each incident, in which `times` as much
    comes, or attempts fail with the chance `failed`, or start late with `late`. `for_good`: the last one never ends.
    """

    name: str
    per_hour: int = 200
    growth: float = 0.0
    rhythm: bool = True
    local: bool = False  # whether people's clocks make the rhythm
    tz: str = "UTC"
    lasts: int = 0
    times: float = 1.0
    failed: float = FAILED
    late: float = LATE
    for_good: bool = False
    odd: str = ""  # a kind of odd days, of ODD


FORECASTS = (
    Scenario("steady"),
    Scenario("+10 % a week", growth=0.1),
    Scenario("-10 % a week", growth=-0.1),
    Scenario("+30 % a week", growth=0.3),
    Scenario("clocks changed, --tz", local=True, tz=PARIS),
    Scenario("clocks changed, UTC", local=True),
    Scenario("campaign", odd="campaign"),
    Scenario("month start", odd="month start"),
    Scenario("holiday", odd="holiday"),
    Scenario("first holiday", odd="first holiday"),
    Scenario("shifted batch", per_hour=40, odd="batch"),
    Scenario("shifted weekly batch", per_hour=40, odd="weekly batch"),
)
UNSURE = ("clocks changed, UTC", "shifted weekly batch")
"""Forecasts that are measured, without a limit."""
SLIGHT = (
    Scenario("30 % less, 6 h", lasts=6, times=0.7),
    Scenario("failures 2 → 6 %, 6 h", lasts=6, failed=0.06),
    Scenario("failures 2 → 20 %, 6 h, of 20 on average", per_hour=20, lasts=6, failed=0.2),
)
"""Too slight to be found always, above all at night: how many of them are to be found is in LEAST."""
LEAST = dict(zip((scenario.name for scenario in SLIGHT), (0.7, 0.8, 0.7), strict=True))
QUIET = FORECASTS[:5]
MOVED = Scenario("batch an hour later", per_hour=40, odd="moved batch", for_good=True)
INCIDENTS = (
    *QUIET,
    FORECASTS[5],
    MOVED,
    Scenario("outage, 3 h", lasts=3, times=0.0),
    Scenario("half as much, 3 h", lasts=3, times=0.5),
    Scenario("twice as much, 3 h", lasts=3, times=2.0),
    Scenario("failures 2 → 10 %, 3 h", lasts=3, failed=0.1),
    Scenario("late 0.2 → 20 %, 3 h", lasts=3, late=0.2),
    *SLIGHT,
    Scenario("outage, 1 h, of 20 an hour", per_hour=20, rhythm=False, lasts=1, times=0.0),
    Scenario("outage, 6 h, of 20 on average", per_hour=20, lasts=6, times=0.0),
    Scenario("twice as much for good", times=2.0, for_good=True),
    Scenario("half as much for good", times=0.5, for_good=True),
    Scenario("nothing more for good", times=0.0, for_good=True),
)
ALL = (*INCIDENTS, *FORECASTS[6:])


class Span(NamedTuple):
    first: int
    last: int
    measure: str = ""


@dataclass(slots=True)
class Figures:
    """Of all topics of a scenario. `put`: incidents that were put in, of which `found` were found. `found_all`: all
    that were found, of which `wrong` were not put in, and `after` begin more than a day after a lasting change.
    """

    hours: int = 0
    attempts: int = 0
    wrong_by: float = 0.0
    last_week_wrong_by: float = 0.0
    median_wrong_by: float = 0.0
    within: float = 0.0
    put: int = 0
    found: int = 0
    found_all: int = 0
    wrong: int = 0
    after: int = 0

    @property
    def error(self) -> float:
        return self.wrong_by / self.attempts

    @property
    def error_last_week(self) -> float:
        return self.last_week_wrong_by / self.attempts

    @property
    def error_median(self) -> float:
        return self.median_wrong_by / self.attempts

    @property
    def covered(self) -> float:
        return self.within / self.hours

    @property
    def recall(self) -> float | None:
        return self.found / self.put if self.put else None

    @property
    def precision(self) -> float | None:
        return 1 - self.wrong / self.found_all if self.put and self.found_all else None


def of_hours(hours: pa.Table, tz: str, holidays: Sequence[date] = ()) -> Work:
    """A history of which only the hours are known; those of the last weeks are asked for."""
    nothing = {"topic": pa.string(), "hour": pa.int64(), "jobs": pa.int64()}
    values: dict[str, Any] = {
        "slo_ms": 1000, "tz": tz, "asked": False, "first_hour": LAST - JUDGED_WEEKS * WEEK_H, "end_hour": LAST,
        "open_hour": LAST, "last_hour": LAST, "now_hour": LAST, "holidays": day_list(holidays),
    }  # fmt: skip
    folder = LocalFolder(Path("nowhere"))
    waiting = pa.schema(list(nothing.items())).empty_table()
    dump = Dump(folder, Manifest(namespace="methods", generation=1), 0)
    return Work(dump, dict.fromkeys(READ, ()), event_columns(views().values()), values, hours, waiting)


def made_up(scenario: Scenario, seed: int) -> tuple[dict[str, Any], list[Span]]:
    """The columns of a topic's hours, and where incidents were put."""
    chance = np.random.default_rng([seed, *scenario.name.encode()])
    at = np.arange(FIRST, LAST)
    clock = np.array([hour + _offset(hour) for hour in at.tolist()]) if scenario.local else at
    rhythm = np.array(BY_HOUR)[clock % DAY_H] / 10 * np.array(BY_DAY)[(clock - FIRST) // DAY_H % 7] / 12
    mean = scenario.per_hour * (rhythm if scenario.rhythm else np.ones(len(at)))
    mean = mean * (1 + scenario.growth) ** ((at - LAST) / WEEK_H) * np.exp(chance.normal(0, VARIES, len(at)))
    mean, odd = _with_odd_days(scenario, mean, at, chance)
    spans = [*_spans(scenario, chance), *odd]
    failed, late = np.full(len(at), FAILED), np.full(len(at), LATE)
    for span in spans:
        own = slice(span.first - FIRST, span.last + 1 - FIRST)
        mean[own] *= scenario.times
        failed[own], late[own] = scenario.failed, scenario.late
    attempts = chance.poisson(mean)
    of_failed = chance.binomial(attempts, failed)
    columns = {"day": at // DAY_H, "hour": at, "attempts": attempts, "firsts": attempts, "done": attempts - of_failed,
               "failed": of_failed, "failed_firsts": of_failed, "late": chance.binomial(attempts, late)}  # fmt: skip
    return {name: values[attempts > 0] for name, values in columns.items()}, spans


def _offset(hour: int) -> int:
    offset = datetime.fromtimestamp(hour * 3600, zone(PARIS)).utcoffset() or timedelta()
    return offset // timedelta(hours=1)


def _with_odd_days(scenario: Scenario, mean: Any, at: Any, chance: np.random.Generator) -> tuple[Any, list[Span]]:
    """The means with the scenario's odd days, and what is news of them."""
    day, news = at // DAY_H, []
    moves = int(chance.integers(3, JUDGED_WEEKS * 7 - 3))  # days before the end
    if scenario.odd == "campaign":
        mean = np.where(np.isin(day, LAST // DAY_H - moves + np.arange(2)), CAMPAIGN * mean, mean)
    elif scenario.odd == "month start":
        is_first = np.isin(day, [(date(2026, month, 1) - date(1970, 1, 1)).days for month in range(1, 6)])
        mean = np.where(is_first, MONTH_START * mean, mean)
    elif scenario.odd == "holiday":
        mean = np.where(np.isin(day, [_number(one) for one in HOLIDAYS]), HOLIDAY * mean, mean)
    elif scenario.odd == "first holiday":  # as a Sunday
        own = day == _number(HOLIDAYS[-1])
        sunday = np.roll(mean, -DAY_H * ((6 - HOLIDAYS[-1].weekday()) % 7))
        mean = np.where(own, sunday, mean)
    elif "batch" in scenario.odd:
        comes = (at - FIRST) // DAY_H % 7 == 0 if "weekly" in scenario.odd else np.ones(len(at), bool)
        then = LAST - moves * DAY_H
        mean = mean + BATCH * (comes & (at % DAY_H == np.where(at < then, 3, 4)))
        news = [Span(then + 3, LAST - 1)] if "moved" in scenario.odd else []
    return mean, news


def _number(day: date) -> int:
    return (day - date(1970, 1, 1)).days


def _median_forecast(columns: Mapping[str, Any], tz: str) -> float:
    """How wrong the median of the same hour of seven weeks is in the last 14 days, added up."""
    came = np.zeros(LAST - FIRST)
    came[columns["hour"] - FIRST] = columns["attempts"]
    shift = np.array([_offset(hour) if tz == PARIS else 0 for hour in range(FIRST, LAST)])
    wrong_by = 0.0
    for n in range(len(came) - 14 * DAY_H, len(came)):
        weeks = [n - k * WEEK_H + shift[n] - shift[n - k * WEEK_H] for k in range(1, 8)]
        wrong_by += abs(came[n] - float(np.median(came[weeks])))
    return wrong_by


def _spans(scenario: Scenario, chance: np.random.Generator) -> Iterator[Span]:
    if scenario.odd:
        return
    if scenario.for_good:
        yield Span(LAST - 2 * WEEK_H + int(chance.integers(WEEK_H)), LAST - 1)
    elif scenario.lasts:
        for week in range(JUDGED_WEEKS):
            first = LAST - (week + 1) * WEEK_H + int(chance.integers(DAY_H, WEEK_H - DAY_H))
            yield Span(first, first + scenario.lasts - 1)


def measure(scenarios: Sequence[Scenario] = ALL, seeds: int = SEEDS, first_seed: int = 0) -> dict[str, Figures]:
    """By the scenario's name. Each is so many topics, all of them in one history for each time zone and list of
    holidays. `first_seed`: limits are chosen with other seeds than those that are reported.
    """
    figures = {scenario.name: Figures() for scenario in scenarios}
    for tz, holidays in sorted({_options(scenario) for scenario in scenarios}):
        own = [scenario for scenario in scenarios if _options(scenario) == (tz, holidays)]
        made = {
            f"{s.name}|{seed}": made_up(s, seed)
            for s in own
            for seed in range(first_seed, first_seed + topics_of(s, seeds))
        }
        columns = [
            as_facts("hours", pa.table({"topic": [topic] * len(own["hour"]), **own}))
            for topic, (own, _) in made.items()
        ]
        work = of_hours(pa.concat_tables(columns), tz, holidays)
        with DuckDB().answers(work) as answers:
            accuracy, incidents = (answers.rows(name).to_pylist() for name in ("forecast_accuracy", "incidents"))
        for row in accuracy:
            _add_forecast(figures[row["topic"].split("|")[0]], row)
        found_all: dict[str, list[Span]] = {topic: [] for topic in made}
        for row in incidents:
            first, last = (row[name] // 3_600_000 for name in ("first_hour", "last_hour"))
            found_all[row["topic"]].append(Span(first, last, row["measure"]))
        for topic, (columns_of_topic, spans) in made.items():
            of_scenario = figures[topic.split("|")[0]]
            of_scenario.median_wrong_by += _median_forecast(columns_of_topic, tz)
            _add_incidents(of_scenario, spans, found_all[topic])
    return figures


def topics_of(scenario: Scenario, seeds: int) -> int:
    """More of those whose share that is found is a limit."""
    return 4 * seeds if scenario in SLIGHT else seeds


def _options(scenario: Scenario) -> tuple[str, tuple[date, ...]]:
    """The options of the analysis of its history."""
    holidays = {"holiday": HOLIDAYS, "first holiday": HOLIDAYS[-1:]}
    return scenario.tz, holidays.get(scenario.odd, ())


def _add_forecast(figures: Figures, row: Mapping[str, Any]) -> None:
    figures.hours += row["hours"]
    figures.attempts += row["attempts"]
    figures.wrong_by += (row["error"] or 0.0) * row["attempts"]
    figures.last_week_wrong_by += (row["error_last_week"] or 0.0) * row["attempts"]
    figures.within += row["covered"] * row["hours"]


def _add_incidents(figures: Figures, put: Sequence[Span], found_all: Sequence[Span]) -> None:
    """A lasting change is news for a day."""
    news = [Span(span.first, min(span.last, span.first + DAY_H)) for span in put]
    figures.put += len(put)
    figures.found += sum(any(_meet(span, one) for one in found_all) for span in news)
    wrong = [one for one in found_all if not any(_meet(span, one) for span in news)]
    figures.found_all += len(found_all)
    figures.wrong += len(wrong)
    later = [one for one in wrong if one.measure == "done"]
    figures.after += sum(any(span.first < one.first <= span.last for span in put) for one in later)


def _meet(a: Span, b: Span) -> bool:
    return a.first <= b.last and b.first <= a.last


def show(figures: Mapping[str, Figures], seeds: int) -> Iterator[RichTable]:
    columns = ("hours", "error", "of last week's hour", "of the median of weeks", "covered")
    made = table("scenario", *columns, numbers=columns, title="forecast, the last 14 days")
    for name in (scenario.name for scenario in FORECASTS if scenario.name in figures):
        f = figures[name]
        errors = (f"{error:.3f}" for error in (f.error, f.error_last_week, f.error_median))
        made.add_row(name, f"{f.hours:,}", *errors, f"{f.covered:.0%}")
    yield made
    counts = ("topic weeks", "put in", "found", "recall", "found in all", "wrong", "precision", "after a day")
    made = table("scenario", *counts, numbers=counts, title="incidents, the last 4 weeks")
    for scenario in (scenario for scenario in INCIDENTS if scenario.name in figures):
        name, f = scenario.name, figures[scenario.name]
        shares = ("–" if share is None else f"{share:.2f}" for share in (f.recall, f.precision))
        recall, precision = shares
        weeks = f"{topics_of(scenario, seeds) * JUDGED_WEEKS}"
        made.add_row(
            name, weeks, f"{f.put}", f"{f.found}", recall, f"{f.found_all}", f"{f.wrong}", precision, f"{f.after}"
        )
    yield made


def missed(figures: Mapping[str, Figures], seeds: int) -> list[str]:
    """Which aims are not reached."""
    sure = [scenario for scenario in FORECASTS if scenario.name not in UNSURE]
    put = [s for s in INCIDENTS if s.lasts or s.for_good]
    quiet = [figures[s.name] for s in QUIET if s.name in figures]
    checks: list[tuple[str, Callable[[Figures], bool], Sequence[Scenario]]] = [
        ("error above .11", lambda f: f.error > 0.11, FORECASTS[:3]),
        ("more than 5 % worse than last week's hour", lambda f: f.error > 1.05 * f.error_last_week, sure),
        ("more than 5 % worse than the median of weeks", lambda f: f.error > 1.05 * f.error_median, sure),
        ("the band covers less than 72 % or more than 88 %", lambda f: not 0.72 <= f.covered <= 0.88, sure),
        ("recall below .7", lambda f: (f.recall or 0.0) < 0.7, put),
        ("an outage is missed", lambda f: (f.recall or 0.0) < 0.9, [s for s in INCIDENTS if s.name.startswith("out")]),
        ("precision below .8", lambda f: (f.precision or 0.0) < 0.8, [s for s in INCIDENTS if s.lasts]),
        ("a lasting change is news for more than a day", lambda f: f.after > 0, put),
        ("more than one incident", lambda f: f.found_all - f.wrong > f.put, [MOVED]),
        *((f"recall below {least}", lambda f, least=least: (f.recall or 0.0) < least, [s])
          for s in SLIGHT for least in (LEAST[s.name],)),
    ]  # fmt: skip
    found = (
        [f"{sum(f.wrong for f in quiet)} wrong incidents where nothing was put in"]
        if (sum(f.wrong for f in quiet) > 0.1 * JUDGED_WEEKS * seeds * len(quiet))
        else []
    )
    return found + [
        f"{scenario.name}: {text}"
        for text, is_missed, of in checks
        for scenario in of
        if scenario.name in figures and is_missed(figures[scenario.name])
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_methods", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"topics of each scenario, by default {SEEDS}")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of their seeds, by default 0")
    asked = parser.parse_args()
    seeds, console = asked.seeds, Console(width=120)
    figures = measure(seeds=seeds, first_seed=asked.first_seed)
    console.print(*show(figures, seeds), sep="\n")
    found = missed(figures, seeds)
    for line in found:
        console.print(line, style="bold red")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
