"""The questions that an analysis answers, one module each, and their context.

A question is a function `(history, context) -> DataFrame`; what several questions need is computed once, by `History`.
It collects no rows. Its last step is a `select`
that is the schema of its table. Tables are partitioned by `dt`, the UTC day of the events that a row counts; for
questions about the whole time, it is the last day. So a rerun replaces exactly the rows that it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..measures import DEFAULT_TZ, OBJECTIVE, SLO_MS
from . import (
    advice,
    anomalies,
    budget,
    by_day,
    capacity,
    changes,
    compared,
    cost,
    dead_letters,
    duplicates,
    errors,
    finish,
    forecast,
    history,
    lateness_causes,
    punctuality,
    retries,
    throughput,
    workers,
)
from .common import DAY_H, HOUR_S, day_number
from .compared import Span
from .history import History

__all__ = [
    "COMPARED", "QUESTIONS", "Context", "History", "Question", "Span", "advice", "anomalies", "budget", "by_day",
    "capacity", "changes", "compared", "cost", "dead_letters", "duplicates", "errors", "finish", "forecast", "history",
    "lateness_causes", "punctuality", "retries", "throughput", "workers",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Context:
    """What a question may know beside the events. Both days belong to the time that is asked for."""

    first_day: date
    last_day: date
    waiting: DataFrame | None = None  # topic, due_hour (timestamp), jobs: what waits in Redis, if it was asked
    asked_at: datetime | None = None  # when it was
    slo_ms: int = SLO_MS  # an attempt that starts within it is on time
    objective: float = OBJECTIVE  # the share of attempts that should be on time
    tz: str = DEFAULT_TZ  # by whose clocks hours are the same hour of a week
    compare: tuple[Span, Span] | None = None  # two time spans, if they should be compared
    goes_on: bool = False  # whether there are events of later days, so that the last hour is complete


@dataclass(frozen=True, slots=True)
class Question:
    """One table. `answer` gets the events from `lookback` before the first day to `lookahead` after the last.

    `day` is the timestamp column whose UTC day a row belongs to; rows of days that were not asked for are dropped.
    None: every row belongs to the last day. The runner adds `dt`. `by_hour`: of the days before, it only needs
    `History.hours`, except of those within `whole` before the first. `by_day`: of these, it only needs `ByDay` beside.
    """

    name: str
    answer: Callable[[History, Context], DataFrame]
    day: str | None = None
    lookback: timedelta = timedelta(0)
    lookahead: timedelta = timedelta(0)
    by_hour: bool = False
    whole: timedelta = timedelta(0)
    by_day: bool = False


def _of_events(answer: Callable[[History], DataFrame], day: str | None = None) -> Question:
    """A question that only needs the events."""

    def from_history(history: History, _: Context) -> DataFrame:
        return answer(history)

    return Question(answer.__name__, from_history, day)


def _forecast(history: History, context: Context) -> DataFrame:
    return forecast.forecast(history, context.waiting, start=context.asked_at, slo_ms=context.slo_ms, tz=context.tz)


def _forecast_accuracy(history: History, context: Context) -> DataFrame:
    return forecast.forecast_accuracy(history, start=context.asked_at, slo_ms=context.slo_ms, tz=context.tz)


def _budget(history: History, context: Context) -> DataFrame:
    until = context.last_day if context.goes_on else None
    return budget.budget(history, slo_ms=context.slo_ms, objective=context.objective, until=until)


def _budget_incidents(history: History, context: Context) -> DataFrame:
    until = context.last_day if context.goes_on else None
    return budget.budget_incidents(history, slo_ms=context.slo_ms, objective=context.objective, until=until)


def _capacity(history: History, context: Context) -> DataFrame:
    return capacity.capacity(
        history,
        context.waiting,
        start=context.asked_at,
        slo_ms=context.slo_ms,
        objective=context.objective,
        tz=context.tz,
    )


def _error_classes(history: History, context: Context) -> DataFrame:
    return errors.error_classes(history, slo_ms=context.slo_ms)


def _hosts(history: History, context: Context) -> DataFrame:
    return errors.hosts(history, slo_ms=context.slo_ms)


def _punctuality(history: History, context: Context) -> DataFrame:
    return punctuality.punctuality(history, slo_ms=context.slo_ms, objective=context.objective)


def _punctuality_topics(history: History, context: Context) -> DataFrame:
    return punctuality.punctuality_topics(history, slo_ms=context.slo_ms, objective=context.objective)


def _anomalies(history: History, context: Context) -> DataFrame:
    until = context.last_day if context.goes_on else None
    return anomalies.anomalies(history, slo_ms=context.slo_ms, until=until, tz=context.tz)


def _incidents(history: History, context: Context) -> DataFrame:
    since, until = (
        day_number(day) * DAY_H * HOUR_S for day in (context.first_day, context.last_day + timedelta(days=1))
    )
    of_days = F.unix_seconds("hour").between(since, until - 1)
    return anomalies.incidents(_anomalies(history, context).where(of_days))


def _changes(history: History, context: Context) -> DataFrame:
    return changes.changes(history, slo_ms=context.slo_ms)


def _compared(history: History, context: Context) -> DataFrame:
    if context.compare is None:
        raise ValueError("nothing to compare: the context has no time spans")
    return compared.compared(history, *context.compare)


# The same for all of them, so that they share one history.
_LOOKBACK = timedelta(days=max(anomalies.LOOKBACK_DAYS, forecast.LOOKBACK_DAYS))
_DAYS = timedelta(days=by_day.DAYS)
_ALL = (
    Question("punctuality", _punctuality, "hour"),
    Question("punctuality_topics", _punctuality_topics),
    _of_events(lateness_causes.lateness_causes, "hour"),
    _of_events(throughput.throughput, "hour"),
    _of_events(retries.retries),
    _of_events(dead_letters.dead_letters),
    _of_events(finish.time_to_finish),
    replace(_of_events(workers.workers, "hour"), lookahead=workers.LOOKAHEAD),
    _of_events(duplicates.duplicates),
    _of_events(cost.cost_by_topic),
    _of_events(cost.cost_by_key),
    _of_events(advice.advice),
    Question("anomalies", _anomalies, "hour", _LOOKBACK, by_hour=True),
    Question("incidents", _incidents, lookback=_LOOKBACK, by_hour=True),
    Question("changes", _changes, lookback=_DAYS, whole=_DAYS, by_day=True),
    Question("forecast", _forecast, lookback=_LOOKBACK, by_hour=True),
    Question("forecast_accuracy", _forecast_accuracy, lookback=_LOOKBACK, by_hour=True),
    Question("capacity", _capacity, lookback=_LOOKBACK, by_hour=True, whole=_DAYS, by_day=True),
    _of_events(errors.errors, "day"),
    Question("error_classes", _error_classes, lookback=_DAYS, whole=_DAYS, by_day=True),
    Question("hosts", _hosts, lookback=_DAYS, whole=_DAYS, by_day=True),
    Question("budget", _budget, lookback=_LOOKBACK, by_hour=True),
    Question("budget_incidents", _budget_incidents, lookback=_LOOKBACK, by_hour=True),
)
QUESTIONS: dict[str, Question] = {question.name: question for question in _ALL}
COMPARED = Question("compared", _compared)
"""Asked where there are two time spans."""


def beside_waiting(questions: Mapping[str, Question]) -> dict[str, Question]:
    """The same questions if it is known what waits: how long before they were due attempts were enqueued is not kept
    by day.
    """
    return {name: replace(asked, by_day=asked.by_day and name != "capacity") for name, asked in questions.items()}
