"""A table of the last hour, minute by minute, that a streaming query keeps up to date.

The query follows the history in Redis. What it has counted is in its checkpoint, together with how far it has read; so
each event counts once, wherever it is killed. The table is one file, replaced as a whole after each batch. It holds the
number of the last batch that went into it: a batch that is repeated after a kill changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamdq.dump.arrow import parquet_options
from streamdq.dump.folder import Folder
from streamdq.dump.open_folder import open_folder
from streamdq.errors import InvalidInput
from streamdq.times.clock import wall_now

from .failures import spark_errors
from .measures import SLO_MS
from .places import check_reach, spark_url
from .source import NAME, register

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TABLE, CHECKPOINT = "minutes.parquet", "_checkpoint"
KEPT = timedelta(hours=1)
LATEST_MS = 600_000
"""An event is counted if it comes at most so much later than others that finished after it."""
_MINUTE = timedelta(minutes=1)
_BATCH, _SLO = b"streamdq.batch", b"streamdq.slo_ms"
_SCHEMA = pa.schema(
    [
        ("minute", pa.timestamp("us", tz="UTC")), ("topic", pa.string()), ("group", pa.string()),
        *((name, pa.int64()) for name in ("attempts", "done", "failed", "dead", "late")), ("late_share", pa.float64()),
        ("p50_ms", pa.float64()), ("p99_ms", pa.float64()),
    ]
)  # fmt: skip

Row = dict[str, Any]
Tell = Callable[["Live"], None]


@dataclass(frozen=True, slots=True)
class Live:
    """The table as a batch left it. ``batch``: its number; ``changed``: those of the rows that it brought."""

    batch: int
    rows: list[Row]
    changed: list[Row]


def follow(
    spark: SparkSession,
    folder: str,
    url: str | None,
    namespace: str | None,
    *,
    every_ms: int = 10_000,
    once: bool = False,
    slo_ms: int = SLO_MS,
    latest_ms: int = LATEST_MS,
    stopping: Callable[[], bool] = lambda: False,
    tell: Tell | None = None,
) -> bool:
    """Keeps the table of this Redis up to date until ``stopping``, or only until all that there is has been counted
    (``once``). It begins with what was recorded in the last hour. Returns whether all events were counted: false if
    some came too late.

    Raises:
        InvalidInput, AnalysisError, FolderError: see ``into_table``.
        FolderBusy: another process does the same.
        SparkFailed: Redis can't be reached, history was trimmed before it was read, or Spark failed. The next start
            goes on where this one ended.
    """
    register(spark)
    begin = wall_now().replace(second=0, microsecond=0) - KEPT + _MINUTE
    asked = {"url": url, "namespace": namespace, "from": begin.isoformat()}
    events = spark.readStream.format(NAME).options(**{k: v for k, v in asked.items() if v}).load()
    late: set[int] = set()  # batches
    with open_folder(folder).lock("live", "another live table"), spark_errors("live"):
        writer = into_table(events, folder, slo_ms=slo_ms, latest_ms=latest_ms, tell=tell)
        query = writer.trigger(processingTime=f"{every_ms} milliseconds").start()
        try:
            if once:
                query.processAllAvailable()
            while not (once or stopping()):
                query.awaitTermination(1)
                late |= _with_late_events(query)
            late |= _with_late_events(query)
        finally:
            query.stop()
    return not late


def _with_late_events(query: StreamingQuery) -> set[int]:
    """The latest batches from which Spark has left something out. How many events that were it does not know, as it
    has added them up already.
    """
    return {
        progress["batchId"]
        for progress in query.recentProgress
        if any(state["numRowsDroppedByWatermark"] for state in progress["stateOperators"])
    }


def by_minute(events: DataFrame, slo_ms: int = SLO_MS) -> DataFrame:
    """By the minute (UTC) in which attempts ended, topic and group: attempts, done, failed, dead (of the failed), late:
    how many started later than ``slo_ms``, late_share: of those whose lateness is known, p50_ms and p99_ms: of the
    lateness, exact. Of a batch, or of a stream that has a watermark.
    """
    minute = F.timestamp_seconds(F.floor(F.unix_seconds("finished") / 60) * 60)
    start = F.window("finished", "1 minute") if events.isStreaming else F.struct(minute.alias("start"))
    late = f"count_if(late_ms > {slo_ms})"
    counted = (
        events.where("event IN ('done', 'retry', 'dead')")
        .withColumn("late_ms", F.expr("unix_millis(started) - unix_millis(due)"))
        .groupBy(start.alias("window"), "topic", "group")
        .agg(
            F.expr("count(*)").alias("attempts"),
            F.expr("count_if(event = 'done')").alias("done"),
            F.expr("count_if(event <> 'done')").alias("failed"),
            F.expr("count_if(event = 'dead')").alias("dead"),
            F.expr(late).alias("late"),
            F.expr(f"{late} / nullif(count(late_ms), 0)").alias("late_share"),
            F.expr("percentile(late_ms, array(0.5D, 0.99D))").alias("levels"),
        )
    )
    return counted.select(
        F.col("window.start").alias("minute"), "topic", "group", "attempts", "done", "failed", "dead", "late",
        "late_share", F.get("levels", F.lit(0)).alias("p50_ms"), F.get("levels", F.lit(1)).alias("p99_ms"),
    )  # fmt: skip


def into_table(
    events: DataFrame, folder: str, *, slo_ms: int = SLO_MS, latest_ms: int = LATEST_MS, tell: Tell | None = None
) -> DataStreamWriter:
    """What keeps the table in the folder or URL up to date from this stream of events; `.start()` starts it. ``tell``
    is called after each batch, with the table.

    An event that comes after its minute ended more than ``latest_ms`` before the last event of earlier batches is not
    counted: Spark has let go of that minute. A crash leaves the table as one batch or the next left it; the next start
    goes on.

    Raises:
        InvalidInput: the folder has a table and no checkpoint, or the other way round, or a table of another SLO.
        AnalysisError: Spark can't reach the folder.
    """
    target = open_folder(folder)
    check_reach(events.sparkSession, target)
    _check(target, slo_ms)

    def write(batch: DataFrame, number: int) -> None:
        found = _add(target, batch.toArrow().to_pylist(), number, slo_ms)
        if tell:
            tell(found)

    counted = by_minute(events.withWatermark("finished", f"{latest_ms} milliseconds"), slo_ms)
    return (
        counted.writeStream.outputMode("update")
        .foreachBatch(write)
        .option("checkpointLocation", spark_url(target, CHECKPOINT))
    )


def _check(target: Folder, slo_ms: int) -> None:
    table, goes_on = _read(target), bool(target.files(f"{CHECKPOINT}/commits"))
    if table is not None and not target.files(CHECKPOINT):
        raise InvalidInput(f"{target.url} has a table but no {CHECKPOINT}, which says up to where: use another folder")
    if table is None and goes_on:
        raise InvalidInput(f"{target.url} has a {CHECKPOINT} but no {TABLE}, which it goes on with: use another folder")
    if table is not None and (had_ms := int(table.schema.metadata[_SLO])) != slo_ms:
        raise InvalidInput(f"the table in {target.url} has --slo {had_ms}ms: use another folder for another SLO")


def _read(target: Folder) -> pa.Table | None:
    content = target.read(TABLE)
    return None if content is None else parquet.read_table(BytesIO(content))


def _add(target: Folder, rows: list[Row], number: int, slo_ms: int) -> Live:
    """Replaces the rows of these minutes, unless the batch is in the table already: then it was written before a crash,
    and Spark does not know.
    """
    before = _read(target)
    had = before.to_pylist() if before is not None else []
    if before is not None and int(before.schema.metadata[_BATCH]) >= number:
        return Live(number, had, [])
    merged = {_key(row): row for row in (*had, *rows)}
    newest = max((row["minute"] for row in merged.values()), default=None)
    kept = [merged[key] for key in sorted(merged) if newest and merged[key]["minute"] > newest - KEPT]
    if rows or before is None:
        _write(target, kept, number, slo_ms)
    return Live(number, kept, rows)


def _key(row: Row) -> tuple[datetime, str, str]:
    return row["minute"], row["topic"], row["group"] or ""


def _write(target: Folder, rows: list[Row], number: int, slo_ms: int) -> None:
    held = {_BATCH: str(number), _SLO: str(slo_ms)}
    content = BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows, _SCHEMA.with_metadata(held)), content, **parquet_options())
    target.write(TABLE, content.getvalue())
