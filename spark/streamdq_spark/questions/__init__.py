"""The questions that an analysis answers, one module each, and what they may know.

A question is a pure function `(events, context) -> DataFrame`; it collects nothing. Its last step is a `select`
that is the schema of its table. Tables are partitioned by `dt`, the UTC day as 'YYYY-MM-DD' text: of the events
it counts, or, for what looks at the whole time, the last day (`context.last_day`). So a rerun replaces what it is
about and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Context:
    """What a question may know beside the events. Both days belong to the time that is asked for."""

    first_day: date
    last_day: date
    waiting: DataFrame | None = None  # topic, due_hour (timestamp), jobs: what waits in Redis now, if it was asked


@dataclass(frozen=True, slots=True)
class Question:
    """`answer` gets the events from `lookback` before the first day on; its rows for earlier days are dropped."""

    name: str
    answer: Callable[[DataFrame, Context], DataFrame]
    partition_by: tuple[str, ...] = ("dt",)
    lookback: timedelta = timedelta(0)


QUESTIONS: dict[str, Question] = {}
