"""Writes a stream of history into Parquet files that any program may read, each event once.

Spark's own Parquet sink guarantees that only to readers that know its log (`_spark_metadata`): files of an interrupted
batch stay beside those of its repetition. Here a batch is one file with its own name, which appears completely or not
at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame

from streamdq.dump.arrow import parquet_options
from streamdq.dump.folder import Folder
from streamdq.dump.open_folder import open_folder
from streamdq.errors import FolderError, InvalidInput

from .places import check_reach, spark_url
from .session import pandas_unnoticed

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

CHECKPOINT = "_checkpoint"  # readers of Parquet ignore it because of the underscore
ROW_GROUP = 100_000


def into_files(rows: DataFrame, folder: str) -> DataStreamWriter:
    """What writes the rows of a stream into a folder or URL; `.start()` starts it, `.trigger(…)` says how often.

    Batch 7 is `rows-000000000007.parquet`. The checkpoint is in the folder, too: with it a batch has the same rows when
    it is repeated, so one that has its file is done. A crash leaves whole files, and no event twice; the next start
    writes the batch that is missing.

    Raises:
        InvalidInput: the folder has rows, and no checkpoint that says up to where.
        AnalysisError: Spark can't reach the folder.
    """
    target = open_folder(folder)
    check_reach(rows.sparkSession, target)
    if _batches(target) and not target.files(CHECKPOINT):
        raise InvalidInput(f"{target.url} has rows but no {CHECKPOINT}, which says up to where: use another folder")

    def write(batch: DataFrame, number: int) -> None:
        _write_batch(batch, folder, f"rows-{number:012}.parquet")

    return rows.writeStream.foreachBatch(write).option("checkpointLocation", spark_url(target, CHECKPOINT))


def _batches(folder: Folder) -> list[str]:
    return [path for path in folder.files("") if path.startswith("rows-") and path.endswith(".parquet")]


def _write_batch(batch: DataFrame, folder: str, path: str) -> None:
    """Writes the batch, unless its file exists: then it was written before a crash, and Spark does not know."""
    if _is_there(open_folder(folder), path):
        return

    def write(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"written": [_write(parts, folder, path)]})

    # One task writes the file, in bounded memory.
    with pandas_unnoticed():
        task = batch.repartition(1).mapInArrow(write, "written long")
    task.collect()


def _is_there(folder: Folder, path: str) -> bool:
    try:
        folder.size(path)
    except FolderError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return False
        raise
    return True


def _write(parts: Iterable[pa.RecordBatch], folder: str, path: str) -> int:
    """Writes the file and returns the number of rows; writes no file if there are none. Runs in a worker."""
    groups = _groups(parts)
    first = next(groups, None)
    if first is None:
        return 0
    written = int(first.num_rows)
    with (
        open_folder(folder).writing(path) as file,
        parquet.ParquetWriter(file, first.schema, **parquet_options()) as writer,
    ):
        writer.write_table(first)
        for group in groups:
            writer.write_table(group)
            written += int(group.num_rows)
    return written


def _groups(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of a good size for a file."""
    kept: list[pa.RecordBatch] = []
    for part in parts:
        if part.num_rows:
            kept.append(part)
        if sum(one.num_rows for one in kept) >= ROW_GROUP:
            yield pa.Table.from_batches(kept)
            kept = []
    if kept:
        yield pa.Table.from_batches(kept)
