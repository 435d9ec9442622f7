"""Events as Spark takes them, and tables as the plain calculation has them: times in ms, rows as dicts."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import TimestampType

from streamdq_spark.events import EVENTS
from streamdq_spark.table_files import DAY, FROM_DAY
from tests.spark.plain import Happened, Table

TIMES = {"created", "due", "moved", "started", "finished"}
ARROW = pa.schema([(f.name, to_arrow_type(f.dataType, timezone="UTC")) for f in EVENTS])


def frame(spark: SparkSession, log: Iterable[Happened]) -> DataFrame:
    """By Arrow, which takes thousands of rows in no time."""
    rows = [{k: None if v is None else v * 1000 if k in TIMES else v for k, v in e._asdict().items()} for e in log]
    return spark.createDataFrame(pa.Table.from_pylist(rows, ARROW), EVENTS)


def collected(table: DataFrame) -> Table:
    """Its rows; a collected timestamp would be in this process's time zone."""
    plain = [
        F.unix_millis(f.name).alias(f.name) if isinstance(f.dataType, TimestampType) else f.name for f in table.schema
    ]
    return [row.asDict() for row in table.select(*plain).collect()]


def written(table: Path) -> pa.Table:
    """What is in a table's files, without the days that say of which run a row is."""
    rows = pa.concat_tables([pq.ParquetFile(file).read() for file in sorted(table.rglob("*.parquet"))])
    return rows.drop_columns([name for name in (DAY, FROM_DAY) if name in rows.column_names])


def rows_of(table: pa.Table) -> Table:
    """As collected."""
    times = [(i, f) for i, f in enumerate(table.schema) if pa.types.is_timestamp(f.type)]
    for i, f in times:
        in_ms = table[f.name].cast(pa.timestamp("ms", f.type.tz), safe=False)
        table = table.set_column(i, f.name, in_ms.cast(pa.int64()))
    found: Table = table.to_pylist()
    return found


def assert_same(found: Table, wanted: Table) -> None:
    """The same rows in any order; shares and percentiles to nine digits."""
    keys = list((wanted or found or [{}])[0])
    assert all(list(row) == keys for row in found)
    texts = [*(k for k in keys if any(isinstance(row[k], str) for row in wanted)), "hour", "first_hour", "day", "step"]

    def place(row: dict[str, Any]) -> str:
        return repr([row.get(k) for k in texts])

    left, right = sorted(found, key=place), sorted(wanted, key=place)
    have, want = [place(row) for row in left], [place(row) for row in right]
    if have != want:  # told here, as pytest takes minutes to compare thousands of texts
        only = {"found": sorted(set(have) - set(want))[:3], "wanted": sorted(set(want) - set(have))[:3]}
        raise AssertionError(f"{len(have)} rows where there should be {len(want)}; only there: {only}")
    for mine, theirs in zip(left, right, strict=True):
        for key in keys:
            assert _equal(mine[key], theirs[key]), f"{key}: {mine[key]} is not {theirs[key]} in\n{mine}\n{theirs}"


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return bool(a == b)
