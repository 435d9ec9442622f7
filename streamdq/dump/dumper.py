"""Dumps history to Parquet files: Redis keeps days of it, the dump keeps years.

A run takes the newest entry of each stream as its end and reads pages from the last dumped entry up to it. Rows are
written in batches: first the files, one for each hour; then the manifest with the marks, which makes them part of the
dump; then the marks are written to Redis. If a run is killed in between, the next one removes files that are in no
manifest, or writes the marks to Redis again. So no row is missing or duplicated.

While a dump is registered, Redis trims no row that the dump does not have (lua/trim_history.lua). It is registered with
each shard, and with the namespace, for shards that are made later (Topics). If rows are missing
all the same (the dump was forgotten for a while, Redis was flushed), the number of rows that Redis says it has written
shows it, and they are counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..config import Settings
from ..errors import FolderBusy, InvalidInput, ServerRefusesWrites, ServerUnavailable
from ..job.job import check_topic
from ..keys import ShardKeys
from ..link.connection import Link
from ..link.opening import open_session
from ..link.session import Op, run
from ..process.logs import log
from ..store import namespace
from ..store.entries import FIRST, ms_of, order_of
from ..store.history import history_reads
from ..store.history.history_reads import RawEntry
from ..store.redis_store import RedisStore
from ..store.replies import DumpRegistration
from ..times.clock import wall_now
from .arrow import by_hour, pyarrow, table_in, write_parquet
from .folder import Folder
from .manifest import (
    DumpFile,
    Manifest,
    StreamMark,
    load_manifest,
    path_of,
    remove_strays,
    require_manifest,
    update_manifest,
)

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
PAGE = 5_000
"""Entries read at once: a few milliseconds of Redis's time."""
BATCH = 250_000
"""Rows in memory before they are written."""
LETTER = "d"


@dataclass(slots=True)
class Dumped:
    """The result of a run. The manifest keeps the sums of the last four."""

    rows: int = 0
    files: int = 0
    seconds: float = field(default=0.0, compare=False)
    skipped: int = 0  # trimmed before the dump of their stream began
    lost: int = 0  # trimmed, or deleted with their topic, since the last run, and never dumped
    resets: int = 0  # streams that Redis has lost since; how much it lost with them is not known
    unreadable: int = 0  # entries that are not rows of this schema, left out

    @property
    def whole(self) -> bool:
        """Whether the dump has everything that happened since it began."""
        return not (self.lost or self.resets or self.unreadable)


@dataclass(slots=True)
class _Stream:
    """One stream in a run."""

    shard: ShardKeys
    mark: StreamMark
    held: DumpRegistration
    new: bool = False  # also if it was lost and is new again


@dataclass(slots=True)
class _Batch:
    """Rows that are read but not written yet, and the marks that they lead to."""

    tables: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    marks: dict[tuple[str, int], StreamMark] = field(default_factory=dict)
    unreadable: int = 0


class Dumper:
    """Dumps one namespace into one folder. Open it as a context manager: it keeps other dumps out of the folder."""

    def __init__(
        self,
        folder: Folder,
        url: str | None = None,
        namespace: str | None = None,
        *,
        topics: Sequence[str] = (),
        settings: Settings | None = None,
        batch: int = BATCH,
    ) -> None:
        """``topics``: only these; None: all. ``batch``: rows in memory.

        Raises:
            MissingExtra: pyarrow is not installed.
        """
        pyarrow()
        self._folder = folder
        self._topics = [check_topic(topic) for topic in topics]
        self._batch_rows = batch
        self._link, session = open_session(url, namespace, settings, None, Link)
        self._store = RedisStore(session)
        self._session = session
        self._manifest = Manifest()
        self._batch = _Batch()
        self._result = Dumped()
        self._progress: Callable[[int, int | None], None] = lambda _rows, _total: None
        self._lost: dict[str, ServerUnavailable] = {}  # nodes of a Cluster that do not answer
        self._fetcher = ThreadPoolExecutor(1, "streamdq-dump")

    @contextmanager
    def opened(self) -> Iterator[Dumper]:
        """Loads the manifest and locks the folder for this dump, if the folder has locks.

        Raises:
            FolderBusy: another dump writes there.
            InvalidInput: the folder holds the dump of another namespace.
            HistoryUnreadable: its manifest is damaged, or of another version.
        """
        try:
            with self._folder.lock("dump", "another dump"):
                if found := self._found():
                    remove_strays(self._folder, found, LETTER)
                yield self
        finally:
            self._fetcher.shutdown(cancel_futures=True)
            self._link.close()

    def _run(self, op: Op[T]) -> T:
        return run(self._link, op)

    def _found(self) -> Manifest | None:
        namespace, found = self._session.keys.namespace, load_manifest(self._folder)
        if found and found.namespace != namespace:
            raise InvalidInput(
                f"{self._folder.url} holds the dump of namespace {found.namespace!r}, not {namespace!r}: "
                "use a folder for each namespace"
            )
        return found

    def _load(self) -> Manifest:
        """The manifest. A new one is written before the dump is registered, so a registered dump always has a
        folder.
        """
        if found := self._found():
            return found
        now_ms = self._run(namespace.redis_time_us(self._session)) // 1000

        def begin(manifest: Manifest) -> None:
            manifest.namespace = manifest.namespace or self._session.keys.namespace
            manifest.created_ms = manifest.created_ms or now_ms

        return update_manifest(self._folder, begin, new=True)

    # -- a run

    def dump(
        self,
        stopping: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int | None], None] = lambda _rows, _total: None,
    ) -> Dumped:
        """Dumps the rows that all streams have now.
        ``stopping`` ends it early, after the rows read so far were written. ``progress`` is called with the number of
        rows as they are read, and first with how many to expect. If a Cluster node does not answer, the error is raised
        at the end, after the rows of the other nodes were dumped.

        Raises:
            ServerUnavailable, FolderError: run it again; committed rows stay.
        """
        begun = time.perf_counter()
        self._result, self._batch, self._manifest, self._lost = Dumped(), _Batch(), self._load(), {}
        self._known_topics()  # so that no misspelt one is registered
        is_known = self._announce()  # before the topics are read: a process that makes a shard now reads it, or is read
        streams = [stream for shard in self._shards() if (stream := self._reach(shard, partial(self._begin, shard)))]
        self._progress = progress
        progress(0, sum(max(0, stream.held.written - stream.mark.written) for stream in streams))
        for stream in streams:
            if self._reach(stream.shard, partial(self._read, stream, stopping)) is False:
                break
        self._flush()
        if not is_known:
            self._announce()
        self._result.seconds = time.perf_counter() - begun
        if not self._result.whole:
            log.warning(
                "the dump is not whole", lost=self._result.lost, resets=self._result.resets,
                unreadable=self._result.unreadable,
            )  # fmt: skip
        for error in self._lost.values():
            raise error
        return self._result

    def _reach(self, shard: ShardKeys, step: Callable[[], T]) -> T | None:
        """The step's result; None if the shard's Cluster node does not answer."""
        node = self._session.last_node_of(shard.history)
        if node in self._lost:
            return None
        try:
            return step()
        except ServerUnavailable as error:
            if not self._session.is_cluster:
                raise
            self._lost[node] = error
            return None

    def _announce(self) -> bool:
        """Registers the dump for the shards that are made from now on. Returns False if Redis is full. Then no shard
        can be made either, before this run has made room.
        """
        try:
            self._run(namespace.add_dump(self._session, self._manifest.id, self._topics))
        except ServerRefusesWrites:
            return False
        return True

    def forget(self) -> None:
        """Unregisters the dump: Redis no longer keeps history for it. The next run registers it again.

        Raises:
            HistoryUnreadable: there is no dump in the folder.
        """
        self._manifest = require_manifest(self._folder)
        self._run(namespace.remove_dump(self._session, self._manifest.id, self._topics))
        for shard in self._shards():
            self._run(self._store.scripts.register_dump(shard, self._manifest.id))

    def _shards(self) -> list[ShardKeys]:
        """The shards in the registry, and those that an earlier run dumped and that still exist."""
        known = self._known_topics()
        shards = [shard for topic in self._topics or known for shard in self._store.topics.all_shards(topic)]
        return [*shards, *self._unregistered(set(shards))]

    def _known_topics(self) -> Collection[str]:
        known = self._run(self._store.topics.refresh())
        dumped = {mark.topic for mark in self._manifest.streams}  # includes deleted topics, which may come back
        if missing := [topic for topic in self._topics if topic not in known and topic not in dumped]:
            raise InvalidInput(f"no topic {missing[0]!r} in namespace {self._session.keys.namespace!r}")
        return known

    def _unregistered(self, registered: Collection[ShardKeys]) -> Iterator[ShardKeys]:
        """Shards of the dump that are not in the registry any more, but still in Redis. Others have ended."""
        for mark in self._manifest.streams:
            shard = self._session.keys.shard(mark.topic, mark.shard)
            if shard not in registered and (mark.topic in self._topics or not self._topics):
                if self._run(history_reads.has_history(self._session, shard)):
                    yield shard
                elif mark.since:
                    self._end_life(lost := mark.model_copy(), "")
                    self._note(lost)

    # -- the state of a stream

    def _begin(self, shard: ShardKeys) -> _Stream:
        """Registers the dump with the shard, takes the run's end, and checks whether it still is the same stream."""
        mark = self._manifest.stream(shard.topic, shard.shard).model_copy()
        held = self._hold(shard, mark)
        stream = _Stream(shard, mark, held)
        mark.written += held.erased  # those rows are not lost
        if self._is_another(shard, mark, held):
            if held.since != mark.since and held.since in mark.earlier:
                self._resume(stream)
            else:
                self._begin_life(mark, held)
                stream.new = True
        elif held.since != mark.since:
            mark.since = held.since
            self._recount(stream)
        elif held.written < mark.written:
            self._recount(stream)
            self._went_back(mark)  # last: marks are committed, and a node may be lost before this
        return stream

    def _hold(self, shard: ShardKeys, mark: StreamMark) -> DumpRegistration:
        scripts = self._store.scripts
        return self._run(scripts.register_dump(shard, self._manifest.id, mark.last or FIRST, mark.written, mark.since))

    def _is_another(self, shard: ShardKeys, mark: StreamMark, held: DumpRegistration) -> bool:
        """Whether this is another stream than in the last run, or there was none."""
        if held.since != mark.since:
            return not (mark.last and self._is_there(shard, mark.last))
        # More was written, but with older ids: the stream was deleted, and the clock set back.
        return bool(held.last) and order_of(held.last) < order_of(mark.last or FIRST) and held.written > mark.written

    def _is_there(self, shard: ShardKeys, entry: str) -> bool:
        return self._run(history_reads.has_row(self._session, shard, entry))

    def _begin_life(self, mark: StreamMark, held: DumpRegistration) -> None:
        """Starts dumping a stream that is new, or new again after it was lost. All its rows are to be dumped. The
        number of rows trimmed before is known; from now on none is trimmed.
        """
        gone = max(0, held.written - held.length - held.erased)
        if mark.since:
            self._end_life(mark, held.since)
        else:
            self._note_unseen(mark)
        if mark.resets or ms_of(held.since or FIRST) > self._manifest.created_ms:
            mark.lost += gone
            self._result.lost += gone
        else:
            mark.skipped += gone
            self._result.skipped += gone
        mark.since, mark.last, mark.written = held.since, "", gone + held.erased
        self._note(mark)

    def _resume(self, stream: _Stream) -> None:
        """Redis had lost the stream, and it was restored: rows that were dumped before are not dumped again."""
        mark, held = stream.mark, stream.held
        life = mark.earlier[held.since]
        if mark.since:
            self._end_life(mark, held.since)
        mark.since, mark.last, mark.written = held.since, life.last, life.written
        if held.written < life.written:
            self._recount(stream)
        self._note(mark)

    def _went_back(self, mark: StreamMark) -> None:
        """Redis was restored to a time before the last run: rows dumped since stay, and all rows to come are new."""
        log.warning("Redis was restored to an earlier state", topic=mark.topic, shard=mark.shard)
        self._result.resets += 1
        mark.resets += 1
        self._note(mark)

    def _recount(self, stream: _Stream) -> None:
        """Counts again how many rows Redis had written at the mark."""
        stream.mark.written = stream.held.written - sum(len(entries) for entries in self._pages(stream))
        self._note(stream.mark)

    def _end_life(self, mark: StreamMark, since: str) -> None:
        """The stream of the last run is gone: lost, or deleted with its topic, which still knows how many rows it
        had.
        """
        shard = self._session.keys.shard(mark.topic, mark.shard)
        life, written = self._run(history_reads.ended_history(self._session, shard))
        if life == mark.since:
            self._note_lost(mark, written - mark.written)
        else:
            log.warning("Redis has lost a history stream since the last dump", topic=mark.topic, shard=mark.shard)
            self._result.resets += 1
            mark.resets += 1
        if since != mark.since:
            mark.keep_life()
        mark.since, mark.last, mark.written = since, "", 0

    def _note_unseen(self, mark: StreamMark) -> None:
        """The topic may have been deleted with a whole stream since the last run, before the stream was begun."""
        shard = self._session.keys.shard(mark.topic, mark.shard)
        life, written = self._run(history_reads.ended_history(self._session, shard))
        if life not in mark.earlier and ms_of(life or FIRST) > self._manifest.created_ms:
            self._note_lost(mark, written)

    def _note_lost(self, mark: StreamMark, rows: int) -> None:
        if rows > 0:
            log.warning("history rows lost before the dump", topic=mark.topic, shard=mark.shard, rows=rows)
            mark.lost += rows
            self._result.lost += rows

    def _note(self, mark: StreamMark) -> None:
        """Adds the mark to the next batch to commit."""
        self._batch.marks[mark.topic, mark.shard] = mark

    # -- reading

    def _read(self, stream: _Stream, stopping: Callable[[], bool]) -> bool:
        """Reads the stream to its end; returns False if it was stopped before."""
        for entries in self._pages(stream):
            table = table_in(stream.shard.topic, stream.shard.shard, entries)
            self._take(stream, entries, table)
            if self._batch.rows >= self._batch_rows:
                self._flush()
            if stopping():
                return False
        self._check_written(stream)
        return True

    def _pages(self, stream: _Stream) -> Iterator[list[RawEntry]]:
        """The entries after the mark, up to the run's end. While one page is processed, the next is fetched."""
        end = stream.held.last
        if not end or order_of(stream.mark.last or FIRST) >= order_of(end):
            return

        def fetch(after: str) -> list[RawEntry]:
            return self._run(history_reads.rows_after(self._session, stream.shard, after, PAGE, until=end))

        coming = self._fetcher.submit(fetch, stream.mark.last)
        while entries := coming.result():
            coming = self._fetcher.submit(fetch, entries[-1][0].decode())
            yield entries

    def _take(self, stream: _Stream, entries: list[RawEntry], table: pa.Table) -> None:
        mark, batch = stream.mark, self._batch
        unreadable = len(entries) - table.num_rows
        if unreadable:
            log.warning("entries are not history rows", topic=mark.topic, shard=mark.shard, entries=unreadable)
        batch.tables.append(table)
        batch.rows += table.num_rows
        batch.unreadable += unreadable
        mark.first = mark.first or entries[0][0].decode()
        mark.last = entries[-1][0].decode()
        mark.written += len(entries)
        mark.rows += table.num_rows
        self._note(mark)
        self._progress(len(entries), None)

    def _check_written(self, stream: _Stream) -> None:
        """At the stream's end, compares with the number of rows that Redis says it has written."""
        mark, written = stream.mark, stream.held.written
        missing = written - mark.written
        self._note_lost(mark, missing)
        if missing < 0 and not stream.new:  # Redis has written as many again since
            self._went_back(mark)
        if mark.written != written:
            mark.written = written
            self._note(mark)

    # -- writing

    def _flush(self) -> None:
        """Writes the files, then the manifest, then tells Redis; in this order."""
        batch, self._batch = self._batch, _Batch()
        if not batch.marks:
            return
        marks = {key: mark.model_copy() for key, mark in batch.marks.items()}
        number = self._manifest.dumped + 1
        files = list(self._write(batch.tables, number)) if batch.rows else []
        standing = {key: self._manifest.stream(*key).model_copy() for key in marks}

        def add(manifest: Manifest) -> None:
            if manifest.dumped != number - 1 or any(manifest.stream(*key) != standing[key] for key in marks):
                raise FolderBusy(f"{self._folder.url}: another dump has written there meanwhile; stop one of them")
            manifest.dumped, manifest.written_ms = number, round(wall_now().timestamp() * 1000)
            manifest.unreadable += batch.unreadable
            manifest.files += files
            manifest.streams = [marks.get((mark.topic, mark.shard), mark) for mark in manifest.streams]

        self._manifest = update_manifest(self._folder, add)
        self._result.rows += batch.rows
        self._result.files += len(files)
        self._result.unreadable += batch.unreadable
        self._tell(marks.values())

    def _write(self, tables: Sequence[pa.Table], number: int) -> Iterator[DumpFile]:
        for hour, table in by_hour(pyarrow().concat_tables(tables)).items():
            path = path_of(hour, f"{LETTER}{number:09}{self._folder.suffix}")
            with self._folder.writing(path) as file:
                write_parquet(table, file)
            yield DumpFile(path=path, rows=table.num_rows, bytes=self._folder.size(path))

    def _tell(self, marks: Iterable[StreamMark]) -> None:
        """Tells Redis the marks, and lets it trim up to them."""

        def tell(shard: ShardKeys, mark: StreamMark) -> None:
            self._hold(shard, mark)
            while self._run(self._store.scripts.trim_history(shard)):
                pass

        for mark in marks:
            if mark.since:
                shard = self._session.keys.shard(mark.topic, mark.shard)
                self._reach(shard, partial(tell, shard, mark))


__all__ = ["BATCH", "Dumped", "Dumper"]
