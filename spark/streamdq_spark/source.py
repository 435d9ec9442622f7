"""History straight from Redis, for Spark: ``spark.read.format("streamdq")`` and ``spark.readStream``.

Options: ``url`` (else $STREAMDQ_URL; every worker must reach it, so no embedded server beyond this machine),
``namespace``, ``topic`` (one, or several with commas; else all), ``from`` and ``to`` (when it was recorded: days or
times in ISO form, UTC unless they say otherwise; ``to`` is not included), ``rows_per_partition``,
and for streams ``fail_on_loss``.

    register(spark)
    spark.read.format("streamdq").option("url", "redis://host/0").load().where("finished > '2026-01-05'")

Reading a batch takes the newest entry of each shard as its end, so what is recorded meanwhile is left for the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from streamdq.config import Settings
from streamdq.errors import InvalidInput

from .errors import HistoryLost
from .events import EVENTS
from .streams import BEGIN, Standing, StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "streamdq"
ROWS_PER_PARTITION = 100_000
_ENDLESS_MS = 1 << 62


def register(spark: SparkSession) -> None:
    """Makes the format "streamdq" known to this session. Workers need streamdq installed, or sent with --py-files."""
    spark.dataSource.register(HistorySource)


class HistorySource(DataSource):
    """The history of a namespace, or of some of its topics."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return EVENTS

    def reader(self, schema: StructType) -> HistoryReader:  # noqa: ARG002
        return HistoryReader(Options.read(self.options))

    def streamReader(self, schema: StructType) -> HistoryStreamReader:  # noqa: ARG002
        if "to" in self.options:
            raise InvalidInput("option to: a stream has no end")
        return HistoryStreamReader(Options.read(self.options))


@dataclass(frozen=True, slots=True)
class Options:
    """What to read: entries recorded from ``from_ms`` on and before ``to_ms``; no topics: all."""

    url: str | None
    namespace: str
    topics: tuple[str, ...]
    from_ms: int
    to_ms: int
    rows_per_partition: int
    fail_on_loss: bool

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Options:
        known = {"url", "namespace", "topic", "from", "to", "rows_per_partition", "fail_on_loss"}
        # Spark adds some options of its own.
        if unknown := [name for name in given if name.lower() not in known and "." not in name and name != "path"]:
            raise InvalidInput(f"option {unknown[0]!r} is unknown; options are {', '.join(sorted(known))}")
        topics = tuple(topic.strip() for topic in given.get("topic", "").split(",") if topic.strip())
        return cls(
            given.get("url") or None,
            given.get("namespace") or Settings().namespace,
            topics,
            _moment_ms("from", given["from"]) if "from" in given else 0,
            _moment_ms("to", given["to"]) if "to" in given else _ENDLESS_MS,
            _positive("rows_per_partition", given.get("rows_per_partition", str(ROWS_PER_PARTITION))),
            _yes("fail_on_loss", given.get("fail_on_loss", "true")),
        )

    def opened(self) -> StreamReader:
        return StreamReader(self.url, self.namespace, self.topics)


@dataclass(frozen=True, slots=True)
class Part(InputPartition):
    """Entries of one shard after one id, up to another. ``rows``: how many there must be; None if not known."""

    topic: str
    shard: int
    after: str
    until: str
    rows: int | None = None


class HistoryReader(DataSourceReader):
    """Reads the history recorded so far."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with options.opened() as streams:
            standings = streams.standings().values()
        return [part for now in standings for part in split(now, options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        yield from rows_of(partition, self._options)


class HistoryStreamReader(DataSourceStreamReader):
    """Follows it. The offset is the last entry of each shard and how many had been written before, so that what is
    missing shows: history that was trimmed before it was read stops the query, unless ``fail_on_loss`` is off.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    def initialOffset(self) -> dict[str, Any]:
        return {}

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # the signature that all of Spark 4 supports
        with self._options.opened() as streams:
            return {key: now.as_offset() for key, now in streams.standings().items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        parts: list[Part] = []
        for key, offset in end.items():
            now = Standing.of_offset(key, offset)
            before = Standing.of_offset(key, start[key]) if key in start else None
            if before is None:
                parts += self._begun(now) if start else split(now, self._options)
            elif before.since != now.since and before.written:
                parts += self._after_a_loss(now)
            elif now.written > before.written:
                parts.append(Part(now.topic, now.shard, before.last, now.last, now.written - before.written))
        return parts

    def _begun(self, now: Standing) -> list[Part]:
        """Shards that the last batch did not have are new, and must be complete."""
        if now.written and now.since_ms >= self._options.from_ms:
            return [Part(now.topic, now.shard, BEGIN, now.last, now.written)]
        return split(now, self._options)

    def _after_a_loss(self, now: Standing) -> list[Part]:
        if self._options.fail_on_loss:
            what = "the topic was deleted, or Redis has lost its history, and another has begun"
            raise HistoryLost(now.topic, now.shard, what)
        return split(now, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        yield from rows_of(partition, self._options)


def split(now: Standing, options: Options) -> list[Part]:
    """A shard's history in parts of about the same time span, with about ``rows_per_partition`` rows each."""
    if not now.length:
        return []
    begin = max(now.first_ms, options.from_ms)
    end = min(now.last_ms + 1, options.to_ms)
    if begin >= end:
        return []
    share = (end - begin) / (now.last_ms + 1 - now.first_ms)
    count = max(1, min(end - begin, round(now.length * share / options.rows_per_partition)))
    edges = [begin + (end - begin) * n // count for n in range(count + 1)]
    ends = [f"{edge - 1}-{_LAST}" for edge in edges[1:]]
    if options.to_ms > now.last_ms:
        ends[-1] = now.last
    afters = [f"{begin - 1}-{_LAST}" if begin else BEGIN, *ends[:-1]]
    return [Part(now.topic, now.shard, after, until) for after, until in zip(afters, ends, strict=True)]


_LAST = (1 << 64) - 1  # the highest sequence number within a millisecond


def rows_of(part: Part, options: Options) -> Iterator[pa.RecordBatch]:
    """The part's rows, a page at a time.

    Raises:
        HistoryLost: rows are missing.
    """
    read = 0
    with options.opened() as streams:
        for table in streams.pages(part.topic, part.shard, part.after, part.until):
            read += table.num_rows
            yield from table.to_batches()
    if part.rows is not None and read != part.rows and options.fail_on_loss:
        gone = f"{part.rows - read:,} of {part.rows:,} entries had been trimmed"
        raise HistoryLost(part.topic, part.shard, gone if read < part.rows else "Redis has gone back to an older state")


def _moment_ms(name: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"option {name}: {text!r} is not a day or time; write 2026-01-31 or 2026-01-31T09:00"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _positive(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InvalidInput(f"option {name}: {text!r} is not a positive number")
    return int(text)


def _yes(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidInput(f"option {name}: {text!r} is neither true nor false")
    return text.lower() == "true"
