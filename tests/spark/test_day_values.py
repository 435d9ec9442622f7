"""What is kept of each day answers as its events do: the questions about the last two weeks read the events of the days
asked for alone, and their tables are those of an analysis that has nothing from before.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamdq.dump.local import LocalFolder
from streamdq.errors import FolderError
from streamdq_spark import reading
from streamdq_spark.analysis import Plan, analyze, events_to_read, plan
from streamdq_spark.answered import HOURS, Record
from streamdq_spark.day_values import VALUES, is_split, keep
from streamdq_spark.dump_files import Dump, open_dump
from streamdq_spark.events import read_files
from streamdq_spark.measures import SLO_MS
from streamdq_spark.questions import COMPARED, QUESTIONS, History
from streamdq_spark.reading import Known
from streamdq_spark.table_files import table_files
from streamdq_spark.waiting import Waiting
from tests.spark.dumps import START, as_row, event, write_dump, write_manifest
from tests.spark.frames import assert_same, rows_of, written
from tests.spark.logs import random_log
from tests.spark.shared import SharedSpark

Rows = list[dict[str, Any]]
DAYS = [(START + timedelta(days=n)).date() for n in range(19)]
LAST = DAYS[-1]
BY_DAY = {name: QUESTIONS[name] for name in sorted(VALUES.needed)}
ASKED = BY_DAY | {name: QUESTIONS[name] for name in sorted(HOURS.needed)}
HOSTS = 4


def history() -> Rows:
    """Two groups, retries whose jobs live over midnight, attempts of hours and of two days, hosts of which one is
    worse, and bursts around midnight. The last event is in the last hour of a day.
    """
    chance = random.Random(3)
    rows = [as_row(e) for e in random_log(seed=21, jobs=900, weeks=2.8)]
    for row in rows:
        if row["consumer"]:
            row["consumer"] = f"host{chance.randrange(3)}-{chance.randrange(2)}-0123456789"
    for day in range(19):
        midnight = START + timedelta(days=day)
        for n in range(24 * HOSTS):
            host, hour = divmod(n, 24)
            bad = host == 0 and chance.random() < 0.7
            at = midnight + timedelta(hours=hour, minutes=1 + host)
            rows.append(
                event(
                    10_000 + 1000 * day + n, at, topic="steady", consumer=f"host{host}-7-abcdefghij",
                    event="retry" if bad else "done", error="OSError" if bad else None,
                    started=at - timedelta(milliseconds=10 + n + 200 * bad),
                )
            )  # fmt: skip
        rows += [
            event(
                50_000 + 100 * day + n, (at := midnight + timedelta(seconds=n - 5)) + timedelta(hours=took),
                topic="around", started=at, due=at, consumer=f"w{n % 2}",
            )
            for took in (0.01, 3, 40)
            for n in range(4)
        ]  # fmt: skip
    end = datetime.combine(LAST, time(23, 40), UTC)
    rows = [row for row in rows if START <= row["finished"] <= end] + [event(1, end, topic="steady")]
    return sorted(rows, key=lambda row: row["finished"])


@pytest.fixture(scope="module")
def folder(shared_spark: SharedSpark, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With what runs of the days before the last have left."""
    made = tmp_path_factory.mktemp("kept")
    write_dump(made / "dump", history(), hours_each=24)
    analyze(shared_spark.session(), of(made, DAYS[0], DAYS[-3]), questions=ASKED)
    analyze(shared_spark.session(), of(made, DAYS[-2], DAYS[-2]), questions=ASKED)
    return made


def of(folder: Path, first: date, last: date, out: str = "out", **settings: Any) -> Plan:
    return plan(str(folder / "dump"), str(folder / out), first, last, **settings)


def known(folder: Path, dump: Dump, slo_ms: int = SLO_MS) -> Known:
    out = LocalFolder(folder / "out")
    return Known(HOURS.days(out, dump, slo_ms), VALUES.days(out, dump, slo_ms))


def days_read(folder: Path, dump: Dump, name: str) -> set[date]:
    found = reading.reading(dump, LAST, LAST, QUESTIONS[name], known(folder, dump))
    return {file.day for file in found.files}


def after(days: timedelta) -> Callable[[Rows], Rows]:
    end = START + days
    return lambda rows: [row for row in rows if row["finished"] < end] + [event(2, end, topic="steady")]


def with_late_ones(rows: Rows) -> Rows:
    at = datetime.combine(DAYS[-6], time(20), UTC)
    return rows + [
        event(90_000 + n, at, event="dead", error="Late", topic="steady", consumer="host1-7-abcdefghij")
        for n in range(30)
    ]


@dataclass(frozen=True)
class Case:
    """The dump of the last day, how it differs from that which the runs before saw, and the days that are read."""

    read: set[date]
    dump: Callable[[Rows], Rows] = lambda rows: rows
    without: date | None = None
    settings: dict[str, Any] = field(default_factory=dict)


HALVES = (f"{LAST}T00:00..{LAST}T12:00", f"{LAST}T12:00..{LAST}T23:00")
CASES = {
    "nothing else": Case({LAST}),
    "late events of a day before": Case({LAST, DAYS[-6]}, with_late_ones),
    "a day was deleted": Case({LAST}, without=DAYS[-4]),
    "it ends in the midst of a day": Case({LAST, DAYS[-8], DAYS[-15]}, after(timedelta(days=18, hours=13, minutes=5))),
    "other questions": Case({LAST}, settings={"objective": 0.9, "tz": "America/New_York", "compare": HALVES}),
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_next_day_is_as_if_all_were_read(spark: SparkSession, folder: Path, tmp_path: Path, case: Case) -> None:
    shutil.copytree(folder / "out", tmp_path / "out")
    rows = case.dump(history())
    manifest = write_dump(tmp_path / "dump", rows, hours_each=24)
    manifest.files = [file for file in manifest.files if f"dt={case.without}" not in file.path]
    write_manifest(tmp_path / "dump", manifest)
    (tmp_path / "out" / "measured.json").unlink()  # which would refuse another objective
    asked = ASKED | ({"compared": COMPARED} if "compare" in case.settings else {})
    for name in BY_DAY:
        assert days_read(tmp_path, open_dump(str(tmp_path / "dump")), name) == case.read
    run = of(tmp_path, LAST, LAST, **case.settings)
    assert events_to_read(run, BY_DAY) == sum(row["finished"].date() in case.read for row in rows)
    analyze(spark, run, questions=asked)
    analyze(spark, of(tmp_path, LAST, LAST, "apart", **case.settings), questions=asked)
    for name in asked:
        found, wanted = (rows_of(written(tmp_path / out / name / f"dt={LAST}")) for out in ("out", "apart"))
        assert wanted
        assert_same(found, wanted)
    assert known(tmp_path, run.dump).values >= set(DAYS[-14:]) - {DAYS[-4]}, "for the day after"


@pytest.mark.thorough
def test_the_history_has_what_it_takes(folder: Path) -> None:
    rows = rows_of(written(folder / "out" / "hosts"))
    assert {(row["host"], row["verdict"]) for row in rows if row["measure"] == "failed"} >= {("host0", "bad")}
    assert {row["verdict"] for row in rows_of(written(folder / "out" / "error_classes"))} > {"too little"}
    assert len({row["group"] for row in rows_of(written(folder / "out" / "capacity"))}) > 1
    assert {row["verdict"] for row in rows_of(written(folder / "out" / "changes"))} > {"too little"}


@pytest.mark.thorough
def test_what_is_kept_is_no_table_and_of_two_weeks_at_most(folder: Path) -> None:
    kept = {
        path.split("/")[1].removeprefix("dt=") for path in table_files(LocalFolder(folder / "out"), "values-by-day")
    }
    assert kept == {str(day) for day in DAYS[3:-1]}
    assert known(folder, open_dump(str(folder / "dump"))).values == set(DAYS[3:-1])
    assert known(folder, open_dump(str(folder / "dump")), SLO_MS + 1).values == set()


@pytest.mark.thorough
def test_what_another_version_kept_is_not_used(folder: Path) -> None:
    out, dump = LocalFolder(folder / "out"), open_dump(str(folder / "dump"))
    assert replace(VALUES, version=VALUES.version + 1).days(out, dump, SLO_MS) == set()
    of_older = Known(HOURS.days(out, dump, SLO_MS))
    for name in BY_DAY:
        read = reading.reading(dump, LAST, LAST, QUESTIONS[name], of_older)
        assert {file.day for file in read.files} == set(DAYS[-15:])


@pytest.mark.thorough
def test_what_a_killed_run_wrote_does_not_count_twice(
    spark: SparkSession, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder / "dump", tmp_path / "dump")
    shutil.copytree(folder / "out", tmp_path / "out")
    run = of(tmp_path, LAST, LAST)

    def fails(*_: object) -> None:
        raise FolderError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(Record, "remember", fails)
        with pytest.raises(FolderError):
            analyze(spark, run, questions=ASKED)
    assert LAST not in known(tmp_path, run.dump).values
    values = tmp_path / "out" / "values-by-day" / f"dt={LAST}"
    assert list(values.glob("*.parquet")), "so that it would count twice"
    analyze(spark, run, questions=ASKED)
    assert LAST in known(tmp_path, run.dump).values
    assert len(list(values.glob("*.parquet"))) == 1


@pytest.mark.thorough
def test_what_a_killed_write_left_is_not_put_beside(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """Hadoop's committer takes the tasks of a killed job for those of the next one in the same folder."""
    shutil.copytree(folder / "dump", tmp_path / "dump")
    shutil.copytree(folder / "out", tmp_path / "out")
    values = tmp_path / "out" / "values-by-day"
    (written,) = (values / f"dt={DAYS[-2]}").glob("*.parquet")
    for left in ("_temporary/0/task_202601231200007001234567890123456_0009_m_000000", ".spark-staging-7d5c"):
        (values / left / f"dt={LAST}").mkdir(parents=True)
        shutil.copy(written, values / left / f"dt={LAST}" / "part-0.parquet")
    analyze(spark, of(tmp_path, LAST, LAST), questions=ASKED)
    assert len(list((values / f"dt={LAST}").glob("*.parquet"))) == 1
    assert {path.name[:3] for path in values.iterdir() if path.is_dir()} == {"dt="}


@pytest.mark.thorough
def test_a_day_whose_values_were_removed_by_hand_is_read(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "dump", tmp_path / "dump")
    shutil.copytree(folder / "out", tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "values-by-day" / f"dt={DAYS[-5]}")
    shutil.rmtree(tmp_path / "out" / "throughput" / f"dt={DAYS[-6]}")
    shutil.rmtree(tmp_path / "out" / "punctuality" / f"dt={DAYS[-7]}")
    run = of(tmp_path, LAST, LAST)
    assert days_read(tmp_path, run.dump, "changes") == {LAST, DAYS[-5]}
    assert days_read(tmp_path, run.dump, "capacity") == {LAST, DAYS[-5], DAYS[-6], DAYS[-7]}


@pytest.mark.thorough
def test_what_was_kept_of_days_goes_after_four_weeks(spark: SparkSession, tmp_path: Path) -> None:
    days = [START + timedelta(days=n) for n in (0, 1, 27, 28)]
    write_dump(tmp_path / "dump", [event(n, day, topic="t") for n, day in enumerate(days)], hours_each=24)
    dump, out = open_dump(str(tmp_path / "dump")), LocalFolder(tmp_path / "out")
    left = []
    for day in days:
        files = dump.between(day.date(), day.date())
        history = History(read_files(spark, dump, files))
        keep(history, out, files, set(), SLO_MS)
        history.forget()
        found = {path.parent.name for path in (tmp_path / "out" / "values-by-day").rglob("*.parquet")}
        assert found == {f"dt={day}" for day in VALUES.days(out, dump, SLO_MS)}
        left.append(len(found))
    assert left == [1, 2, 3, 3]
    later = START + timedelta(days=70)
    write_dump(tmp_path / "dump", [event(0, later, topic="t")], hours_each=24)
    dump = open_dump(str(tmp_path / "dump"))
    history = History(read_files(spark, dump, dump.files))
    keep(history, out, dump.files, set(), SLO_MS, looked_at={days[-1].date()})
    history.forget()
    found = {path.parent.name for path in (tmp_path / "out" / "values-by-day").rglob("*.parquet")}
    assert found == {f"dt={day.date()}" for day in (*days[1:], later)}, "those before are a run's that looks at one"


@pytest.mark.thorough
def test_some_of_the_questions_keep_nothing(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "dump", tmp_path / "dump")
    analyze(spark, of(tmp_path, LAST, LAST), questions={"changes": QUESTIONS["changes"]})
    assert not (tmp_path / "out" / "values-by-day").exists()


@pytest.mark.thorough
def test_with_what_waits_capacity_reads_when_attempts_were_enqueued(folder: Path) -> None:
    run = of(folder, LAST, LAST)
    dump, waiting = run.dump, Waiting([], datetime.now(UTC))
    two_weeks = sum(file.rows for file in dump.files if file.day >= DAYS[-15])
    assert events_to_read(run, {"capacity": QUESTIONS["capacity"]}, waiting) == two_weeks
    others = {name: asked for name, asked in BY_DAY.items() if name != "capacity"}
    assert events_to_read(run, others, waiting) == sum(file.rows for file in dump.files if file.day == LAST)


def test_a_day_of_two_weeks_is_split() -> None:
    for last in (START, START + timedelta(hours=13), START + timedelta(days=1, milliseconds=-1)):
        last_ms = round(last.timestamp() * 1000)
        for ago in range(22):
            day = datetime.combine((START - timedelta(days=ago)).date(), time.min, UTC)
            hours = [day + timedelta(hours=n) for n in range(24)]
            weeks = {(last.replace(minute=0, second=0, microsecond=0) - hour) // timedelta(weeks=1) for hour in hours}
            assert is_split(day.date(), last_ms) == (len(weeks) > 1)


@pytest.mark.thorough
def test_what_is_kept_does_not_grow_with_jobs(spark: SparkSession, tmp_path: Path) -> None:
    """Ten times as many that took as long."""
    sizes = []
    for each in (100, 1000):
        rows = [
            event(n, START + timedelta(seconds=n * 86_000 // each), consumer=f"w{n % 3}", topic=f"t{n % 2}")
            for n in range(each)
        ]
        write_dump(tmp_path / f"dump{each}", rows, hours_each=24)
        run = plan(str(tmp_path / f"dump{each}"), str(tmp_path / f"out{each}"))
        analyze(spark, run, questions=ASKED)
        sizes.append(written(tmp_path / f"out{each}" / "values-by-day").num_rows)
    assert sizes[1] < 2 * sizes[0]
