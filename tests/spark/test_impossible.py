"""Rows that can't be: they are set aside, counted and named, and no table is another one because of them."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import MANIFEST
from streamdq_spark.analysis import analyze, plan
from streamdq_spark.days import open_days
from streamdq_spark.engines.base import Engine
from streamdq_spark.engines.duck import DuckDB
from streamdq_spark.engines.spark import Spark
from streamdq_spark.questions import QUESTIONS
from streamdq_spark.read_days import events_of
from streamdq_spark.report import write_report
from streamdq_spark.summary import Summary
from tests.spark.dumps import EPOCH, as_row, event, write_dump
from tests.spark.frames import assert_same, rows_of, written
from tests.spark.logs import random_log
from tests.spark.shared import SharedSpark

Rows = list[dict[str, Any]]
YEAR = timedelta(days=365)
GOOD: Rows = [as_row(e) for e in random_log(seed=8, jobs=400, weeks=4)]
LAST = max(row["finished"] for row in GOOD)
ODD: Rows = [
    event(1, LAST + YEAR),
    event(2, LAST + 40 * YEAR, topic="only ahead"),
    event(3, LAST - timedelta(days=3), body_bytes=1 << 40),
    event(4, LAST - timedelta(days=3), body_bytes=-1),
    event(5, LAST - timedelta(days=2), attempt=2**31 - 1),
    event(6, LAST - timedelta(days=2), step=-7),
    event(7, LAST - timedelta(days=9), started=LAST + YEAR),
    event(8, LAST - timedelta(days=9), due=EPOCH - 100 * YEAR),
    event(9, LAST + timedelta(minutes=1), topic="only impossible", body_bytes=1 << 33),
    event(10, LAST + timedelta(days=1), created=LAST + YEAR),  # all that its day has
]


def dumped(folder: Path, rows: Rows) -> None:
    write_dump(folder / "dump", rows, hours_each=24)
    manifest = json.loads((folder / "dump" / MANIFEST).read_text())
    manifest["written_ms"] = round(LAST.timestamp() * 1000)
    (folder / "dump" / MANIFEST).write_text(json.dumps(manifest))


def analysed(folder: Path, rows: Rows, engine: Engine) -> tuple[Summary, dict[str, Rows]]:
    dumped(folder, rows)
    summary = analyze(engine, plan(str(folder / "dump"), str(folder / "out")))
    return summary, {name: rows_of(written(folder / "out" / name)) for name in QUESTIONS if summary.tables[name]}


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.thorough)])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "duckdb":
        return DuckDB()
    shared: SharedSpark = request.getfixturevalue("shared_spark")
    return Spark(shared.session())


@pytest.mark.thorough
def test_they_move_nothing(engine: Engine, tmp_path: Path) -> None:
    without, wanted = analysed(tmp_path / "without", GOOD, engine)
    summary, found = analysed(tmp_path / "with", GOOD + ODD, engine)
    assert (without.set_aside, summary.set_aside) == (0, len(ODD))
    assert (summary.last_day, summary.events) == (without.last_day, without.events)
    assert set(found) == set(wanted)
    for name in QUESTIONS:
        if name in wanted:
            assert_same(found[name], wanted[name])


@pytest.mark.thorough
def test_a_replay_does_not_see_them(spark: SparkSession, tmp_path: Path) -> None:
    dumped(tmp_path, GOOD + ODD)
    days = open_days(str(tmp_path / "dump"), None, None)
    with events_of(spark, days) as events:
        assert events.count() == len(GOOD)
    of_whole_files = 3
    assert days.impossible == len(ODD) - of_whole_files


@pytest.mark.thorough
def test_the_report_names_them(tmp_path: Path) -> None:
    summary, _ = analysed(tmp_path, GOOD + ODD, DuckDB())
    write_report(LocalFolder(tmp_path / "out"), summary, tmp_path / "report.html")
    assert f"Set aside: {len(ODD)} events that can't be" in (tmp_path / "report.html").read_text()
