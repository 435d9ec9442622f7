"""Reads history streams from Redis, for the data source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from streamdq.dump.arrow import table_in
from streamdq.errors import HistoryUnreadable, ServerUnavailable, UnknownTopic
from streamdq.keys import ShardKeys
from streamdq.link.connection import Link
from streamdq.link.opening import open_session
from streamdq.link.session import Op, run
from streamdq.store.entries import FIRST, ms_of
from streamdq.store.history import history_reads
from streamdq.store.redis_store import RedisStore

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
BEGIN = FIRST
PAGE = 5_000  # entries read at once: a few milliseconds of Redis's time
_LOOKS = 20


@dataclass(frozen=True, slots=True)
class Standing:
    """A stream at one moment. `written`: rows ever written, up to `last`; `since` identifies the stream."""

    topic: str
    shard: int
    since: str
    written: int
    last: str
    first: str = BEGIN
    length: int = 0

    @property
    def since_ms(self) -> int:
        return ms_of(self.since or FIRST)

    @property
    def first_ms(self) -> int:
        return ms_of(self.first)

    @property
    def last_ms(self) -> int:
        return ms_of(self.last)

    def as_offset(self) -> dict[str, Any]:
        """The form that Spark keeps in its checkpoint."""
        return {
            "last": self.last, "written": self.written, "since": self.since, "first": self.first, "length": self.length,
        }  # fmt: skip

    @classmethod
    def of_offset(cls, key: str, offset: dict[str, Any]) -> Self:
        topic, _, shard = key.rpartition(":")
        return cls(topic, int(shard), **offset)


class StreamReader:
    """One connection. A context manager."""

    def __init__(self, url: str | None, namespace: str, topics: tuple[str, ...] = ()) -> None:
        """`topics`: only these; none: all."""
        self._link, self._session = open_session(url, namespace, None, None, Link)
        self._store = RedisStore(self._session)
        self._topics = topics

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    def _run(self, op: Op[T]) -> T:
        return run(self._link, op)

    def standings(self) -> dict[str, Standing]:
        """Every shard's stream, by topic:shard.

        Raises:
            UnknownTopic: a requested topic has never existed.
        """
        known = self._run(self._store.topics.refresh())
        if missing := [topic for topic in self._topics if topic not in known]:
            raise UnknownTopic(f"no topic {missing[0]!r} in namespace {self._session.keys.namespace!r}")
        topics = self._store.topics
        shards = [shard for topic in self._topics or sorted(known) for shard in topics.all_shards(topic)]
        return {f"{shard.topic}:{shard.shard}": self._standing(shard) for shard in shards}

    def _standing(self, shard: ShardKeys) -> Standing:
        for _ in range(_LOOKS):
            ends = self._run(history_reads.history_ends(self._session, shard))
            if ends is not None:
                last, first = ends.last or BEGIN, ends.first or BEGIN
                return Standing(shard.topic, shard.shard, ends.since, ends.written, last, first, ends.length)
        raise ServerUnavailable(
            f"the history of topic {shard.topic!r} grows faster than it can be looked at; try again"
        )

    def pages(self, topic: str, shard: int, after: str, until: str) -> Iterator[pa.Table]:
        """The entries after one id and up to another.

        Raises:
            HistoryUnreadable: an entry is not a row of this version.
        """
        keys = self._session.keys.shard(topic, shard)
        while True:
            entries = self._run(history_reads.rows_after(self._session, keys, after, PAGE, until))
            if not entries:
                return
            table = table_in(topic, shard, entries)
            if table.num_rows != len(entries):
                raise HistoryUnreadable(
                    f"{len(entries) - table.num_rows} entries after {after} in the history of topic {topic!r}, shard "
                    f"{shard}, are no rows of this version"
                )
            yield table.from_arrays(table.columns, table.column_names)  # Spark refuses columns that are not nullable
            after = entries[-1][0].decode()
