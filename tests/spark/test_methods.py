"""How good the forecast and the search for unusual hours are, on hours of which it is known what should be said."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from benchmarks.spark_methods import (
    FAILED,
    FORECASTS,
    INCIDENTS,
    Figures,
    Span,
    _add_incidents,
    made_up,
    measure,
    missed,
    show,
)
from streamdq_spark.questions.anomalies import anomalies, incidents
from streamdq_spark.questions.forecast import forecast, forecast_accuracy
from tests.spark import plain
from tests.spark.frames import assert_same, collected, history_of
from tests.spark.logs import done
from tests.spark.plain import DAY, HOUR
from tests.spark.shared import SharedSpark

pytestmark = pytest.mark.thorough
SEEDS = 3
PARIS = "Europe/Paris"
CHANGED = 1_774_746_000_000  # 2026-03-29 01:00 UTC, when clocks there were put forward
SET_BACK = 1_792_890_000_000  # 2026-10-25 01:00 UTC


@pytest.fixture(scope="module")
def figures(shared_spark: SharedSpark) -> dict[str, Figures]:
    return measure(shared_spark.session(), seeds=SEEDS)


def test_the_aims_are_reached(figures: dict[str, Figures]) -> None:
    assert list(figures) == [scenario.name for scenario in INCIDENTS]
    assert missed(figures) == []


@pytest.mark.parametrize("name", [scenario.name for scenario in FORECASTS[:5]])
def test_where_nothing_was_put_hardly_anything_is_found(name: str, figures: dict[str, Figures]) -> None:
    """Of 2,016 hours of three topics, in each of three measures."""
    assert figures[name].told <= 1


@pytest.mark.parametrize("name", [scenario.name for scenario in INCIDENTS if scenario.for_good])
def test_a_lasting_change_is_news_for_a_day(name: str, figures: dict[str, Figures]) -> None:
    assert figures[name].found == SEEDS
    assert figures[name].after == 0


def test_what_is_made_up_has_its_incidents() -> None:
    outage = next(scenario for scenario in INCIDENTS if scenario.name.startswith("outage"))
    columns, spans = made_up(outage, 1)
    assert len(spans) == 4
    assert not {hour for span in spans for hour in range(span.first, span.last + 1)} & set(columns["hour"].tolist())
    assert made_up(outage, 1)[1] == spans


def test_what_is_missed_and_what_is_wrong_are_counted() -> None:
    figures = Figures(hours=1, attempts=1)
    _add_incidents(figures, [Span(10, 12), Span(50, 52)], [Span(12, 13), Span(20, 20)])
    assert (figures.put, figures.found, figures.told, figures.wrong) == (2, 1, 2, 1)
    assert (figures.recall, figures.precision) == (0.5, 0.5)
    name = next(scenario.name for scenario in INCIDENTS if scenario.failed > FAILED)
    assert missed({name: figures}) == [f"{name}: recall below .7", f"{name}: precision below .8"]
    assert len(list(show({name: figures}, 1))) == 2


def test_what_is_told_after_the_first_day_of_a_lasting_change_is_counted() -> None:
    figures = Figures()
    _add_incidents(figures, [Span(100, 200)], [Span(101, 110), Span(125, 126), Span(20, 21)])
    assert (figures.found, figures.wrong, figures.after) == (1, 2, 1)


@pytest.mark.parametrize("changed", [CHANGED, SET_BACK])
def test_the_clocks_of_a_zone_are_followed(spark: SparkSession, changed: int) -> None:
    """As by plain Python: five weeks of jobs at nine by the clock, which is changed six days before the end."""
    clock = plain.Clock(PARIS)
    log = [
        done("t", hour + 60_000 * n, id=f"{hour}.{n}")
        for hour in range(changed - 30 * DAY, changed + 6 * DAY, HOUR)
        for n in range(20 if clock.shown(hour) % DAY == 9 * HOUR else 3)
    ]
    history = history_of(spark, log)
    judged = anomalies(history, tz=PARIS)
    assert_same(collected(judged), plain.anomalies(log, tz=PARIS))
    assert collected(incidents(judged)) == []
    assert_same(collected(forecast(history, tz=PARIS)), plain.forecast(log, tz=PARIS))
    assert_same(collected(forecast_accuracy(history, tz=PARIS)), plain.forecast_accuracy(log, tz=PARIS))
    most = max(plain.forecast(log, tz=PARIS), key=lambda row: row["expected"])
    assert clock.shown(most["hour"]) % DAY == 9 * HOUR
    assert collected(incidents(anomalies(history)))  # by UTC the hour before or after is unlike the weeks before
