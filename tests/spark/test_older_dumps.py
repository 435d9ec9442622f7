"""A dump that an earlier release began has files without the column `key` beside those that have it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import require_manifest
from streamdq_spark.days import open_days
from streamdq_spark.dump_files import open_dump
from streamdq_spark.events import read_few, read_files
from streamdq_spark.sql import Source, by_spark, duck
from tests.dumps import as_version_1
from tests.spark.dumps import days_of, write_dump

pytestmark = pytest.mark.thorough
KEYS = [None] * 10 + ["merchant-7"] * 10


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    write_dump(tmp_path, [{**row, "key": "merchant-7"} for row in days_of(2)], hours_each=24)
    folder = LocalFolder(tmp_path)
    as_version_1(folder, [require_manifest(folder).files[0].path])
    return tmp_path


@pytest.mark.parametrize("read", [read_few, read_files])
def test_both_are_read(spark: SparkSession, dump: Path, read: object) -> None:
    opened = open_dump(str(dump))
    assert callable(read)
    rows = read(spark, opened, opened.files).orderBy("finished").select("key").collect()
    assert [row["key"] for row in rows] == KEYS


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_sql_sees_both(spark: SparkSession, dump: Path, engine: str) -> None:
    days = open_days(str(dump), None, None)
    source = Source(days.dump, days.files)
    query = "select key from events order by finished"
    found = duck.ask(source, query) if engine == "duckdb" else by_spark.ask(spark, source, query)
    assert [key for (key,) in found.rows] == KEYS
