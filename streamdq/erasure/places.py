"""The places beside Redis that may keep something of a job. Each is looked at first, and erased later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

from ..archive.archive import Archive
from ..archive.dead_letters import ArchivedJob
from ..archive.dead_letters import Wanted as Rows
from ..codec.envelope import from_text
from ..dump.arrow import pyarrow
from ..dump.erasing import erase_rows, find_rows
from ..dump.manifest import require_manifest
from ..dump.open_folder import open_folder
from ..errors import HistoryUnreadable, MissingExtra
from ..job.job import ENCODED
from ..operations.erase.erase import Erasure
from ..operations.find.conditions import SeenJob
from ..queue import Queue, carry_out, store_of
from ..store.outbox import drop_outbox_receipts

if TYPE_CHECKING:
    import pyarrow as pa

    from ..outbox.erasing import ErasableRows, KeptRow

_PAGE = 200
_CHANGED = "another process has changed them meanwhile: run this again"


class Storage(ABC):
    """One of them, in one run."""

    name: str

    @property
    @abstractmethod
    def found(self) -> int:
        """How much ``look`` has found."""

    @abstractmethod
    def look(self) -> None:
        """Counts what is there, and tells the erasure of jobs that it did not know."""

    @abstractmethod
    def erase(self) -> None:
        """Erases what ``look`` has found."""

    def close(self) -> None:  # noqa: B027 - a dump has nothing to close
        """Closes what is open."""


def _json(queue: Queue, topic: str, id: str, body: str) -> bytes:
    """A body that a database has, read with the queue's codecs."""
    raw = from_text(body)
    return raw if raw[:1] != ENCODED else store_of(queue).session.bodies.decode(topic, id, raw)


class InArchive(Storage):
    name = "archive"

    def __init__(self, erasure: Erasure, queue: Queue, url: str) -> None:
        self._erasure, self._queue = erasure, queue
        self._archive = Archive(url, queue.namespace, create=False)
        self._rows: list[ArchivedJob] = []

    @property
    def found(self) -> int:
        return len(self._rows)

    def look(self) -> None:
        if not self._erasure.dry_run:
            self._archive.complete(self._queue, self._erasure.topic)
        after = 0
        while page := self._archive.rows(Rows(self._erasure.topic), _PAGE, after):
            after = page[-1].number
            self._rows += [row for row in page if self._is_meant(row)]
        self._erasure.report.add(self.name, found=len(self._rows))

    def _is_meant(self, row: ArchivedJob) -> bool:
        one = row.dead_letter
        seen = SeenJob(one.id, one.url, one.key, one.attempts, one.error, one.reason)
        return self._erasure.means(self.name, one.topic, seen, partial(_json, self._queue, one.topic, one.id, one.body))

    def erase(self) -> None:
        gone = self._archive.delete(self._rows)
        self._erasure.report.add(self.name, erased=gone)
        self._erasure.report.leave(self.name, self._erasure.topic or "", _CHANGED, count=len(self._rows) - gone)

    def close(self) -> None:
        self._archive.close()


class InOutbox(Storage):
    name = "outbox"

    def __init__(self, erasure: Erasure, queue: Queue, url: str) -> None:
        try:
            from ..outbox.erasing import ErasableRows
        except ImportError:
            raise MissingExtra("SQLAlchemy", "database") from None
        self._erasure, self._queue = erasure, queue
        self._outbox: ErasableRows = ErasableRows(url, queue.namespace)
        self._rows: list[KeptRow] = []

    @property
    def found(self) -> int:
        return len(self._rows)

    def look(self) -> None:
        self._rows = [row for row in self._outbox.each() if self._is_meant(row)]
        self._erasure.report.add(self.name, found=len(self._rows))

    def _is_meant(self, row: KeptRow) -> bool:
        topic, id = row.placed.topic, row.placed.id
        return self._erasure.means(self.name, topic, row.seen, partial(_json, self._queue, topic, id, row.body))

    def erase(self) -> None:
        gone = self._outbox.erase(self._rows)
        by_topic: dict[str, list[str]] = {}
        for row in self._rows:
            by_topic.setdefault(row.placed.topic, []).append(row.placed.receipt)
        store = store_of(self._queue)
        for topic, receipts in by_topic.items():
            for shard in store.topics.all_shards(topic):
                carry_out(self._queue, drop_outbox_receipts(store.session, [shard], receipts))
        self._erasure.report.add(self.name, erased=gone)
        self._erasure.report.leave(self.name, self._erasure.topic or "", _CHANGED, count=len(self._rows) - gone)

    def close(self) -> None:
        self._outbox.close()


class InDump(Storage):
    def __init__(self, erasure: Erasure, url: str) -> None:
        pyarrow()
        self._erasure = erasure
        self._folder = open_folder(url)
        self.name = f"dump {self._folder.url}"
        self._found = 0
        self._value_set: tuple[int, Any] = (-1, None)  # of how many known jobs, and those

    @property
    def found(self) -> int:
        return self._found

    def look(self) -> None:
        ours, theirs = self._erasure.store.session.keys.namespace, require_manifest(self._folder).namespace
        if ours != theirs:  # its jobs may have the same topics and ids
            raise HistoryUnreadable(f"{self._folder.url} holds the dump of namespace {theirs!r}, not {ours!r}")
        self._found = find_rows(self._folder, self._mask, self._learn)
        self._erasure.report.add(self.name, found=self._found)

    def _learn(self, rows: pa.Table) -> None:
        columns = (rows[name].to_pylist() for name in ("topic", "id", "key"))
        for topic, id, key in zip(*columns, strict=True):
            self._erasure.known.setdefault(topic, set()).add((id, key or ""))

    def erase(self) -> None:
        done = erase_rows(self._folder, self._mask)
        # Others that have come since are gone as well.
        self._erasure.report.add(self.name, found=max(0, done.rows - self._found), erased=done.rows)

    def _mask(self, table: pa.Table) -> Any:
        """Rows of known jobs, or that are meant by their id and key."""
        compute, wanted = pyarrow().compute, self._erasure.wanted
        keys = compute.fill_null(table["key"], "")
        names = compute.binary_join_element_wise(table["topic"], table["id"], keys, "\x1f")
        mask = compute.is_in(names, value_set=self._known())
        if wanted.is_of_rows:
            mask = compute.or_(mask, self._by_rows(table, keys))
        topic = self._erasure.topic
        return mask if topic is None else compute.and_(mask, compute.equal(table["topic"], topic))

    def _known(self) -> Any:
        known = self._erasure.known
        count = sum(map(len, known.values()))
        if count != self._value_set[0]:
            names = [f"{topic}\x1f{id}\x1f{key}" for topic, jobs in known.items() for id, key in jobs]
            self._value_set = count, pyarrow().array(names, pyarrow().string())
        return self._value_set[1]

    def _by_rows(self, table: pa.Table, keys: Any) -> Any:
        lib, wanted = pyarrow(), self._erasure.wanted
        if wanted.is_key_alone:
            return lib.compute.equal(keys, wanted.criteria.key)
        pairs = zip(table["id"].to_pylist(), keys.to_pylist(), strict=True)
        return lib.chunked_array([lib.array([wanted.fits_row(id, key) for id, key in pairs], lib.bool_())])
