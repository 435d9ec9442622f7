"""What a table says of a day does not depend on which days were analyzed with it, nor in which order: but for the last
digits, as several threads add numbers up in any order.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet as pq

from streamdq.dump.local import LocalFolder
from streamdq_spark.analysis import analyze, plan
from streamdq_spark.engines.duck import DuckDB
from streamdq_spark.questions import QUESTIONS, tables
from streamdq_spark.report import load_tables
from tests.spark.dumps import START, as_row, event, write_dump
from tests.spark.frames import assert_same, rows_of
from tests.spark.logs import flows_at, random_log

FIRST = START + timedelta(days=101)
DAYS = [(FIRST + timedelta(days=n)).date() for n in range(3)]
SILENT = DAYS[1]
WHOLE = str(DAYS[0]), str(DAYS[-1])
Rows = list[dict[str, Any]]
pytestmark = pytest.mark.thorough


def history() -> Rows:
    """Sixteen weeks. Within the three days that are analyzed: one without events, attempts that go on for two
    days, consumers that do more at once on one day than on another. Before them: topics that begin, or fall silent,
    just within and just before the weeks that are looked back.
    """
    hours = timedelta(hours=1)
    rows = [
        row
        for e in random_log(seed=11, jobs=900, weeks=16)
        if (row := as_row(e))["finished"] < START + timedelta(days=111)
    ]
    rows += [event(n, START + n * 2 * hours, topic="steady") for n in range(111 * 12)]
    for n, back in enumerate(
        (
            100,
            94,
            93.2,
            93,
            92.9,
            92.5,
            92,
            91.5,
            73,
            72.2,
            72,
            71.9,
            71.5,
            71,
            59,
            58,
            57.2,
            57,
            56.9,
            56.5,
            56,
            55.5,
            49,
            21,
            14,
            7,
            6.9,
            0.5,
        )
    ):
        at = FIRST + timedelta(days=-back)
        for topic in ("rare", f"once, {back} days before"):
            rows += [event(10_000 + 10 * n + k, at, topic=topic) for k in range(5)]
    for n, (begin, took) in enumerate(((0, 25), (10, 47), (20, 30), (23, 26), (50, 26), (70, 40))):
        rows.append(event(30_000 + n, FIRST + (begin + took) * hours, started=FIRST + begin * hours, consumer="slow"))
    for day, at_once in enumerate((2, 0, 5)):
        at = FIRST + timedelta(days=day, hours=5)
        rows += [event(40_000 + 10 * day + n, at + hours, started=at, consumer="w1") for n in range(at_once)]
        rows += [event(50_000 + n, at, event="dead", topic="steady", reason="exhausted") for n in (day, day + 10)]
        rows += [event(60_000 + 1000 * day + n, at + 3 * hours, topic="steady") for n in range(300)]  # an incident
    late = FIRST + timedelta(hours=7)
    rows += [event(70_000 + n, late, topic="steady", due=late - hours, started=late) for n in range(20)]
    rows += [as_row(e) for day in (0, 2) for e in flows_at(int((FIRST + timedelta(days=day)).timestamp() * 1000))]
    return [row for row in rows if row["finished"].date() != SILENT]


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """DuckDB's threads add up in any order."""
    return {name: float(f"{value:.9g}") if isinstance(value, float) else value for name, value in row.items()}


def reported(folder: Path) -> dict[str, Rows]:
    """All rows of all tables, with the days in their files' names."""
    found: dict[str, Rows] = {}
    for name in QUESTIONS:
        days = {file: file.relative_to(folder / name).parts[:-1] for file in (folder / name).rglob("*.parquet")}
        rows = [
            row | dict(day.split("=") for day in of_file)
            for file, of_file in days.items()
            for row in map(rounded, rows_of(pq.ParquetFile(file).read()))
        ]
        found[name] = sorted(rows, key=repr)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("again")
    write_dump(made / "dump", history(), hours_each=24)
    return made


def run(folder: Path, first: date, last: date) -> None:
    analyze(DuckDB(), plan(str(folder / "dump"), str(folder / "out"), first, last))


@pytest.fixture(scope="module")
def before_and_after(folder: Path) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """The tables of the three days, and the same folder after each day by itself."""
    run(folder, DAYS[0], DAYS[-1])
    before = reported(folder / "out")
    for day in DAYS:
        if day != SILENT:
            run(folder, day, day)
    return before, reported(folder / "out")


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_day_by_itself_has_the_same_rows(
    name: str, before_and_after: tuple[dict[str, Rows], dict[str, Rows]], folder: Path
) -> None:
    before, after = (tables[name] for tables in before_and_after)
    assert before
    if tables()[name].day:
        assert_same(after, before)
        return
    assert [row for row in after if (row["from_dt"], row["dt"]) == WHOLE] == before
    alone = [row for row in after if row["from_dt"] == row["dt"]]
    assert len(alone) == len(after) - len(before)
    shown = [load_tables(LocalFolder(folder / "out"), [name], day, day)[name] for day in DAYS]
    assert sum(map(len, shown)) == len(alone)  # a day's report is of its own run
    assert not shown[DAYS.index(SILENT)]


@pytest.mark.parametrize(
    "name", ["changes", "forecast", "forecast_accuracy", "capacity", "budget", "budget_incidents", "hosts"]
)
def test_what_looks_back_from_the_end_is_the_same_for_the_last_day(
    name: str, before_and_after: tuple[dict[str, Rows], dict[str, Rows]]
) -> None:
    """Whatever the first day is."""
    whole, alone = (
        [{**row, "from_dt": ""} for row in before_and_after[1][name] if (row["from_dt"], row["dt"]) == days]
        for days in (WHOLE, (WHOLE[1], WHOLE[1]))
    )
    assert whole
    assert_same(whole, alone)


def test_the_history_has_what_it_takes(before_and_after: tuple[dict[str, Rows], dict[str, Rows]]) -> None:
    before, _ = before_and_after
    slots = {(row["dt"], row["slots"]) for row in before["workers"] if row["consumer"] == "w1"}
    assert len({most for _, most in slots}) > 1
    assert {row["weeks"] for row in before["anomalies"]} >= {0, 1, 6, 7, 8}
    assert {row["dt"] for row in before["anomalies"]} == {str(day) for day in DAYS}
