"""A dump that can't be counted on is refused, or its bad files are left out and counted; no number is ever wrong."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from streamdq.dump.arrow import arrow_schema
from streamdq.dump.manifest import MANIFEST, Manifest
from streamdq.errors import HistoryUnreadable
from streamdq.store.history.rows import VERSION_KEY
from streamdq_spark.analysis import analyze, plan
from streamdq_spark.dump_files import open_dump
from streamdq_spark.engines.duck import DuckDB
from streamdq_spark.engines.spark import Spark
from streamdq_spark.errors import BadDump
from streamdq_spark.events import read_events
from streamdq_spark.session import FEW_EVENTS
from tests.spark.dumps import damage_pages, days_of, write_dump, write_file, write_manifest
from tests.spark.frames import rows_of, written

EVENTS_EACH, FILES = 10, 10


COUNT = ("throughput",)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    write_dump(tmp_path / "dump", days_of(1, EVENTS_EACH))
    return tmp_path / "dump"


def manifest_of(dump: Path) -> Manifest:
    return Manifest.model_validate_json((dump / MANIFEST).read_bytes())


def first_file(dump: Path) -> Path:
    return dump / manifest_of(dump).files[0].path


def rewritten(dump: Path, table: pa.Table) -> None:
    """Another table in the place of the first file, and a manifest that agrees as to its size."""
    file = first_file(dump)
    parquet.write_table(table, file)
    manifest = manifest_of(dump)
    manifest.files[0] = manifest.files[0].model_copy(update={"bytes": file.stat().st_size})
    write_manifest(dump, manifest)


def cut_off(dump: Path) -> None:
    file = first_file(dump)
    file.write_bytes(file.read_bytes()[:-20])


def cut_off_as_listed(dump: Path) -> None:
    """As if the manifest had been written after the damage."""
    cut_off(dump)
    manifest = manifest_of(dump)
    manifest.files[0] = manifest.files[0].model_copy(update={"bytes": first_file(dump).stat().st_size})
    write_manifest(dump, manifest)


def missing(dump: Path) -> None:
    first_file(dump).unlink()


def no_parquet(dump: Path) -> None:
    file = first_file(dump)
    file.write_bytes(b"x" * file.stat().st_size)


def other_version(dump: Path) -> None:
    table = parquet.read_table(first_file(dump), partitioning=None)
    rewritten(dump, table.replace_schema_metadata({VERSION_KEY: "9"}))


def no_version(dump: Path) -> None:
    table = parquet.read_table(first_file(dump), partitioning=None)
    rewritten(dump, table.replace_schema_metadata({"made by": "another program"}))


def missing_column(dump: Path) -> None:
    rewritten(dump, parquet.read_table(first_file(dump), partitioning=None).drop_columns(["due"]))


def other_type(dump: Path) -> None:
    table = parquet.read_table(first_file(dump), partitioning=None)
    at = table.schema.get_field_index("finished")
    rewritten(
        dump, table.set_column(at, pa.field("finished", pa.timestamp("ms")), table["finished"].cast(pa.timestamp("ms")))
    )


def more_rows(dump: Path) -> None:
    table = parquet.read_table(first_file(dump), partitioning=None)
    rewritten(dump, pa.concat_tables([table, table]))


def without(name: str, dump: Path) -> None:
    table = parquet.read_table(first_file(dump), partitioning=None)
    at = table.schema.get_field_index(name)
    kind = table.schema.field(at).type
    rewritten(dump, table.set_column(at, pa.field(name, kind), pa.nulls(len(table), kind)))


def no_topic(dump: Path) -> None:
    without("topic", dump)


def no_end(dump: Path) -> None:
    without("finished", dump)


def other_day(dump: Path) -> None:
    table = parquet.read_table(first_file(dump), partitioning=None)
    at = table.schema.get_field_index("finished")
    later = pc.add(table["finished"], timedelta(days=1))
    rewritten(dump, table.set_column(at, table.schema.field(at), later))


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (cut_off, r"has \d+ bytes where the manifest says \d+"),
    (cut_off_as_listed, "is no whole Parquet file"),
    (missing, "is missing"),
    (no_parquet, "is no whole Parquet file"),
    (other_version, "has schema version '9'; this streamdq reads 1"),
    (no_version, "was not written by streamdq"),
    (missing_column, "has no column 'due'"),
    (other_type, r"has 'finished' as timestamp\[ms\], not as timestamp\[us, tz=UTC\]"),
    (more_rows, "has 2 rows where the manifest says 1"),
    (no_topic, "has rows without 'topic'"),
    (no_end, "has rows without 'finished'"),
    (other_day, "has events that are not of 2026-01-05"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE, ids=[damage.__name__ for damage, _ in DAMAGE])
def test_a_bad_file_is_an_error_or_left_out(dump: Path, damage: Callable[[Path], None], message: str) -> None:
    name = manifest_of(dump).files[0].path
    damage(dump)
    with pytest.raises(BadDump, match=f"1 of the dump's {FILES} files are bad: {name} {message}"):
        open_dump(str(dump))

    opened = open_dump(str(dump), quarantine=True)
    assert (len(opened.files), len(opened.bad)) == (FILES - 1, 1)
    assert opened.bad[0].rows == 1
    assert sum(file.rows for file in opened.files) == EVENTS_EACH - 1


def test_a_file_that_is_named_twice_counts_once(dump: Path) -> None:
    manifest = manifest_of(dump)
    write_manifest(dump, manifest.model_copy(update={"files": [*manifest.files, manifest.files[3]]}))
    name = manifest.files[3].path
    with pytest.raises(BadDump, match=rf"1 of the dump's {FILES + 1} files are bad: {name} is named twice"):
        open_dump(str(dump))
    opened = open_dump(str(dump), quarantine=True)
    assert (len(opened.files), len(opened.bad)) == (FILES, 1)


@pytest.mark.parametrize(
    ("part", "other"),
    [("events", "events/."), ("/hour", "/../{day}/hour"), ("events", "{dump}/events")],
)
def test_a_file_has_one_name(dump: Path, part: str, other: str) -> None:
    """By another it would count twice."""
    manifest = manifest_of(dump)
    first = manifest.files[0]
    day = first.path.split("/")[1]
    again = first.path.replace(part, other.format(day=day, dump=dump))
    assert (dump / again).samefile(dump / first.path)
    files = [*manifest.files, first.model_copy(update={"path": again})]
    write_manifest(dump, manifest.model_copy(update={"files": files}))
    with pytest.raises(BadDump, match="is not below a folder dt=YYYY-MM-DD"):
        open_dump(str(dump))


def test_a_day_that_no_calendar_has_is_no_day(dump: Path) -> None:
    manifest = manifest_of(dump)
    other = manifest.files[0].path.replace("2026-01-05", "2026-02-30")
    (dump / other).parent.mkdir(parents=True)
    first_file(dump).rename(dump / other)
    write_manifest(dump, manifest.model_copy(update={"files": [manifest.files[0].model_copy(update={"path": other})]}))
    with pytest.raises(BadDump, match=f"{other} is not below a folder dt=YYYY-MM-DD"):
        open_dump(str(dump))


def test_numbers_are_those_of_the_good_files(dump: Path, tmp_path: Path) -> None:
    other_version(dump)
    out = tmp_path / "out"
    summary = analyze(DuckDB(), plan(str(dump), str(out), quarantine=True), questions=COUNT)
    assert (summary.events, summary.files, len(summary.quarantined)) == (EVENTS_EACH - 1, FILES - 1, 1)
    good = days_of(1, EVENTS_EACH)[1:]
    assert sum(written(out / "throughput")["done"].to_pylist()) == sum(row["event"] == "done" for row in good)
    assert "schema version '9'" in (out / "analysis.json").read_text()


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.thorough)])
def test_files_that_the_manifest_does_not_name_are_no_part_of_it(
    engine: str, dump: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    hour = first_file(dump).parent.relative_to(dump)
    write_file(dump, f"{hour}/000099.parquet", days_of(1)[:3])
    (dump / hour / "_000100.parquet.tmp").write_bytes(b"cut off")
    (dump / "events" / "notes.txt").write_text("by hand")
    opened = open_dump(str(dump))
    assert opened.unlisted == 1
    if engine == "spark":
        assert read_events(request.getfixturevalue("spark"), str(dump)).count() == EVENTS_EACH
    else:
        analyze(DuckDB(), plan(str(dump), str(tmp_path / "out")), questions=COUNT)
        rows = rows_of(written(tmp_path / "out" / "throughput"))
        assert sum(row[end] for row in rows for end in ("done", "retry", "dead")) == EVENTS_EACH


@pytest.mark.parametrize(
    ("few", "message"),
    [
        (None, ".*thrift.*"),
        *(
            pytest.param(*case, marks=pytest.mark.thorough)
            for case in ((FEW_EVENTS, ".*thrift.*"), (0, "FAILED_READ_FILE"))
        ),
    ],
)
def test_what_is_damaged_within_is_an_error_of_the_run(
    dump: Path,
    tmp_path: Path,
    few: int | None,
    message: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The footer is whole and so all checks pass; the pages are not. Few events Spark's driver reads."""
    engine = DuckDB() if few is None else Spark(request.getfixturevalue("spark"))
    if few is not None:
        monkeypatch.setattr("streamdq_spark.engines.spark.FEW_EVENTS", few)
    file = first_file(dump)
    damage_pages(file)
    with pytest.raises(BadDump, match=rf"{file.name} is damaged \({message}\); restore it, or"):
        analyze(engine, plan(str(dump), str(tmp_path / "out")), questions=COUNT)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"format": "another"}', "is not the manifest of a dump"),
        ('{"format": "streamdq dump", "schema_version": "9"}', "has schema version '9'"),
        ('{"format": "streamdq dump", "schema_version": "1", "files": [{"path": "x"}]}', "is damaged: files.0"),
    ],
)
def test_a_bad_manifest_is_an_error(dump: Path, content: str, message: str) -> None:
    (dump / MANIFEST).write_text(content)
    with pytest.raises(HistoryUnreadable, match=message):
        open_dump(str(dump), quarantine=True)


@pytest.mark.thorough
def test_the_columns_are_the_schema_s(spark: SparkSession, dump: Path) -> None:
    assert read_events(spark, str(dump)).columns == arrow_schema().names
