"""A dump's tables: what they hold, and what running it again does."""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet as pq
from pyspark.sql import DataFrame, SparkSession

from streamdq.errors import FolderBusy, FolderError, HistoryUnreadable, InvalidInput
from streamdq_spark.analysis import Plan, analyze, check_output, plan
from streamdq_spark.dump_files import open_dump
from streamdq_spark.engines.base import Engine
from streamdq_spark.engines.duck import DuckDB
from streamdq_spark.engines.spark import Spark, SparkAnswers
from streamdq_spark.errors import AnalysisError
from streamdq_spark.events import EVENTS, read_files
from streamdq_spark.failures import spark_errors
from streamdq_spark.summary import Summary
from tests.spark.dumps import START, days_of, event, write_dump, write_manifest
from tests.spark.shared import SharedSpark

MONDAY = START.date()
TUESDAY, WEDNESDAY = MONDAY + timedelta(1), MONDAY + timedelta(2)
HOURLY, WHOLE = "punctuality", "cost_by_topic"
QUESTIONS = (HOURLY, WHOLE)


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.thorough)])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "duckdb":
        yield DuckDB()
    else:
        shared: SharedSpark = request.getfixturevalue("shared_spark")
        yield Spark(shared.session())


def run(engine: Engine, folder: Path, first: date | None = None, last: date | None = None) -> Summary:
    return analyze(engine, plan(str(folder / "dump"), str(folder / "out"), first, last), questions=QUESTIONS)


def counted(folder: Path, table: str, column: str) -> dict[str, int]:
    """The sum of a column, by the days of the rows."""
    found: Counter[str] = Counter()
    (file,) = (folder / "out" / table).rglob("*.parquet")
    assert file.relative_to(folder / "out" / table).as_posix() == "quarter=2026Q1/rows.parquet"
    for row in pq.ParquetFile(file).read().to_pylist():
        found["/".join(row[name] for name in ("dt", "from_dt") if name in row)] += row[column]
    return dict(found)


def whole(first: date, last: date) -> str:
    return f"{last}/{first}"


def test_each_table_gets_its_files(engine: Engine, tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(3))
    summary = run(engine, tmp_path)
    assert (summary.events, summary.files, summary.first_day, summary.last_day) == (30, 30, MONDAY, WEDNESDAY)
    assert summary.tables == {HOURLY: 30, WHOLE: 2}
    assert counted(tmp_path, WHOLE, "jobs") == {whole(MONDAY, WEDNESDAY): 30}
    assert counted(tmp_path, HOURLY, "attempts") == {f"{day}": 10 for day in (MONDAY, TUESDAY, WEDNESDAY)}


@pytest.mark.thorough
def test_one_engine_replaces_what_the_other_wrote(spark: SparkSession, tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(2))
    engines: tuple[Engine, ...] = (DuckDB(), Spark(spark), DuckDB())
    for engine in engines:
        run(engine, tmp_path)
        assert counted(tmp_path, HOURLY, "attempts") == {f"{day}": 10 for day in (MONDAY, TUESDAY)}
        assert counted(tmp_path, WHOLE, "jobs") == {whole(MONDAY, TUESDAY): 20}


def read_from(capsys: pytest.CaptureFixture[str], events: DataFrame) -> int:
    """How many paths Spark was given."""
    capsys.readouterr()
    events.explain()
    found = re.search(r"InMemoryFileIndex\((\d+) paths?\)", capsys.readouterr().out)
    assert found
    return int(found[1])


@pytest.mark.thorough
def test_days_are_read_as_a_whole_where_they_hold_nothing_else(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "a [b]{c,d}*?%20 ü"
    write_dump(root, days_of(2))
    dump = open_dump(str(root))
    everything = read_files(spark, dump, dump.files)
    assert (everything.count(), read_from(capsys, everything)) == (20, 2)
    assert everything.columns == list(EVENTS.names)
    some = read_files(spark, dump, dump.files[1:])
    assert (some.count(), read_from(capsys, some)) == (19, 19)


def test_a_day_again_leaves_the_others_alone(engine: Engine, tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(3))
    run(engine, tmp_path)
    more = [row | {"entry": row["entry"] + "9", "id": row["id"] + "b"} for row in days_of(3)]
    write_dump(tmp_path / "dump", days_of(3) + more)
    summary = run(engine, tmp_path, TUESDAY, TUESDAY)
    assert summary.events == 20
    assert counted(tmp_path, HOURLY, "attempts") == {f"{MONDAY}": 10, f"{TUESDAY}": 20, f"{WEDNESDAY}": 10}
    assert counted(tmp_path, WHOLE, "jobs") == {whole(TUESDAY, TUESDAY): 20, whole(MONDAY, WEDNESDAY): 30}


def test_a_day_that_has_nothing_any_more_loses_its_rows(engine: Engine, tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(3))
    run(engine, tmp_path)
    write_dump(tmp_path / "dump", [row for row in days_of(3) if row["finished"].date() != TUESDAY])
    run(engine, tmp_path)
    assert counted(tmp_path, HOURLY, "attempts") == {f"{day}": 10 for day in (MONDAY, WEDNESDAY)}


def test_what_is_asked_must_be_there(tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(1))
    dump, out = str(tmp_path / "dump"), str(tmp_path / "out")
    with pytest.raises(HistoryUnreadable, match="holds no dump"):
        plan(str(tmp_path / "nowhere"), out)
    with pytest.raises(InvalidInput, match="no day follows 9999-12-31: leave out --to"):
        plan(dump, out, None, date(9999, 12, 31))
    with pytest.raises(InvalidInput, match="--to 2026-01-01 is before --from 2026-01-02"):
        plan(dump, out, date(2026, 1, 2), date(2026, 1, 1))
    with pytest.raises(InvalidInput, match=f"it holds {MONDAY} to {MONDAY}"):
        plan(dump, out, TUESDAY)
    write_dump(tmp_path / "empty", [])
    with pytest.raises(InvalidInput, match="it holds none at all"):
        plan(str(tmp_path / "empty"), out)


def test_the_last_day_of_all_is_left_out(tmp_path: Path) -> None:
    last = event(2, datetime(9999, 12, 31, 12, tzinfo=UTC))
    write_dump(tmp_path / "dump", [*days_of(2), last])
    job = str(tmp_path / "dump"), str(tmp_path / "out")
    with pytest.raises(InvalidInput, match=f"has events of 9999-12-31, .*: leave them out with --to {TUESDAY}"):
        plan(*job)
    assert plan(*job, None, TUESDAY).last_day == TUESDAY


@pytest.mark.parametrize("inside", [".", "events", "events/x"])
def test_tables_do_not_go_among_the_events(tmp_path: Path, inside: str) -> None:
    write_dump(tmp_path / "dump", days_of(1))
    with pytest.raises(InvalidInput, match="is inside the dump"):
        plan(str(tmp_path / "dump"), str(tmp_path / "dump" / inside))


def test_a_folder_is_among_the_events_by_any_name(tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(1))
    (tmp_path / "link").symlink_to(tmp_path / "dump")
    for other in ("link", "link/events", "link/../dump", "link/../dump/events/x"):
        with pytest.raises(InvalidInput, match="is inside the dump"):
            plan(str(tmp_path / "dump"), str(tmp_path / other))
    plan(str(tmp_path / "dump"), str(tmp_path / "dump" / "events-of-others"))


def test_the_output_is_a_folder(tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(1))
    (tmp_path / "out").write_text("")
    with pytest.raises(InvalidInput, match="is a file: pass a folder"):
        plan(str(tmp_path / "dump"), str(tmp_path / "out"))


def test_an_output_that_can_t_be_written_to_is_reported_before_spark_starts(tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(1))
    (tmp_path / "file").write_text("")
    planned = plan(str(tmp_path / "dump"), str(tmp_path / "file" / "out"))
    with pytest.raises(FolderError, match="check the folder and its space"):
        check_output(planned)


def test_two_do_not_write_into_one_folder_at_once(tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(1))
    planned = plan(str(tmp_path / "dump"), str(tmp_path / "out"))
    seen: list[str] = []

    def meanwhile(name: str, _done: int, _of: int) -> None:
        with pytest.raises(FolderBusy, match="another analysis is already running there"):
            check_output(planned)
        with pytest.raises(FolderBusy, match="another analysis is already running there"):
            analyze(DuckDB(), planned, questions=QUESTIONS)
        seen.append(name)

    analyze(DuckDB(), planned, questions=QUESTIONS, progress=meanwhile)
    assert seen == list(QUESTIONS)


def test_what_a_killed_analysis_left_is_not_mixed_with_another_slo(tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(2))

    def planned(**how: Any) -> Plan:
        return plan(str(tmp_path / "dump"), str(tmp_path / "out"), **how)

    def killed(name: str, _done: int, _of: int) -> None:
        if name == QUESTIONS[-1]:
            raise RuntimeError

    first, made_before = planned(slo_ms=250), planned()
    with pytest.raises(RuntimeError):
        analyze(DuckDB(), first, questions=QUESTIONS, progress=killed)
    assert not (tmp_path / "out" / "analysis.json").exists()
    refused = "have --slo 250ms --objective 0.99: use another folder"
    with pytest.raises(InvalidInput, match=refused):
        planned()
    with pytest.raises(InvalidInput, match=refused):
        analyze(DuckDB(), made_before, questions=QUESTIONS)
    with pytest.raises(InvalidInput, match="have --tz UTC: use another folder"):
        planned(slo_ms=250, tz="Asia/Tokyo")
    analyze(DuckDB(), planned(slo_ms=250), questions=QUESTIONS)


def test_tables_of_two_namespaces_are_not_mixed(tmp_path: Path) -> None:
    manifest = write_dump(tmp_path / "dump", days_of(2))
    run(DuckDB(), tmp_path)
    manifest.namespace = "other"
    write_manifest(tmp_path / "dump", manifest)
    with pytest.raises(InvalidInput, match="are of the namespace 'streamdq': use another folder for 'other'"):
        run(DuckDB(), tmp_path)


@pytest.mark.thorough
def test_what_spark_can_t_do_is_reported_without_java_s_trace(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dump(tmp_path / "dump", days_of(1))

    def wrong(*_: Any) -> int:
        with spark_errors("wrong"):
            return len(spark.sql("SELECT raise_error('no such thing')").collect())

    monkeypatch.setattr(SparkAnswers, "rows", wrong)
    with pytest.raises(AnalysisError, match=r"wrong: .*no such thing") as raised:
        analyze(Spark(spark), plan(str(tmp_path / "dump"), str(tmp_path / "out")), questions=QUESTIONS)
    assert "\tat " not in str(raised.value)
    assert not (tmp_path / "out" / "analysis.json").exists()
