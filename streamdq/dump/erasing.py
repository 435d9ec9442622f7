"""Erases rows of a dump: files that have some are written anew without them, and the old ones are deleted at once.

As when files are merged, a new manifest lists the new files in place of the old ones. Wherever this is killed, a reader
of the manifest sees a whole dump, and the next run deletes the old files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import FolderBusy
from ..times.clock import wall_ms
from . import dumper
from .arrow import arrow_schema, parquet_options, pyarrow
from .compaction import AT_ONCE, LETTER, ROW_GROUP, read_file, remove_replaced
from .folder import Folder
from .manifest import DumpFile, Manifest, Replaced, remove_strays, require_manifest, update_manifest

if TYPE_CHECKING:
    import pyarrow as pa

Meant = Callable[["pa.Table"], Any]
"""Which rows of a table are to be erased: an Arrow array of booleans."""


@dataclass(slots=True)
class Rewritten:
    """Files that were written anew, and rows that are gone."""

    files: int = 0
    rows: int = 0


@dataclass(slots=True)
class _Change:
    """A file and what takes its place; None: nothing, as all of its rows are gone."""

    old: DumpFile
    new: DumpFile | None
    gone: Counter[tuple[str, int]] = field(default_factory=Counter)  # by topic and shard


def find_rows(folder: Folder, meant: Meant, take: Callable[[pa.Table], None]) -> int:
    """How many rows are meant. ``take`` gets them.

    Raises:
        HistoryUnreadable, FolderError
    """
    lib, found = pyarrow(), 0
    for file in require_manifest(folder).files:
        for table in read_file(folder, file):
            rows = table.filter(meant(table))
            found += rows.num_rows
            if rows.num_rows:
                take(lib.table(rows))
    return found


def erase_rows(folder: Folder, meant: Meant) -> Rewritten:
    """Erases the rows that are meant. Files that were replaced before are deleted as well, as they may hold such rows.

    Raises:
        FolderBusy: a dump or a compaction writes there; run it again.
        HistoryUnreadable, FolderError
    """
    pyarrow()
    result = Rewritten()
    with folder.lock("dump", "a dump"), folder.lock("compact", "a compaction"):
        manifest = require_manifest(folder)
        for letter in (LETTER, dumper.LETTER):
            remove_strays(folder, manifest, letter)
        for start in range(0, len(files := list(manifest.files)), AT_ONCE):
            number = manifest.compacted + 1
            part = files[start : start + AT_ONCE]
            changes = [change for i, file in enumerate(part) if (change := _without(folder, file, meant, number, i))]
            if changes:
                manifest = _commit(folder, changes, number)
                result.files += len(changes)
                result.rows += sum(change.gone.total() for change in changes)
        remove_replaced(folder, 0)
    return result


def _without(folder: Folder, file: DumpFile, meant: Meant, number: int, i: int) -> _Change | None:
    """The file without the rows that are meant; None: it has none of them."""
    lib, gone = pyarrow(), Counter[tuple[str, int]]()
    for table in read_file(folder, file):
        rows = table.filter(meant(table))
        gone.update(zip(rows["topic"].to_pylist(), rows["shard"].to_pylist(), strict=True))
    if not gone:
        return None
    if gone.total() == file.rows:
        return _Change(file, None, gone)
    path = f"{file.path.rpartition('/')[0]}/{LETTER}{number:09}-{i}{folder.suffix}.parquet"
    with (
        folder.writing(path) as target,
        lib.parquet.ParquetWriter(target, arrow_schema(), **parquet_options()) as writer,
    ):
        for table in _kept(folder, file, meant):
            writer.write_table(table, row_group_size=ROW_GROUP)
    return _Change(file, DumpFile(path=path, rows=file.rows - gone.total(), bytes=folder.size(path)), gone)


def _kept(folder: Folder, file: DumpFile, meant: Meant) -> Iterator[pa.Table]:
    compute = pyarrow().compute
    return (table.filter(compute.invert(meant(table))) for table in read_file(folder, file))


def _commit(folder: Folder, changes: Sequence[_Change], number: int) -> Manifest:
    old = {change.old.path for change in changes}
    new = [change.new for change in changes if change.new is not None]
    gone: Counter[tuple[str, int]] = sum((change.gone for change in changes), Counter())

    def swap(manifest: Manifest) -> None:
        if manifest.compacted != number - 1 or not old <= {file.path for file in manifest.files}:
            raise FolderBusy(f"{folder.url}: another process has changed the dump meanwhile; run this again")
        manifest.compacted = number
        manifest.files = [file for file in manifest.files if file.path not in old] + new
        manifest.replaced += [Replaced(path=path, at_ms=wall_ms()) for path in sorted(old)]
        for (topic, shard), rows in gone.items():
            manifest.stream(topic, shard).rows -= rows

    return update_manifest(folder, swap)
