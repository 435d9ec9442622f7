"""Days whose hours are known are not read again for them, as long as their files are the same; and the rows are those
that they would be.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from shutil import rmtree

import pytest

from streamdq.dump.local import LocalFolder
from streamdq_spark.analysis import Plan, analyze, events_to_read, plan
from streamdq_spark.dump_files import open_dump
from streamdq_spark.engines.duck import DuckDB
from streamdq_spark.known_hours import HOURS, keep_hours, known_days, read_hours
from streamdq_spark.measures import SLO_MS
from tests.spark.dumps import START, days_of, event, write_dump
from tests.spark.frames import assert_same, rows_of, written

WEEKS, EACH = 6, 6
DAYS = [(START + timedelta(days=n)).date() for n in range(7 * WEEKS)]
LAST = DAYS[-1]
BACK = ("anomalies", "incidents", "forecast", "forecast_accuracy", "budget", "budget_incidents")


def history() -> list[dict[str, object]]:
    late = event(9_999, START + timedelta(days=3, hours=2, minutes=1), started=START + timedelta(days=3, hours=3))
    return [*days_of(7 * WEEKS, EACH), late | {"due": START + timedelta(days=3)}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_dump(tmp_path / "dump", history(), hours_each=24)
    return tmp_path


def asked(folder: Path, first: date | None = None, last: date | None = None, out: str = "out") -> Plan:
    return plan(str(folder / "dump"), str(folder / out), first, last)


def known(folder: Path, slo_ms: int = SLO_MS) -> frozenset[date]:
    return known_days(LocalFolder(folder / "out"), open_dump(str(folder / "dump")), slo_ms)


def test_the_next_day_reads_the_days_of_two_weeks_alone(folder: Path) -> None:
    analyze(DuckDB(), asked(folder, DAYS[0], DAYS[-2]), questions=("incidents",))
    rmtree(folder / "out" / "incidents")
    assert known(folder) == set(DAYS[:-1])
    assert events_to_read(asked(folder, LAST, LAST)) == 15 * EACH
    analyze(DuckDB(), asked(folder, LAST, LAST), questions=BACK)
    assert known(folder) == set(DAYS)
    by_events = asked(folder, LAST, LAST, "apart")
    assert events_to_read(by_events) == len(history())
    analyze(DuckDB(), by_events, questions=BACK)
    for name in BACK:
        found, wanted = (rows_of(written(folder / out / name)) for out in ("out", "apart"))
        assert wanted or name in {"incidents", "budget_incidents"}, "six events a day may be too few for one"
        assert_same(found, wanted)


def test_a_file_a_month(folder: Path) -> None:
    analyze(DuckDB(), asked(folder), questions=("budget",))
    files = sorted(
        path.relative_to(folder / "out").as_posix() for path in (folder / "out" / "hours").rglob("*.parquet")
    )
    assert files == ["hours/month=2026-01/hours.parquet", "hours/month=2026-02/hours.parquet"]


def test_a_day_whose_files_changed_is_read_again(folder: Path) -> None:
    analyze(DuckDB(), asked(folder), questions=("budget",))
    more = event(1, START + timedelta(days=2, hours=20))
    write_dump(folder / "dump", [*history(), more], hours_each=24)
    assert known(folder) == set(DAYS) - {DAYS[2]}
    assert known(folder, slo_ms=SLO_MS + 1) == set()  # they tell who was late by another measure


def test_rows_of_other_days_stay(folder: Path) -> None:
    out, dump = LocalFolder(folder / "out"), open_dump(str(folder / "dump"))
    hour = (DAYS[1] - date(1970, 1, 1)).days * 24
    for n, own in enumerate((hour, hour + 24)):
        rows = HOURS.empty_table().from_pylist(
            [{"topic": "t", "hour": own, **dict.fromkeys(HOURS.names[2:], n)}], HOURS
        )
        keep_hours(out, rows, dump.between(DAYS[1 + n], DAYS[1 + n]), SLO_MS)
    keep_hours(out, HOURS.empty_table(), dump.between(DAYS[2], DAYS[2]), SLO_MS)
    assert known(folder) == {DAYS[1], DAYS[2]}
    assert read_hours(out, DAYS)["hour"].to_pylist() == [hour]


@pytest.mark.parametrize("held", ["", "[]", "{", '{"x": 1}'])
def test_what_can_t_be_read_is_as_if_nothing_were_known(folder: Path, held: str) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "hours.json").write_text(held)
    assert known(folder) == set()


def test_hours_whose_file_is_gone_are_not_known(folder: Path) -> None:
    analyze(DuckDB(), asked(folder), questions=("budget",))
    (folder / "out" / "hours" / "month=2026-01" / "hours.parquet").unlink()
    assert known(folder) == {day for day in DAYS if day.month == 2}
