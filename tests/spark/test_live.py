"""The table of the last hour: each event counts once, however often the query is killed, and what comes late counts or
does not as it says.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from streamdq import Queue, Worker
from streamdq.dump.local import LocalFolder
from streamdq.errors import InvalidInput
from streamdq.keys import NamespaceKeys
from streamdq.times.clock import wall_ms
from streamdq_spark.events import EVENTS
from streamdq_spark.live import CHECKPOINT, TABLE, Live, _add, by_minute, follow, into_table
from tests.children import child
from tests.dumps import row_text, write_rows
from tests.servers import Server
from tests.spark import plain
from tests.spark.conftest import Command
from tests.spark.dumps import EPOCH, happened_in
from tests.spark.frames import assert_same, frame
from tests.spark.logs import MONDAY, done, random_log
from tests.spark.plain import HOUR, Happened, Table
from tests.spark.shared import GIVEN_UP_S

MINUTE = 60_000


def minutes(log: Iterable[Happened], slo: int = 1000) -> Table:
    """By plain Python."""
    table = []
    ended = [e for e in log if e.event in plain.ENDED]
    for (minute, topic, group), rows in plain.by(ended, lambda e: (e.finished // MINUTE, e.topic, e.group)).items():
        waits = [wait for e in rows if (wait := plain.lateness(e)) is not None]
        late = sum(wait > slo for wait in waits)
        table.append(
            {
                "minute": minute * MINUTE, "topic": topic, "group": group, "attempts": len(rows),
                "done": sum(e.event == "done" for e in rows), "failed": sum(e.event != "done" for e in rows),
                "dead": sum(e.event == "dead" for e in rows), "late": late, "late_share": plain.ratio(late, len(waits)),
                "p50_ms": plain.quantile(waits, 0.5), "p99_ms": plain.quantile(waits, 0.99),
            }
        )  # fmt: skip
    return table


def as_hours(rows: Table) -> Table:
    """So that rows of the same topic are told apart by `assert_same`."""
    return [{"hour" if key == "minute" else key: value for key, value in row.items()} for row in rows]


def last_hour(rows: Table) -> Table:
    newest = max(row["minute"] for row in rows)
    return [row for row in rows if row["minute"] > newest - HOUR]


def assert_is(found: Table, log: Iterable[Happened], slo: int = 1000) -> None:
    in_ms = [{**row, "minute": round((row["minute"] - EPOCH).total_seconds() * 1000)} for row in found]
    assert_same(as_hours(in_ms), as_hours(last_hour(minutes(log, slo))))


def read_live(folder: Path | str) -> Table:
    """As any program sees it."""
    return pq.ParquetFile(Path(folder) / TABLE).read().to_pylist()


class Source:
    """Events that come as files, one a batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder / "events"
        self.folder.mkdir()
        self.batches = 0

    def come(self, log: Iterable[Happened]) -> None:
        """Each call is a batch."""
        self.batches += 1
        frame(self.spark, log).coalesce(1).write.parquet(str(self.folder / f"n={self.batches:03}"))

    def counted(self, table: Path, **options: Any) -> list[Live]:
        """Counts what there is; returns the batches."""
        reported: list[Live] = []
        files = self.spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).parquet(f"{self.folder}/*")
        query = into_table(files, str(table), tell=reported.append, **options).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return reported


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    return Source(spark, tmp_path)


def busy_hour() -> list[Happened]:
    """Some thousand attempts of three topics, within 80 minutes."""
    return [
        e._replace(finished=at, started=e.started and at - 20, due=e.due and at - 20 - (n % 40) * 50, entry=f"{at}-{n}")
        for n, e in enumerate(random_log(seed=11, jobs=1500))
        for at in [MONDAY + n * 90 * MINUTE // 3000]
    ]


@pytest.mark.thorough
def test_it_is_what_a_batch_and_plain_python_count(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    log = busy_hour()
    for begin in range(0, len(log), len(log) // 3 + 1):
        source.come(log[begin : begin + len(log) // 3 + 1])
    source.counted(tmp_path / "live", slo_ms=700)
    found = read_live(tmp_path / "live")
    assert_is(found, log, 700)
    assert len({row["minute"] for row in found}) == 60
    assert len({row["minute"] for row in minutes(log)}) > 65
    batch = {
        (row["minute"], row["topic"], row["group"]): row.asDict() for row in by_minute(frame(spark, log), 700).collect()
    }
    assert len({row["minute"] for row in minutes(log)}) > 65
    batch = by_minute(frame(spark, log), 700).toArrow().to_pylist()
    for row in found:
        assert row in batch


@pytest.mark.thorough
def test_what_comes_late_counts_within_the_watermark_and_not_after_it(source: Source, tmp_path: Path) -> None:
    """The watermark is ten minutes before the last event of earlier batches; a minute is let go when it has ended
    before that.
    """
    last = MONDAY + 30 * MINUTE + 30_000
    in_time, too_late = last - 10 * MINUTE - 30_000 + 1, last - 11 * MINUTE - 30_001
    assert (in_time // MINUTE + 1) * MINUTE > last - 10 * MINUTE > (too_late // MINUTE + 1) * MINUTE
    first = [done("t", MONDAY + n * MINUTE, id=f"a{n}") for n in range(30)] + [done("t", last, id="last")]
    source.come(first)
    source.counted(tmp_path / "live")
    assert_is(read_live(tmp_path / "live"), first)
    within = [done("t", in_time, id=f"b{n}") for n in range(5)]
    after = [done("t", too_late, id=f"c{n}") for n in range(3)]
    source.come(within + after)
    source.counted(tmp_path / "live")
    assert_is(read_live(tmp_path / "live"), first + within)


def test_a_batch_that_is_in_the_table_changes_nothing(tmp_path: Path) -> None:
    """As after a kill between its table and Spark's note that it is done."""
    target = LocalFolder(tmp_path)
    logs = [[done("t", MONDAY + n * 10_000 + i, id=f"{i}.{n}") for n in range(30) for i in range(n % 3 + part)]
            for part in (1, 2)]  # fmt: skip

    def batch(number: int) -> list[dict[str, Any]]:
        log = [e for own in logs[: number + 1] for e in own]
        return [{**row, "minute": EPOCH + timedelta(milliseconds=row["minute"])} for row in minutes(log)]

    _add(target, batch(0), 0, 1000)
    _add(target, batch(1), 1, 1000)
    after = (tmp_path / TABLE).read_bytes()
    assert _add(target, batch(1), 1, 1000).changed == []
    assert (tmp_path / TABLE).read_bytes() == after
    assert_is(read_live(tmp_path), [*logs[0], *logs[1]])


@pytest.mark.thorough
@pytest.mark.parametrize("written", [True, False])
def test_a_batch_that_is_repeated_changes_nothing(source: Source, tmp_path: Path, *, written: bool) -> None:
    """What a kill leaves between its table, written or not, and Spark's note that it is done."""
    table = tmp_path / "live"
    logs = [[done("t", MONDAY + n * 10_000 + i, id=f"{part}.{n}.{i}") for n in range(30) for i in range(part + 1)]
            for part in range(3)]  # fmt: skip
    source.come(logs[0])
    source.counted(table)
    before = (table / TABLE).read_bytes()
    noted = max(map(int, (file.name for file in (table / CHECKPOINT / "commits").glob("[0-9]*"))))
    source.come(logs[1])
    source.counted(table)
    after = (table / TABLE).read_bytes()
    assert before != after
    # After the batch there was another one without events, as the watermark had moved.
    for kind, last in (("commits", noted), ("offsets", noted + 1)):
        for file in (table / CHECKPOINT / kind).glob("*"):
            number = file.name.removesuffix(".crc").lstrip(".")
            if number.isdigit() and int(number) > last:
                file.unlink()
    if not written:
        (table / TABLE).write_bytes(before)
    source.counted(table)
    assert_is(read_live(table), logs[0] + logs[1])
    source.come(logs[2])
    source.counted(table)
    assert_is(read_live(table), logs[0] + logs[1] + logs[2])


@pytest.mark.thorough
def test_it_does_not_go_on_where_it_can_t_know(source: Source, tmp_path: Path) -> None:
    table = tmp_path / "live"
    source.come([done("t", MONDAY)])
    source.counted(table)
    with pytest.raises(InvalidInput, match="has --slo 1000ms"):
        source.counted(table, slo_ms=5)
    content = (table / TABLE).read_bytes()
    (table / TABLE).unlink()
    with pytest.raises(InvalidInput, match="has a _checkpoint but no minutes"):
        source.counted(table)
    (table / TABLE).write_bytes(content)
    (table / CHECKPOINT).rename(tmp_path / "gone")
    with pytest.raises(InvalidInput, match="has a table but no _checkpoint"):
        source.counted(table)


# -- from Redis


@pytest.fixture
def queue(newest: Server) -> Iterator[Queue]:
    with Queue(newest.url) as opened:
        opened.configure("order.close", shards=2, retry="none")
        yield opened


def happen(queue: Queue, url: str, first: int, count: int = 30) -> None:
    """So many jobs are done, a fifth of them given up."""
    worker = Worker(url)

    @worker.handler("order.close")
    async def close(number: int) -> None:
        if number % 5 == 0:
            raise ConnectionError

    for number in range(first, first + count):
        queue.enqueue("order.close", number, id=f"j{number}")
    worker.run(burst=True)


KILLED = """
import os, signal, sys
from streamdq_spark import live
from streamdq_spark.session import session, settings_for
url, folder, step, nth = sys.argv[1:]
add, seen = live._add, 0

def then_killed(target, rows, number, slo_ms):
    global seen
    seen += bool(rows)
    if step == "before it is written" and seen == int(nth):
        os.killpg(0, signal.SIGKILL)
    found = add(target, rows, number, slo_ms)
    if step == "before it is noted" and seen == int(nth):
        os.killpg(0, signal.SIGKILL)
    return found

def tell(found):
    print(found.batch, flush=True)

live._add = then_killed
with session("local[1]", settings=settings_for(1)) as spark:
    live.follow(spark, folder, url, None, every_ms=10, tell=tell)
"""


@pytest.mark.thorough
def test_killed_again_and_again_it_counts_each_event_once(
    spark: SparkSession, queue: Queue, newest: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "live"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    happen(queue, newest.url, 0)
    for round_, step in enumerate(("before it is written", "before it is noted", "any moment"), 1):
        command = [sys.executable, "-c", KILLED, newest.url, str(folder), step, "2"]
        with child(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout
            assert process.stdout.readline()
            happen(queue, newest.url, round_ * 100)
            if step == "any moment":
                os.killpg(process.pid, signal.SIGKILL)
            assert process.wait(GIVEN_UP_S) == -signal.SIGKILL
    happen(queue, newest.url, 400)
    assert follow(spark, str(folder), newest.url, None, once=True)
    log = list(happened_in(queue, "order.close"))
    assert len(log) == 5 * 30
    assert_is(read_live(folder), log)


@pytest.mark.thorough
@pytest.mark.usefixtures("queue")
def test_it_says_that_events_came_too_late(spark: SparkSession, newest: Server, tmp_path: Path) -> None:
    shard = NamespaceKeys("streamdq").shard("order.close", 0)
    now_ms = wall_ms()
    with newest.client() as client:
        write_rows(client, shard, 5, begin_ms=now_ms, step_ms=1)
        assert follow(spark, str(tmp_path), newest.url, None, once=True)
        before = read_live(tmp_path)
        # Entries follow each other in any case; the clock by which these events finished was set back.
        client.xadd(shard.history, {"e": row_text("late", now_ms - HOUR // 2)}, id=f"{now_ms + 10}-0")
        client.hincrby(shard.counts, "history", 1)
        assert not follow(spark, str(tmp_path), newest.url, None, once=True)
    assert read_live(tmp_path) == before
    assert sum(row["attempts"] for row in before) == 5


# -- the command


@pytest.mark.thorough
def test_the_command_counts_the_hour(command: Command, queue: Queue, newest: Server, tmp_path: Path) -> None:
    happen(queue, newest.url, 0)
    code, said, err = command("--url", newest.url, "live", "--output", tmp_path / "live", "--once", "--json")
    assert (code, err) == (0, "")
    reported = [json.loads(line) for line in said.splitlines()]
    assert sum(row["attempts"] for row in reported[-1]["rows"]) == 30
    assert_is(read_live(tmp_path / "live"), happened_in(queue, "order.close"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--every", "0"), "every: must be at least 1 ms"),
        (("--slo", "0"), "slo: must be"),
        (("--latest", "x"), "latest"),
    ],
)
def test_bad_input_is_reported_in_one_line(
    command: Command, newest: Server, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    code, out, err = command("--url", newest.url, "live", "--output", tmp_path, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
