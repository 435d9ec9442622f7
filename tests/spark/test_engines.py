"""DuckDB and Spark calculate the same tables: of made-up histories, of one that the queue has lived, and of another
random one in each run. Which engine is taken, and why.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import date, timedelta
from io import StringIO
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamdq.dump.local import LocalFolder
from streamdq.dump.open_folder import open_folder
from streamdq.errors import InvalidInput, MissingExtra
from streamdq_spark.analysis import analyze, chosen, plan
from streamdq_spark.dump_files import open_dump
from streamdq_spark.engines.base import Engine
from streamdq_spark.engines.choice import OF_A_GIB, Name, choose
from streamdq_spark.engines.duck import DuckDB
from streamdq_spark.engines.spark import Spark, SparkAnswers, together
from streamdq_spark.questions import COMPARED, QUESTIONS, Statement, statement_of, views
from tests.spark.dumps import as_row, write_dump
from tests.spark.frames import assert_same, rows_of, written
from tests.spark.lived import live
from tests.spark.logs import MONDAY, corners, done, random_log
from tests.spark.plain import DAY, WEEK, Happened
from tests.spark.shared import SharedSpark

TABLES = (*QUESTIONS, COMPARED)
FEW = ("punctuality", "retries")
"""Tables of events and of what is kept of them."""
SEED = random.randrange(10**6)
"""Of this run's history; `pytest -k seed` shows it in the test's name."""


@dataclass(frozen=True)
class Asked:
    first: date | None
    last: date | None
    how: dict[str, Any]


def made_up(dump: Path) -> Asked:
    """All that can happen to a job, at random; of some attempts nobody knows when they were moved."""
    log = [
        e._replace(moved=None) if e.due is not None and n % 17 == 0 else e
        for n, e in enumerate(random_log(seed=11, jobs=2500) + [e for e in corners() if e.group])
    ]
    at = MONDAY + 4 * WEEK
    log += [done("behind", at + n, id=f"b{n}", due=at - 5000) for n in range(9)]
    write_dump(dump, map(as_row, log), hours_each=24)
    return Asked(None, None, {"compare": ("2026-01-05..2026-01-18", "2026-01-19..2026-02-08")})


def some_days(dump: Path, seed: int = 5, jobs: int = 9000) -> Asked:
    """Of a longer history, with other events before and after, by the clocks of Paris, which change in them."""
    weeks = 11
    log = [e._replace(**later(e, 4 * 7 * DAY)) for e in random_log(seed=seed, jobs=jobs, weeks=weeks)]
    write_dump(dump, map(as_row, log), hours_each=24)
    first = date(2026, 1, 5) + timedelta(weeks=4 + weeks - 3)
    last = first + timedelta(days=12)
    half = first + timedelta(days=6)
    spans = f"{first}T03:00..{half}T02:30", f"{half}T02:30..{last}T20:00"
    return Asked(first, last, {"slo_ms": 250, "objective": 0.9, "tz": "Europe/Paris", "compare": spans})


def another(dump: Path) -> Asked:
    return some_days(dump, SEED, 3000)


def later(e: Happened, ms: int) -> dict[str, Any]:
    times = {name: getattr(e, name) for name in ("created", "due", "moved", "started", "finished")}
    moved = {name: value + ms for name, value in times.items() if value is not None}
    number = e.entry.partition("-")[2]
    return moved | {"entry": f"{moved['finished']}-{number}"}


def lived(dump: Path) -> Asked:
    """What the queue itself has written."""
    live(dump)
    assert not any(file.impossible for file in open_dump(str(dump)).files)
    return Asked(None, None, {"compare": ("2026-01-05..2026-01-05", "2026-01-06..2026-01-06")})


HISTORIES: dict[str, Callable[[Path], Asked]] = {
    "made_up": made_up, "some_days": some_days, "lived": lived, f"seed {SEED}": another
}  # fmt: skip


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, id=name.partition(" ")[0], marks=[pytest.mark.thorough]) for name in HISTORIES],
)
def both(request: pytest.FixtureRequest, shared_spark: SharedSpark, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engines")
    asked = HISTORIES[request.param](folder / "dump")
    engines: dict[str, Engine] = {"duckdb": DuckDB(), "spark": Spark(shared_spark.session())}
    for name, engine in engines.items():
        wanted = plan(str(folder / "dump"), str(folder / name), asked.first, asked.last, **asked.how)
        analyze(engine, wanted, questions=chosen((), compare=True))
    return folder


@pytest.mark.parametrize("name", TABLES)
def test_both_engines_give_the_same_table(name: str, both: Path) -> None:
    mine, theirs = (written(both / engine / name) for engine in ("duckdb", "spark"))
    columns = [[(column.name, column.type) for column in table.schema] for table in (mine, theirs)]
    assert columns[0] == columns[1], SEED
    assert_same(rows_of(mine), rows_of(theirs))
    assert {path.parent for path in (both / "duckdb" / name).rglob("*.parquet")} == {
        both / "duckdb" / path.parent.relative_to(both / "spark") for path in (both / "spark" / name).rglob("*.parquet")
    }


def test_spark_gives_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", map(as_row, random_log(seed=3, jobs=300, weeks=2)), hours_each=24)
    for name, engine in (("duckdb", DuckDB()), ("spark", Spark(spark))):
        analyze(engine, plan(str(tmp_path / "dump"), str(tmp_path / name)), questions=FEW)
    for table in FEW:
        assert_same(*(rows_of(written(tmp_path / name / table)) for name in ("duckdb", "spark")))


def test_spark_keeps_what_several_tables_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not if its text has a WITH: Spark does not recognise it in a query that has one, too, and computes it anew."""
    own = {"retry_waits": "lag(", "jobs": "greatest((done#"}
    computed: dict[str, list[str]] = {}
    count, one_at_a_time = SparkAnswers._count, Lock()

    def noted(self: SparkAnswers, statement: Statement) -> pa.Table:
        rows = count(self, statement)
        with one_at_a_time, redirect_stdout(StringIO()) as printed:
            spark.sql(self._query(statement)).explain("extended")
        optimized = printed.getvalue().partition("== Optimized Logical Plan ==")[2].partition("==")[0]
        views = own.keys() & set(statement.sources)
        assert all(own[view] in optimized for view in views), optimized
        computed[statement.name] = [view for view, part in own.items() if part in without_kept(optimized)]
        return rows

    monkeypatch.setattr(SparkAnswers, "_count", noted)
    write_dump(tmp_path / "dump", map(as_row, random_log(seed=3, jobs=300, weeks=2)), hours_each=24)
    readers = [name for name in QUESTIONS if set(statement_of(name).sources) & own.keys()]
    assert len(readers) > 2 * len(own)
    analyze(Spark(spark), plan(str(tmp_path / "dump"), str(tmp_path / "out")), questions=readers)
    assert {name: computed[name] for name in readers} == {name: [] for name in readers}


def without_kept(query: str) -> str:
    """The plan without what it reads from memory."""
    found, kept_at = [], None
    for line in query.splitlines():
        at = next((n for n, letter in enumerate(line) if letter.isalpha()), 0)
        if kept_at is None or at <= kept_at:
            kept_at = at if "InMemoryRelation" in line else None
            found.append(line)
    return "\n".join(found)


@pytest.mark.thorough
def test_many_events_are_read_by_spark_and_not_by_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up(tmp_path / "dump")
    some = ("punctuality", "capacity")
    monkeypatch.setattr("streamdq_spark.engines.spark.FEW_EVENTS", 1)
    monkeypatch.setattr("streamdq_spark.engines.spark.read_few", None)
    for name, engine in (("duckdb", DuckDB()), ("spark", Spark(spark))):
        analyze(engine, plan(str(tmp_path / "dump"), str(tmp_path / name)), questions=some)
    for table in some:
        assert_same(*(rows_of(written(tmp_path / name / table)) for name in ("duckdb", "spark")))


# -- which engine

HERE, THERE = (LocalFolder(Path("dump")), LocalFolder(Path("out"))), open_folder("memory://dump")


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    monkeypatch.setattr("streamdq_spark.engines.choice.find_spec", lambda name: None if name in packages else name)


def test_what_fits_is_calculated_here() -> None:
    assert choose(Name.AUTO, HERE, 30_000) == (Name.DUCKDB, "30,000 events are few enough for this machine")


def test_what_is_elsewhere_or_too_large_is_spark_s() -> None:
    assert choose(Name.AUTO, (HERE[0], THERE), 10) == (Name.SPARK, "memory://dump is not on this machine")
    found, why = choose(Name.AUTO, HERE, 2 * OF_A_GIB + 1, memory=2 << 30)
    assert (found, why) == (Name.SPARK, f"{2 * OF_A_GIB + 1:,} events are many for 2.0 GiB of memory")
    assert choose(Name.AUTO, HERE, 10, "local[2]")[0] is Name.SPARK


def test_what_spark_submit_started_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert choose(Name.AUTO, HERE, 10) == (Name.SPARK, "spark-submit has started it")


def test_what_is_not_installed_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pyspark")
    assert choose(Name.AUTO, (HERE[0], THERE), 10) == (Name.DUCKDB, "PySpark is not installed")
    with pytest.raises(MissingExtra, match=r"streamdq\[spark\]"):
        choose(Name.SPARK, HERE, 10)
    without(monkeypatch, "duckdb")
    for asked, extra in ((Name.AUTO, "analytics"), (Name.SPARK, "spark")):
        with pytest.raises(MissingExtra, match=rf"streamdq\[{extra}\]"):
            choose(asked, HERE, 10)


def test_a_master_is_for_spark() -> None:
    with pytest.raises(InvalidInput, match="--master yarn is for Spark"):
        choose(Name.DUCKDB, HERE, 10, "yarn")


def test_spark_collects_values_once_for_all_their_percentiles() -> None:
    taken = (
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) AS x, "
        "percentile_cont(0.99) WITHIN GROUP (ORDER BY a - coalesce(b, 0)) FROM t"
    )
    assert together(taken) == (
        "SELECT percentile(a, array(0.5, 0.99))[0] AS x, percentile(a - coalesce(b, 0), array(0.5, 0.99))[1] FROM t"
    )
    for name in (*TABLES, *views()):
        assert "percentile_cont" not in together(statement_of(name).text), name
