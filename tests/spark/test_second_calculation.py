"""Every table equals its second calculation, in SQL by DuckDB; `python -m tests.spark.second` compares many events."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamdq_spark.analysis import analyze, chosen, plan
from streamdq_spark.questions import COMPARED, QUESTIONS
from tests.spark.dumps import as_row, write_dump
from tests.spark.lived import live
from tests.spark.logs import MONDAY, corners, done, random_log
from tests.spark.plain import DAY, WEEK
from tests.spark.second.__main__ import asked_of
from tests.spark.second.calculation import Row, Second, calculated, differences, names, slack
from tests.spark.shared import SharedSpark

TABLES = names()


def test_every_table_has_one() -> None:
    assert set(TABLES) == {*QUESTIONS, COMPARED.name}


# -- what is compared


def made_up(folder: Path, spark: SparkSession) -> None:
    """All that can happen to a job, at random; of some attempts nobody knows when they were moved."""
    log = [
        e._replace(moved=None) if e.due is not None and n % 17 == 0 else e
        for n, e in enumerate(random_log(seed=11, jobs=2500) + [e for e in corners() if e.group])
    ]
    at = MONDAY + 4 * WEEK
    log += [done("behind", at + n, id=f"b{n}", due=at - 5000) for n in range(9)]
    write_dump(folder / "dump", map(as_row, log), hours_each=24)
    compared_too(spark, folder, "2026-01-05..2026-01-18", "2026-01-19..2026-02-08")


def compared_too(spark: SparkSession, folder: Path, *spans: str) -> None:
    before, after = spans
    wanted = plan(str(folder / "dump"), str(folder / "tables"), compare=(before, after))
    analyze(spark, wanted, questions=chosen((), compare=True))


def some_days(folder: Path, spark: SparkSession) -> None:
    """Of a longer history, with other events before and after, by the clocks of Paris, which change in them."""
    weeks = 11
    log = [e._replace(**later(e, 4 * 7 * DAY)) for e in random_log(seed=5, jobs=9000, weeks=weeks)]
    write_dump(folder / "dump", map(as_row, log), hours_each=24)
    first = date(2026, 1, 5) + timedelta(weeks=4 + weeks - 3)
    last = first + timedelta(days=12)
    half = first + timedelta(days=6)
    spans = f"{first}T03:00..{half}T02:30", f"{half}T02:30..{last}T20:00"
    wanted = plan(
        str(folder / "dump"), str(folder / "tables"), first, last, slo_ms=250, objective=0.9, tz="Europe/Paris",
        compare=spans,
    )  # fmt: skip
    assert first < date(2026, 3, 29) + timedelta(weeks=8)
    analyze(spark, wanted, questions=chosen((), compare=True))


def later(e: Any, ms: int) -> dict[str, Any]:
    times = {name: getattr(e, name) for name in ("created", "due", "moved", "started", "finished")}
    moved = {name: value + ms for name, value in times.items() if value is not None}
    number = e.entry.partition("-")[2]
    return moved | {"entry": f"{moved['finished']}-{number}"}


def lived(folder: Path, spark: SparkSession) -> None:
    """What the queue itself has written."""
    live(folder / "dump")
    compared_too(spark, folder, "2026-01-05..2026-01-05", "2026-01-06..2026-01-06")


@dataclass(frozen=True)
class Compared:
    second: Second
    tables: Path
    dump: Path

    def rows(self, name: str) -> tuple[list[Row], list[Row]]:
        asked = asked_of(self.dump, self.tables)
        return self.second.written(self.tables, name, asked), self.second.rows(name)


@pytest.fixture(scope="module", params=[made_up, some_days, lived], ids=lambda made: made.__name__)
def compared(
    request: pytest.FixtureRequest, shared_spark: SharedSpark, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Compared]:
    folder = tmp_path_factory.mktemp(request.param.__name__)
    request.param(folder, shared_spark.session())
    with calculated(folder / "dump", asked_of(folder / "dump", folder / "tables")) as second:
        yield Compared(second, folder / "tables", folder / "dump")


@pytest.mark.thorough
@pytest.mark.parametrize("name", TABLES)
def test_a_table_equals_its_second_calculation(name: str, compared: Compared) -> None:
    found, wanted = compared.rows(name)
    assert differences(name, found, wanted) == []


@pytest.mark.thorough
@pytest.mark.parametrize("compared", [made_up], indirect=True, ids=["made_up"])
@pytest.mark.parametrize("name", TABLES)
def test_a_wrong_or_missing_row_is_noticed(name: str, compared: Compared) -> None:
    wanted, allowed = compared.second.rows(name), slack(name)
    assert differences(name, wanted[1:], wanted)
    assert differences(name, wanted, wanted[1:])
    for column in wanted[0]:
        wrong = with_one_wrong(wanted, column, allowed.get(column, 0.0))
        assert wrong is wanted or differences(name, wrong, wanted), column


def with_one_wrong(rows: list[Row], column: str, allowed: float) -> list[Row]:
    """The column's first number is a little further from zero, by more than any rounding explains."""
    at = next((at for at, row in enumerate(rows) if isinstance(row[column], int | float)), None)
    if at is None:
        return rows
    value = rows[at][column]
    more = max(1e-4 * (1 + abs(value)), 2 * allowed)
    return [*rows[:at], rows[at] | {column: value + math.copysign(more, value)}, *rows[at + 1 :]]


def test_a_wrong_number_is_noticed_whatever_it_is() -> None:
    """Rows come in any order: one that is never tried today is the first tomorrow."""
    for value in (-2.5, -1.000001, -1.0, -0.99, -0.0, 0.0, 1e-6, 1, 86_400_000, 1e12, True):
        right: list[Row] = [
            {"topic": "a", "hour": 0, "measure": "done", "score": None},
            {"topic": "b", "hour": 0, "measure": "done", "score": value},
        ]
        assert differences("anomalies", with_one_wrong(right, "score", slack("anomalies")["score"]), right), value
