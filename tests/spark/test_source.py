"""History read straight from Redis: what Spark sees is what the queue recorded, all of it, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamdq import Queue
from streamdq.errors import InvalidInput
from streamdq.store.history.rows import HistoryRow
from streamdq_spark.errors import HistoryLost
from streamdq_spark.source import HistoryReader, Options, Part, register, rows_of
from streamdq_spark.streams import BEGIN, Standing, StreamReader
from tests.servers import Server
from tests.spark.test_sink import catch_up
from tests.waiting import HANG_S

pytestmark = pytest.mark.thorough
TOPICS = {"order.close": 2, "refund.check": 1}


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture
def queue(redis_server: Server) -> Iterator[Queue]:
    with Queue(redis_server.url) as opened:
        for topic, shards in TOPICS.items():
            opened.configure(topic, shards=shards)
        yield opened


def happen(queue: Queue, count: int, first: int = 0) -> None:
    """So many events: jobs that are cancelled, and every fiftieth one that is done or buried."""
    for n in range(first, first + count):
        topic = list(TOPICS)[n % 2]
        queue.enqueue(topic, {"n": n}, id=f"j{n}", delay="1h" if n % 50 else 0)
        if n % 50:
            assert queue.cancel(topic, f"j{n}")
            continue
        claim = queue.take(topic, timeout=HANG_S)
        assert claim
        if n // 50 % 2:
            claim.bury("no")
        else:
            claim.finish()


def recorded(queue: Queue) -> list[tuple[Any, ...]]:
    """The history as the library reads it."""
    rows: list[HistoryRow] = []
    for topic in TOPICS:
        page = queue.history(topic)
        while page.rows:
            rows += page.rows
            page = queue.history(topic, page.after)
    return sorted(
        (r.topic, r.shard, r.entry, str(r.event), r.id, r.group, r.finished_ms, r.reason or None) for r in rows
    )


def seen(frame: DataFrame) -> list[tuple[Any, ...]]:
    columns = ["topic", "shard", "entry", "event", "id", "group", "unix_millis(finished)", "reason"]
    return sorted(tuple(row) for row in frame.selectExpr(*columns).collect())


def read(spark: SparkSession, queue_url: str, **options: Any) -> DataFrame:
    return spark.read.format("streamdq").options(url=queue_url, **options).load()


def test_a_batch_has_all_that_was_recorded(spark: SparkSession, queue: Queue, redis_server: Server) -> None:
    happen(queue, 200)
    expected = recorded(queue)
    assert len(expected) == 200
    frame = read(spark, redis_server.url, rows_per_partition=20)
    assert seen(frame) == expected
    parts = HistoryReader(Options.read({"url": redis_server.url, "rows_per_partition": "20"})).partitions()
    assert len(parts) > len(TOPICS) + 1
    assert seen(read(spark, redis_server.url, topic="refund.check")) == [r for r in expected if r[0] == "refund.check"]
    assert seen(frame.where("topic = 'refund.check'")) == [r for r in expected if r[0] == "refund.check"]
    assert seen(frame.where("topic = 'no.such'")) == []
    assert seen(frame) == expected  # what one use filters, another has


def test_from_and_to_are_exact(spark: SparkSession, queue: Queue, redis_server: Server) -> None:
    happen(queue, 60)
    expected = recorded(queue)
    when = sorted(int(row[2].partition("-")[0]) for row in expected)
    start, end = (datetime.fromtimestamp(when[n] / 1000, UTC).isoformat() for n in (20, 40))
    chosen = [row for row in expected if when[20] <= int(row[2].partition("-")[0]) < when[40]]
    assert chosen
    assert seen(read(spark, redis_server.url, **{"from": start, "to": end, "rows_per_partition": 5})) == chosen


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "2026-01-01"}, "option 'form' is unknown; options are"),
        ({"from": "yesterday"}, "option from: 'yesterday' is not a day or time"),
        ({"rows_per_partition": "0"}, "not a positive number"),
        ({"fail_on_loss": "maybe"}, "neither true nor false"),
    ],
)
def test_bad_options_are_reported(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Options.read(options)


# -- following it


@pytest.fixture
def followed(newest: Server) -> Iterator[Queue]:
    with Queue(newest.url) as opened:
        for topic, shards in TOPICS.items():
            opened.configure(topic, shards=shards)
        yield opened


@pytest.fixture
def follow(spark: SparkSession, newest: Server, tmp_path: Path) -> Callable[..., list[tuple[Any, ...]]]:
    """Goes on with a stream into files until it has all there is; returns what the files hold."""

    def once(**options: Any) -> list[tuple[Any, ...]]:
        catch_up(spark, newest.url, tmp_path, **options)
        return seen(spark.read.parquet(str(tmp_path / "*.parquet")))

    return once


Follow = Callable[..., list[tuple[Any, ...]]]


def trim(server: Server, topics: dict[str, int], to: int) -> None:
    with server.client() as client:
        for topic, shards in topics.items():
            for shard in range(shards):
                client.xtrim(f"streamdq:{{{topic}:{shard}}}:history", maxlen=to, approximate=False)


def test_a_stream_goes_on_where_it_stopped(followed: Queue, follow: Follow) -> None:
    happen(followed, 30)
    assert follow() == recorded(followed)
    followed.configure("late.comer", create=True)
    happen(followed, 30, first=30)  # while nobody reads
    assert follow() == recorded(followed)
    assert len(recorded(followed)) == 60


def test_what_was_trimmed_unread_stops_it(followed: Queue, follow: Follow, newest: Server) -> None:
    happen(followed, 20)
    follow()
    happen(followed, 40, first=20)
    trim(newest, TOPICS, 1)
    with pytest.raises(StreamingQueryException, match=r"entries had been trimmed.*fail_on_loss"):
        follow()
    assert {row[2] for row in recorded(followed)} <= {row[2] for row in follow(fail_on_loss="false")}


def test_a_topic_that_began_since_must_be_whole(followed: Queue, follow: Follow, newest: Server) -> None:
    happen(followed, 20)
    follow()
    followed.configure("new", create=True)
    for n in range(10):
        followed.enqueue("new", n, id=f"{n}", delay="1h")
        followed.cancel("new", f"{n}")
    trim(newest, {"new": 1}, 4)
    with pytest.raises(StreamingQueryException, match=r"6 of 10 entries had been trimmed.*fail_on_loss"):
        follow()
    assert sorted(row[4] for row in follow(fail_on_loss="false") if row[0] == "new") == ["6", "7", "8", "9"]


def test_a_redis_that_went_back_is_reported(newest: Server) -> None:
    options = Options.read({"url": newest.url})
    with Queue(newest.url) as queue:
        happen(queue, 20)
        with StreamReader(newest.url, "streamdq") as streams:
            now = streams.standings()["order.close:0"]
    with pytest.raises(HistoryLost, match="gone back to an older state"):
        list(rows_of(Part(now.topic, now.shard, BEGIN, now.last, now.written - 1), options))


def test_what_was_trimmed_when_it_had_been_read_does_not(followed: Queue, follow: Follow, newest: Server) -> None:
    happen(followed, 20)
    follow()
    before = recorded(followed)
    trim(newest, TOPICS, 0)
    happen(followed, 20, first=20)
    assert follow() == sorted(before + recorded(followed))


def test_an_offset_is_what_it_was_made_of() -> None:
    standing = Standing("a:b", 3, "5-1", 7, "9-1", "6-0", 4)
    assert Standing.of_offset("a:b:3", standing.as_offset()) == standing
