"""A stream into files: a reader of the folder, with any program, finds each event once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from streamdq import Queue
from streamdq.errors import InvalidInput
from streamdq_spark import sink
from streamdq_spark.sink import CHECKPOINT, into_files
from streamdq_spark.source import register
from tests.children import child
from tests.servers import Server
from tests.spark.shared import GIVEN_UP_S

KEY = ["topic", "shard", "entry", "event", "id"]


@pytest.fixture
def queue(newest: Server) -> Iterator[Queue]:
    with Queue(newest.url) as opened:
        opened.configure("order.close", shards=2)
        yield opened


def happen(queue: Queue, first: int, count: int = 20) -> None:
    for n in range(first, first + count):
        queue.enqueue("order.close", n, id=f"j{n}", delay="1h")
        assert queue.cancel("order.close", f"j{n}")


def recorded(queue: Queue) -> list[tuple[Any, ...]]:
    rows, page = [], queue.history("order.close")
    while page.rows:
        rows += page.rows
        page = queue.history("order.close", page.after)
    return sorted((row.topic, row.shard, row.entry, str(row.event), row.id) for row in rows)


def seen(folder: Path) -> list[tuple[Any, ...]]:
    """As programs without Spark see it: one that takes `*.parquet`, and one that takes the folder."""
    files = [pq.ParquetFile(file).read(KEY) for file in sorted(folder.glob("**/*.parquet"))]
    found = sorted(tuple(row.values()) for table in files for row in table.to_pylist())
    from pyarrow import dataset  # which loads pandas

    whole = dataset.dataset(folder, format="parquet").to_table(columns=KEY) if files else pa.table({})
    assert found == sorted(tuple(row.values()) for row in whole.to_pylist())
    return found


def catch_up(spark: SparkSession, url: str, folder: Path, **options: Any) -> None:
    register(spark)
    rows = spark.readStream.format("streamdq").options(url=url, **options).load()
    query = into_files(rows, str(folder)).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()


KILLED = """
import os, signal, sys
from streamdq_spark import sink
from streamdq_spark.session import session, settings_for
from streamdq_spark.source import register
url, folder, step = sys.argv[1:]
write = sink._write_batch

def then_killed(batch, folder, path):
    if step == "before it is written" and "01." in path:
        os.killpg(0, signal.SIGKILL)
    write(batch, folder, path)
    if step == "before it is noted" and "01." in path:
        os.killpg(0, signal.SIGKILL)

sink._write_batch = then_killed
with session("local[1]", settings=settings_for(1)) as spark:
    register(spark)
    rows = spark.readStream.format("streamdq").option("url", url).load()
    query = sink.into_files(rows, folder).trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    print("first", flush=True)
    query.awaitTermination()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("step", ["before it is written", "before it is noted"])
def test_killed_between_the_steps_it_loses_and_repeats_nothing(
    spark: SparkSession, queue: Queue, newest: Server, tmp_path: Path, step: str
) -> None:
    folder = tmp_path / "rows"
    happen(queue, 0)
    command = [sys.executable, "-c", KILLED, newest.url, str(folder), step]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with child(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        assert process.stdout.readline() == "first\n"
        happen(queue, 20)
        assert process.wait(GIVEN_UP_S) == -signal.SIGKILL
    killed = seen(folder)
    assert len(killed) > 20 if step == "before it is noted" else len(killed) == 20
    assert set(killed) <= set(recorded(queue))
    happen(queue, 40)
    catch_up(spark, newest.url, folder)
    assert seen(folder) == recorded(queue)


@pytest.mark.thorough
def test_rows_without_their_checkpoint_are_not_added_to(
    spark: SparkSession, queue: Queue, newest: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    happen(queue, 0)
    catch_up(spark, newest.url, folder)
    shutil.rmtree(folder / CHECKPOINT)
    with pytest.raises(InvalidInput, match="has rows but no _checkpoint"):
        catch_up(spark, newest.url, folder)
    assert seen(folder) == recorded(queue)


def test_a_batch_is_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "ROW_GROUP", 10)
    parts = [pa.RecordBatch.from_pydict({"n": list(range(size))}) for size in (4, 0, 6, 25, 3)]
    assert sink._write(parts, str(tmp_path), "rows-1.parquet") == 38
    file = pq.ParquetFile(tmp_path / "rows-1.parquet")
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [10, 25, 3]
    assert sink._write([], str(tmp_path), "rows-2.parquet") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["rows-1.parquet"]
