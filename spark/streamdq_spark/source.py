"""History straight from Redis, for Spark: ``spark.read.format("streamdq")`` and ``spark.readStream``.

Options: ``url`` (else $STREAMDQ_URL; every worker must reach it, so no embedded server beyond this machine),
``namespace``, ``topic`` (one, or several with commas; else all), ``from`` and ``to`` (when it was recorded: days or
times in ISO form, UTC unless they say otherwise; ``to`` is not included), ``rows_per_partition``,
``push_filters`` (for a DataFrame that is used once), and for streams ``fail_on_loss``.

    register(spark)
    spark.read.format("streamdq").option("url", "redis://host/0").load().where("finished > '2026-01-05'")

Reading a batch takes the newest entry of each shard as its end, so what is recorded meanwhile is left for the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
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
# An entry is recorded when its event happens, by the same clock. But scripts take some time, and ids don't go back when
# the clock is set back.
_EARLIER_MS, _LATER_MS = 60_000, 3_600_000


def register(spark: SparkSession) -> None:
    """Makes the format "streamdq" known to this session. Workers need streamdq installed, or sent with --py-files."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")  # or Spark refuses sources with filters
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
    """What to read: entries recorded from ``from_ms`` on and before ``to_ms``; no topics: all. ``among``: only those
    of them that a filter lets through.
    """

    url: str | None
    namespace: str
    topics: tuple[str, ...]
    from_ms: int
    to_ms: int
    rows_per_partition: int
    fail_on_loss: bool
    push_filters: bool = False
    among: frozenset[str] | None = None

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Options:
        known = {"url", "namespace", "topic", "from", "to", "rows_per_partition", "fail_on_loss", "push_filters"}
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
            _yes("push_filters", given.get("push_filters", "false")),
        )

    def lets(self, topic: str) -> bool:
        return self.among is None or topic in self.among

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

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """With the option ``push_filters``, filters on `finished` and `topic` narrow what is read. Spark applies them
        all the same, as an entry's id tells only about when its event took place.

        Off unless asked for: Spark (seen with 4.3.0) keeps what a DataFrame's first filter narrowed and gives another
        use of the same DataFrame, without that filter, no more than that.
        """
        for pushed in filters if self._options.push_filters else ():
            self._options = narrowed(self._options, pushed)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with options.opened() as streams:
            standings = streams.standings().values()
        return [part for now in standings if options.lets(now.topic) for part in split(now, options)]

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


def narrowed(options: Options, pushed: Filter) -> Options:
    """The options that read at least the rows that pass the filter."""
    column: Any = getattr(pushed, "attribute", None)
    value: Any = getattr(pushed, "value", None)
    if column == ("topic",) and isinstance(pushed, EqualTo | In):
        wanted = frozenset([value] if isinstance(pushed, EqualTo) else value)
        return replace(options, among=wanted if options.among is None else wanted & options.among)
    if column != ("finished",) or not isinstance(value, datetime):
        return options
    at_ms = int(value.astimezone(UTC).timestamp() * 1000)
    if isinstance(pushed, GreaterThan | GreaterThanOrEqual | EqualTo):
        options = replace(options, from_ms=max(options.from_ms, at_ms - _EARLIER_MS))
    if isinstance(pushed, LessThan | LessThanOrEqual | EqualTo):
        options = replace(options, to_ms=min(options.to_ms, at_ms + _LATER_MS))
    return options


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
