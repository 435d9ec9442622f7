"""`streamdq sql`: DuckDB and Spark give the same answers, and those of plain Python."""

import json
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import gettempdir

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from streamdq.dump.local import LocalFolder
from streamdq.dump.open_folder import open_folder
from streamdq_spark.commands.sql import _by_duckdb
from streamdq_spark.days import open_days
from streamdq_spark.engines.choice import Name
from streamdq_spark.sql import Source, by_spark, duck, tables_in
from streamdq_spark.sql.examples import EXAMPLES
from tests.extras import run_without
from tests.spark import plain
from tests.spark.conftest import Command
from tests.spark.dumps import as_row, damage_pages, days_of, write_dump
from tests.spark.frames import _equal
from tests.spark.logs import MONDAY, done, random_log
from tests.spark.plain import Happened

BOTH = pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.thorough)])


@pytest.fixture(scope="module")
def log() -> list[Happened]:
    own = done("t", MONDAY + 1234, id="order-42", started=MONDAY)
    new = done("t", MONDAY + 9 * plain.DAY, event="retry", error="NewError")
    return [*random_log(seed=5, jobs=900, weeks=1), own, new]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, log: list[Happened]) -> Path:
    """A dump, and a table of an analysis; their names are such as patterns have."""
    folder = tmp_path_factory.mktemp("sql") / "it's [a] d*mp?"
    rows = [row for row in map(as_row, log) if row["created"] and row["group"]]
    write_dump(folder / "dump", rows, hours_each=24)
    for day, burn in (("2026-01-05", 2.5), ("2026-01-06", 0.5)):
        part = folder / "tables" / "punctuality" / f"quarter={day}" / "rows.parquet"
        part.parent.mkdir(parents=True)
        hour = datetime.fromisoformat(day).replace(tzinfo=UTC)
        row = {"topic": "orders", "hour": hour, "attempts": 3, "p50_ms": 1.0, "p99_ms": 2.0, "share_within_slo": 0.5,
               "budget_burn": burn, "dt": day}  # fmt: skip
        pq.write_table(pa.Table.from_pylist([row]), part)
    return folder


@pytest.fixture(scope="module")
def source(folder: Path) -> Source:
    days = open_days(str(folder / "dump"), None, None)
    tables = open_folder(str(folder / "tables"))
    return Source(days.dump, days.files, tables, tables_in(tables))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "topics" else pytest.mark.thorough) for name in EXAMPLES]
)
def test_both_answer_an_example_alike(spark: SparkSession, source: Source, name: str) -> None:
    by_duckdb, of_spark = duck.ask(source, EXAMPLES[name].query), by_spark.ask(spark, source, EXAMPLES[name].query)
    assert by_duckdb.rows
    assert by_duckdb.columns == of_spark.columns
    for mine, other in zip(by_duckdb.rows, of_spark.rows, strict=True):
        numbers = [[float(v) if isinstance(v, int | float) else v for v in row] for row in (mine, other)]
        assert _equal(*numbers), (mine, other)


def test_they_are_what_plain_python_counts(source: Source, log: list[Happened]) -> None:
    kept = [e for e in log if e.created and e.group]
    found = duck.ask(source, EXAMPLES["topics"].query)
    assert Counter({row[:3]: row[3] for row in found.rows}) == Counter((e.topic, e.group, e.event) for e in kept)
    late: dict[tuple[str, int], list[int]] = defaultdict(list)
    for e in kept:
        if (wait := plain.lateness(e)) is not None:
            late[e.topic, e.finished // plain.HOUR % 24].append(wait)
    rows = {row[:2]: row[2:] for row in duck.ask(source, EXAMPLES["lateness"].query).rows}
    assert rows.keys() == late.keys()
    for key, waits in late.items():
        wanted = [len(waits), plain.quantile(waits, 0.5), plain.quantile(waits, 0.99)]
        assert _equal(list(rows[key]), wanted)
    (life,) = duck.ask(source, EXAMPLES["one-job"].query).rows
    assert life[0] == datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=MONDAY + 1234)
    assert life[8] == 1234


def test_an_error_is_new_that_nobody_saw_a_week_before(source: Source) -> None:
    (row,) = duck.ask(source, EXAMPLES["new-errors"].query).rows
    assert row[:2] == ("t", "NewError")


def test_what_does_not_fit_into_memory_goes_to_the_temporary_folder(source: Source) -> None:
    ((folder,),) = duck.ask(source, "select current_setting('temp_directory')").rows
    assert Path(folder).parent == Path(gettempdir())
    assert not Path(folder).exists()


def test_sums_are_plain_numbers(source: Source, log: list[Happened]) -> None:
    rows = duck.ask(source, EXAMPLES["cost"].query).rows
    octets = {row[0]: row[4] for row in rows}
    assert all(type(value) is int for value in octets.values())
    kept = [e for e in log if e.created and e.group and e.event in plain.ENDED]
    for topic, own in plain.by(kept, lambda e: e.topic).items():
        assert octets[topic] == sum(e.body_bytes for e in own)
    ((half,),) = duck.ask(source, "select 0.5").rows
    assert type(half) is float


@pytest.mark.thorough
def test_days_of_an_older_version_have_no_value_where_it_had_no_column(spark: SparkSession, source: Source) -> None:
    """And what a write that was killed left is no part of a table."""
    assert isinstance(source.tables, LocalFolder)
    tables = source.tables.root.parent / "upgraded"
    for day, row in (("2026-01-05", {"topic": "a"}), ("2026-01-06", {"topic": "b", "added": 1.5}),
                     ("2026-01-07", {"topic": "c"})):  # fmt: skip
        part = tables / "retries" / f"quarter={day}" / "rows.parquet"
        part.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist([row | {"dt": day}]), part)
    for table in ("retries", "never_written"):
        left = tables / table / "quarter=2026Q1" / "_rows.parquet.tmp"
        left.parent.mkdir(parents=True)
        left.write_bytes(b"PAR1")
    folder = open_folder(str(tables))
    both = Source(source.dump, source.files, folder, tables_in(folder))
    assert both.names == ("retries",)
    query, wanted = "select topic, added from retries order by dt", [("a", None), ("b", 1.5), ("c", None)]
    assert duck.ask(both, query).rows == by_spark.ask(spark, both, query).rows == wanted


def test_only_the_requested_days_are_read(folder: Path, log: list[Happened]) -> None:
    day = datetime(2026, 1, 7, tzinfo=UTC).date()
    days = open_days(str(folder / "dump"), day, day)
    ((count,),) = duck.ask(Source(days.dump, days.files), "select count(*) from events").rows
    begin = MONDAY + 2 * plain.DAY
    assert count == sum(begin <= e.finished < begin + plain.DAY for e in log if e.created and e.group)


def test_columns_of_one_name_keep_their_values(source: Source) -> None:
    found = duck.ask(source, "select count(*), count(*) + 1 from events")
    ((one, two),) = found.rows
    assert two == one + 1


# -- the command


@BOTH
def test_the_command_answers(command: Command, folder: Path, engine: str) -> None:
    dump, how = folder / "dump", ["--engine", engine]
    code, said, _ = command("sql", dump, "select id, run_ms from events where id = 'order-42'", *how)
    assert code == 0
    assert said.splitlines()[2].split() == ["order-42", "1,234"]
    assert said.splitlines()[-1] == "1 row"
    code, said, _ = command("sql", dump, "select id, finished from events where id = 'order-42'", "--json", *how)
    assert json.loads(said) == [{"id": "order-42", "finished": "2026-01-05 00:00:01.234000+00:00"}]
    code, said, _ = command("sql", dump, "select id from events order by id", *how)
    assert "the first 100: --json has all" in said
    code, said, _ = command("sql", dump, "select * from events where id = 'order-42'", *how)
    assert "body_bytes" in said
    code, said, _ = command("sql", dump, "--tables", folder / "tables", "--example", "worst-hours", *how)
    assert (code, said.splitlines()[-1]) == (0, "1 row")


@BOTH
@pytest.mark.parametrize("query", ["selec", "select nothing from events", "select * from nowhere"])
def test_a_query_that_is_none_is_reported_in_one_line(command: Command, folder: Path, engine: str, query: str) -> None:
    code, out, err = command("sql", folder / "dump", query, "--engine", engine)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "streamdq: sql: " in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "either a query or --example"),
        ([""], "this answers nothing"),
        (["select 1", "--example", "topics"], "either a query or --example"),
        (["--example", "nope"], "no example 'nope'; there are topics"),
        (["select 1", "--from", "2030-01-01"], "no events on the requested days"),
        (["create view x as select 1", "--engine", "duckdb"], "this answers nothing"),
        (["create temporary view x as select 1", "--engine", "spark"], "this answers nothing"),
    ],
)
def test_bad_input_is_reported_in_one_line(command: Command, folder: Path, words: list[str], message: str) -> None:
    code, out, err = command("sql", folder / "dump", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    code, _, err = command("sql", folder / "dump", "select 1", "--tables", folder / "dump" / "events" / "none")
    assert code == 2
    assert "there are no tables" in err


@pytest.mark.parametrize(
    ("engine", "statement"),
    [
        ("spark", "insert overwrite local directory '{out}' using csv select * from events"),
        *(
            pytest.param("spark", statement, marks=pytest.mark.thorough)
            for statement in (
                "create table {name} as select * from events",
                "with own as (select 1 as x) insert overwrite local directory '{out}' using csv select * from own",
                "from events insert overwrite local directory '{out}' using csv select id",
                "create view {name} as select 1 as x;",
            )
        ),
        ("duckdb", "copy events to '{out}'"),
        ("duckdb", "attach '{out}' as other"),
        ("duckdb", "select 1; copy events to '{out}'"),
    ],
)
def test_what_writes_or_changes_something_is_refused_before_it_does(
    command: Command, spark: SparkSession, folder: Path, tmp_path: Path, engine: str, statement: str
) -> None:
    out, name = tmp_path / "out", "made_by_a_query"
    code, said, err = command("sql", folder / "dump", statement.format(out=out, name=name), "--engine", engine)
    assert (code, said, err.count("\n")) == (2, "", 1)
    assert "this answers nothing" in err
    assert not out.exists()
    assert not spark.catalog.tableExists(name)


@BOTH
@pytest.mark.parametrize(
    "query",
    [
        "select 1 as x;",
        "select 1 as x -- all",
        "with own as (select 1 as x) select * from own",
        "values (1)",
        "describe events",
        "show tables",
    ],
)
def test_what_answers_may_be_written_in_many_ways(command: Command, folder: Path, engine: str, query: str) -> None:
    code, said, err = command("sql", folder / "dump", query, "--engine", engine)
    assert (code, err) == (0, "")
    assert "row" in said.splitlines()[-1]


def test_a_slip_in_a_name_is_answered_with_the_names_that_there_are(command: Command, folder: Path) -> None:
    code, out, err = command("sql", folder / "dump", "select topc from events", "--engine", "duckdb")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert 'column "topc" not found' in err
    assert '"topic"' in err
    assert "select topc" not in err


@pytest.mark.parametrize(
    ("asked", "advice"),
    [
        (["--example", "worst-hours"], "--tables FOLDER"),
        (["select * from punctuality"], "--tables FOLDER"),
        (["select group, count(*) from events group by group"], 'write the column as "group"'),
        (["select id from events where group = 'default'"], 'write the column as "group"'),
    ],
)
def test_a_slip_that_the_schema_invites_is_answered_with_what_to_write(
    command: Command, folder: Path, asked: list[str], advice: str
) -> None:
    code, out, err = command("sql", folder / "dump", *asked, "--engine", "duckdb")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert advice in err


def test_other_slips_get_no_such_advice(command: Command, folder: Path) -> None:
    for query in (
        "select topic, from events group by",
        "select percentile_cont(.5) within group (order by from events",
    ):
        err = command("sql", folder / "dump", query, "--engine", "duckdb")[2]
        assert "yntax" in err
        assert "with its quotes" not in err
    there = command("sql", folder / "dump", "select * from retrys", "--tables", folder / "tables", "--engine", "duckdb")
    assert "--tables FOLDER" not in there[2]


def test_a_damaged_file_is_reported_with_what_to_do(command: Command, tmp_path: Path) -> None:
    manifest = write_dump(tmp_path, days_of(1))
    damage_pages(tmp_path / manifest.files[0].path)
    code, out, err = command("sql", tmp_path, "select * from events", "--engine", "duckdb")
    assert (code, out) == (1, "")
    assert f"{manifest.files[0].path}" in err
    assert "--quarantine" in err


def test_a_master_is_not_passed_over(command: Command, folder: Path, source: Source) -> None:
    assert _by_duckdb(Name.AUTO, source, None)
    assert not _by_duckdb(Name.AUTO, source, "local[2]")
    code, out, err = command("sql", folder / "dump", "select 1", "--engine", "duckdb", "--master", "local[2]")
    assert (code, out) == (2, "")
    assert "--master local[2] is for Spark" in err


def test_duckdb_gets_no_more_than_the_memory_that_was_asked_for(command: Command, folder: Path) -> None:
    query, how = "select current_setting('memory_limit')", ("--engine", "duckdb", "--memory")
    assert "1.9 GiB" in command("sql", folder / "dump", query, *how, "2g")[1]
    assert "is not a size" in command("sql", folder / "dump", query, *how, "much")[2]


def test_examples_are_shown(command: Command) -> None:
    code, said, _ = command("sql", "--examples")
    assert code == 0
    for name, example in EXAMPLES.items():
        assert name in said
        assert example.query in said
    assert json.loads(command("sql", "--examples", "--json")[1]).keys() == EXAMPLES.keys()


@pytest.mark.thorough
def test_duckdb_needs_no_spark(folder: Path) -> None:
    assert run_without("pyspark", "sql", str(folder / "dump"), "select count(*) from events") == (0, "")
    code, err = run_without("pyspark", "sql", str(folder / "dump"), "select 1", "--engine", "spark")
    assert code == 2
    assert "pip install 'streamdq[spark]'" in err


def test_duckdb_that_is_asked_for_and_missing_is_reported(folder: Path) -> None:
    code, err = run_without("duckdb", "sql", str(folder / "dump"), "select 1", "--engine", "duckdb")
    assert code == 2
    assert "pip install 'streamdq[analytics]'" in err
