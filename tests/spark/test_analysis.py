"""A dump's tables: what they hold, and what running it again does."""

import re
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamdq.dump.open_folder import open_folder
from streamdq.errors import FolderBusy, FolderError, HistoryUnreadable, InvalidInput
from streamdq_spark.analysis import Plan, analyze, check_output, plan
from streamdq_spark.dump_files import open_dump
from streamdq_spark.errors import AnalysisError
from streamdq_spark.events import EVENTS, read_few, read_files
from streamdq_spark.questions import Context, History, Question
from streamdq_spark.summary import Summary
from streamdq_spark.tables import read_table
from tests.spark.dumps import START, days_of, event, write_dump

MONDAY = START.date()
TUESDAY, WEDNESDAY = MONDAY + timedelta(1), MONDAY + timedelta(2)


def by_hour(history: History, _: Context) -> DataFrame:
    return history.events.groupBy("topic", F.date_trunc("hour", "finished").alias("hour")).agg(F.count("*").alias("n"))


def in_all(history: History, context: Context) -> DataFrame:
    return history.events.agg(F.count("*").alias("n"), F.lit(str(context.first_day)).alias("since"))


QUESTIONS = {
    "by_hour": Question("by_hour", by_hour, day="hour"),
    "in_all": Question("in_all", in_all),
    "with_day_before": Question("with_day_before", in_all, lookback=timedelta(days=1)),
}


def run(spark: SparkSession, folder: Path, first: date | None = None, last: date | None = None) -> Summary:
    return analyze(spark, plan(str(folder / "dump"), str(folder / "out"), first, last), questions=QUESTIONS)


def rows(spark: SparkSession, folder: Path, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in read_table(spark, open_folder(str(folder / "out")), table).collect())


def whole(n: int, first: date, last: date) -> tuple[Any, ...]:
    """The row of a question that looks at the whole time."""
    return n, str(first), str(last), str(first)


@pytest.mark.thorough
def test_each_question_gets_its_table(spark: SparkSession, tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(3))
    summary = run(spark, tmp_path)
    assert (summary.events, summary.files, summary.first_day, summary.last_day) == (30, 30, MONDAY, WEDNESDAY)
    assert summary.tables == {"by_hour": 30, "in_all": 1, "with_day_before": 1}
    assert rows(spark, tmp_path, "in_all") == [whole(30, MONDAY, WEDNESDAY)]
    folders = sorted(path.name for path in (tmp_path / "out" / "by_hour").glob("dt=*"))
    assert folders == [f"dt={day}" for day in (MONDAY, TUESDAY, WEDNESDAY)]
    assert all(len(list((tmp_path / "out" / "by_hour" / name).glob("*.parquet"))) == 1 for name in folders)


@pytest.mark.thorough
def test_what_a_killed_analysis_left_is_gone_after_the_next(spark: SparkSession, tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(1))
    run(spark, tmp_path)
    before = {name: rows(spark, tmp_path, name) for name in QUESTIONS}
    left = tmp_path / "out" / "by_hour" / ".spark-staging-7d5c" / f"dt={MONDAY}" / "part-0.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PAR1")
    run(spark, tmp_path)
    assert not list((tmp_path / "out" / "by_hour").glob(".*/"))
    assert {name: rows(spark, tmp_path, name) for name in QUESTIONS} == before


@pytest.mark.thorough
def test_many_events_are_read_by_spark_and_not_by_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dump(tmp_path / "dump", days_of(3))
    run(spark, tmp_path)
    before = {name: rows(spark, tmp_path, name) for name in QUESTIONS}
    by_driver = Mock()
    monkeypatch.setattr("streamdq_spark.reading.read_few", by_driver)
    monkeypatch.setattr("streamdq_spark.reading.FEW_EVENTS", 30)
    run(spark, tmp_path)
    assert not by_driver.called
    assert {name: rows(spark, tmp_path, name) for name in QUESTIONS} == before


@pytest.mark.thorough
def test_questions_in_several_threads_read_the_events_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dump(tmp_path / "dump", days_of(3))
    another, calls = Barrier(2), []

    def counted(*what: Any) -> DataFrame:
        calls.append(what)
        with suppress(BrokenBarrierError):
            another.wait(1)  # so that another thread has the time to read them as well
        return read_few(*what)

    monkeypatch.setattr("streamdq_spark.reading.read_few", counted)
    monkeypatch.setattr("streamdq_spark.analysis._AT_ONCE", 3)
    summary = run(spark, tmp_path)
    assert len(calls) == 1
    assert list(summary.tables) == list(QUESTIONS)


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


def test_a_day_again_leaves_the_others_alone(spark: SparkSession, tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(3))
    run(spark, tmp_path)
    files = {path: path.read_bytes() for path in (tmp_path / "out" / "by_hour").glob("dt=*/*.parquet")}
    more = [row | {"entry": row["entry"] + "9"} for row in days_of(3)]
    write_dump(tmp_path / "dump", days_of(3) + more)
    summary = run(spark, tmp_path, TUESDAY, TUESDAY)
    assert summary.events == 20
    counted = {day: n for *_, n, day in rows(spark, tmp_path, "by_hour")}
    assert counted == {str(MONDAY): 1, str(TUESDAY): 2, str(WEDNESDAY): 1}
    kept = [path for path in files if path.exists() and path.read_bytes() == files[path]]
    assert {path.parent.name for path in kept} == {f"dt={MONDAY}", f"dt={WEDNESDAY}"}
    of_both_runs = [whole(20, TUESDAY, TUESDAY), whole(30, MONDAY, WEDNESDAY)]
    assert rows(spark, tmp_path, "in_all") == of_both_runs
    assert whole(40, TUESDAY, TUESDAY) in rows(spark, tmp_path, "with_day_before")


@pytest.mark.thorough
def test_a_day_that_has_nothing_any_more_loses_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(3))
    run(spark, tmp_path)
    write_dump(tmp_path / "dump", [row for row in days_of(3) if row["finished"].date() != TUESDAY])
    run(spark, tmp_path)
    assert {row[-1] for row in rows(spark, tmp_path, "by_hour")} == {str(MONDAY), str(WEDNESDAY)}


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


def test_an_output_that_can_t_be_written_to_is_told_before_spark_starts(tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(1))
    (tmp_path / "file").write_text("")
    planned = plan(str(tmp_path / "dump"), str(tmp_path / "file" / "out"))
    with pytest.raises(FolderError, match="check the folder and its space"):
        check_output(planned)


@pytest.mark.thorough
def test_two_do_not_write_into_one_folder_at_once(spark: SparkSession, tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(1))
    planned = plan(str(tmp_path / "dump"), str(tmp_path / "out"))
    seen: list[str] = []

    def meanwhile(name: str, _done: int, _of: int) -> None:
        with pytest.raises(FolderBusy, match="another analysis is already running there"):
            check_output(planned)
        with pytest.raises(FolderBusy, match="another analysis is already running there"):
            analyze(spark, planned, questions=QUESTIONS)
        seen.append(name)

    analyze(spark, planned, questions=QUESTIONS, progress=meanwhile)
    assert seen == list(QUESTIONS)
    assert len(rows(spark, tmp_path, "by_hour")) == 10


@pytest.mark.thorough
def test_what_a_killed_analysis_left_is_not_mixed_with_another_slo(spark: SparkSession, tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(2))

    def planned(**how: Any) -> Plan:
        return plan(str(tmp_path / "dump"), str(tmp_path / "out"), **how)

    def killed(name: str, _done: int, _of: int) -> None:
        if name == last:
            raise RuntimeError

    last = list(QUESTIONS)[-1]
    first, made_before = planned(slo_ms=250), planned()
    with pytest.raises(RuntimeError):
        analyze(spark, first, questions=QUESTIONS, progress=killed)
    assert not (tmp_path / "out" / "analysis.json").exists()
    refused = "have --slo 250ms --objective 0.99: use another folder"
    with pytest.raises(InvalidInput, match=refused):
        planned()
    with pytest.raises(InvalidInput, match=refused):
        analyze(spark, made_before, questions=QUESTIONS)
    with pytest.raises(InvalidInput, match="have --tz UTC: use another folder"):
        planned(slo_ms=250, tz="Asia/Tokyo")
    analyze(spark, planned(slo_ms=250), questions=QUESTIONS)


def test_what_spark_can_t_do_is_told_without_java_s_trace(spark: SparkSession, tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(1))
    wrong = Question(
        "wrong", lambda history, _: history.events.select(F.raise_error(F.lit("no such thing")).alias("n"))
    )
    with pytest.raises(AnalysisError, match=r"wrong: .*no such thing") as raised:
        analyze(spark, plan(str(tmp_path / "dump"), str(tmp_path / "out")), questions={"wrong": wrong})
    assert "\tat " not in str(raised.value)
    assert not (tmp_path / "out" / "analysis.json").exists()
