"""Days that the tables have already are not read again, as long as their files are the same; and the rows are those
that they would be.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from streamdq.dump.local import LocalFolder
from streamdq_spark import reading
from streamdq_spark.analysis import Plan, analyze, events_to_read, plan
from streamdq_spark.answered import HOURS
from streamdq_spark.dump_files import open_dump
from streamdq_spark.errors import AnalysisError
from streamdq_spark.measures import SLO_MS
from streamdq_spark.questions import QUESTIONS, Context, History, Question
from streamdq_spark.reading import Known
from tests.spark.dumps import START, days_of, event, write_dump
from tests.spark.frames import assert_same, rows_of, written

WEEKS, EACH = 4, 6
DAYS = [(START + timedelta(days=n)).date() for n in range(7 * WEEKS)]
LAST = DAYS[-1]
HOURLY = {name: QUESTIONS[name] for name in ("punctuality", "throughput")}
BACK = {
    name: QUESTIONS[name]
    for name in ("anomalies", "incidents", "forecast", "forecast_accuracy", "budget", "budget_incidents")
}


def history() -> list[dict[str, object]]:
    late = event(9_999, START + timedelta(days=3, hours=2, minutes=1), started=START + timedelta(days=3, hours=3))
    return [*days_of(7 * WEEKS, EACH), late | {"due": START + timedelta(days=3)}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_dump(tmp_path / "dump", history(), hours_each=24)
    return tmp_path


def asked(folder: Path, first: date | None = None, last: date | None = None) -> Plan:
    return plan(str(folder / "dump"), str(folder / "out"), first, last)


def known(folder: Path, slo_ms: int = SLO_MS) -> frozenset[date]:
    return HOURS.days(LocalFolder(folder / "out"), open_dump(str(folder / "dump")), slo_ms)


@pytest.mark.thorough
def test_the_next_day_reads_only_that_day(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    analyze(spark, asked(folder, DAYS[0], DAYS[-2]), questions=HOURLY)
    assert known(folder) == set(DAYS[:-1])
    assert events_to_read(asked(folder, LAST, LAST), BACK) == EACH
    analyze(spark, asked(folder, LAST, LAST), questions=BACK)
    by_events = plan(str(folder / "dump"), str(tmp_path / "apart"), LAST, LAST)
    assert events_to_read(by_events, BACK) == len(history())
    analyze(spark, by_events, questions=BACK)
    for name in BACK:
        found, wanted = (rows_of(written(tmp_path / out / name)) for out in ("out", "apart"))
        assert wanted or name in {"incidents", "budget_incidents"}, "six events a day may be too few for one"
        assert_same(found, wanted)


def test_what_the_tables_do_not_have_is_read(folder: Path) -> None:
    dump, out = open_dump(str(folder / "dump")), LocalFolder(folder / "out")
    HOURS.remember(out, dump.between(DAYS[5], DAYS[20]), SLO_MS)
    HOURS.forget(out, {str(DAYS[7]), str(DAYS[8])}.__contains__)
    left = {*DAYS[5:7], *DAYS[9:21]}
    assert known(folder) == left
    assert known(folder, slo_ms=SLO_MS + 1) == set()  # the tables tell who was late by another measure
    found = reading.reading(dump, LAST, LAST, QUESTIONS["anomalies"], Known(left))
    assert {file.day for file in found.files} == set(DAYS) - left
    assert found.answered == left
    assert {file.day for file in reading.reading(dump, LAST, LAST, QUESTIONS["changes"], Known(left)).files} == set(
        DAYS[13:]
    )
    found = reading.reading(dump, LAST, LAST, QUESTIONS["capacity"], Known(left))
    assert {file.day for file in found.files} == set(DAYS) - {day for day in left if day < DAYS[13]}, "of 14 days all"


def test_a_day_whose_files_changed_is_read_again(folder: Path) -> None:
    HOURS.remember(LocalFolder(folder / "out"), open_dump(str(folder / "dump")).files, SLO_MS)
    more = event(1, START + timedelta(days=2, hours=20))
    write_dump(folder / "dump", [*history(), more], hours_each=24)
    assert known(folder) == set(DAYS) - {DAYS[2]}


@pytest.mark.thorough
def test_a_run_that_fails_leaves_its_days_to_be_read(spark: SparkSession, folder: Path) -> None:
    """Its tables may be of this dump or of another."""
    analyze(spark, asked(folder), questions=HOURLY)

    def fails(history: History, _: Context) -> DataFrame:
        return history.events.selectExpr("raise_error('no')")

    with pytest.raises(AnalysisError):
        analyze(spark, asked(folder, LAST, LAST), questions={**HOURLY, "fails": Question("fails", fails)})
    assert known(folder) == set(DAYS[:-1])


@pytest.mark.parametrize("held", ["", "[]", "{", '{"x": 1}'])
def test_what_can_t_be_read_is_as_if_nothing_were_answered(folder: Path, held: str) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "answered.json").write_text(held)
    assert known(folder) == set()
    HOURS.remember(LocalFolder(folder / "out"), open_dump(str(folder / "dump")).between(LAST, LAST), SLO_MS)
    assert known(folder) == {LAST}


@pytest.mark.thorough
def test_a_day_whose_rows_are_gone_as_its_files_were_is_read_when_they_are_back(
    spark: SparkSession, folder: Path
) -> None:
    dump = open_dump(str(folder / "dump"))
    analyze(spark, asked(folder), questions=HOURLY)
    (gone,) = (file.path for file in dump.between(DAYS[-3], DAYS[-3]))
    (folder / "dump" / gone).rename(folder / "aside")
    analyze(spark, plan(str(folder / "dump"), str(folder / "out"), DAYS[-4], LAST, quarantine=True), questions=HOURLY)
    (folder / "aside").rename(folder / "dump" / gone)
    assert known(folder) == set(DAYS) - {DAYS[-3]}
