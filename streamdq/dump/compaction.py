"""Merges a dump's small files into one per hour.

The merged file is written first; then a new manifest lists it in place of the files that it replaces. Wherever this is
killed, a reader of the manifest sees each row exactly once. The replaced files stay for a while, for readers that began
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any

from ..errors import FolderBusy, HistoryUnreadable
from ..store.history.rows import SCHEMA_VERSION
from ..times.clock import wall_ms, wall_s
from .arrow import arrow_schema, parquet_options, pyarrow
from .folder import Folder
from .manifest import DumpFile, Manifest, Replaced, path_of, remove_strays, require_manifest, update_manifest

if TYPE_CHECKING:
    import pyarrow as pa

GRACE_S = 3_600
LETTER = "c"
ROW_GROUP = 100_000
AT_ONCE = 24  # hours merged per manifest


@dataclass(slots=True)
class Compacted:
    """The result of compacting."""

    hours: int = 0  # hours whose files were joined
    joined: int = 0  # files that were replaced
    rows: int = 0  # in the joined files
    removed: int = 0  # replaced files that were deleted


def compact(
    folder: Folder, grace_s: float = GRACE_S, progress: Callable[[int, int | None], None] = lambda _n, _total: None
) -> Compacted:
    """Joins the files of every hour that has several, except the present hour. ``grace_s``: replaced files are removed
    after this time. ``progress`` is called with the number of rows, and once with how many to expect.

    Raises:
        FolderBusy: another process writes there.
        HistoryUnreadable: there is no dump, or a file differs from what the manifest says; then its hour stays as it
        is.
    """
    pyarrow()
    result = Compacted()
    with folder.lock("compact", "another compaction"):
        manifest = require_manifest(folder)
        remove_strays(folder, manifest, LETTER)
        hours = _hours(manifest)
        progress(0, sum(file.rows for hour in hours for file in hour))
        rest = iter(hours)
        while group := list(islice(rest, AT_ONCE)):
            number = manifest.compacted + 1
            joined = []
            for files in group:
                joined.append(_join(folder, files, number))
                progress(joined[-1].rows, None)
            manifest = _commit(folder, group, joined, number)
            result.hours += len(group)
            result.joined += sum(map(len, group))
            result.rows += sum(file.rows for file in joined)
        result.removed = remove_replaced(folder, grace_s)
    return result


def _hours(manifest: Manifest) -> list[list[DumpFile]]:
    """The files of each hour that has several, in order."""
    present = path_of(int(wall_s()) // 3600, "")
    files = sorted((file for file in manifest.files), key=lambda file: file.path.rpartition("/")[0])
    hours = [list(group) for _, group in groupby(files, key=lambda file: file.path.rpartition("/")[0])]
    return [hour for hour in hours if len(hour) > 1 and hour[0].path.rpartition("/")[0] != present.rpartition("/")[0]]


def _join(folder: Folder, files: Sequence[DumpFile], number: int) -> DumpFile:
    path = f"{files[0].path.rpartition('/')[0]}/{LETTER}{number:09}{folder.suffix}.parquet"
    lib, rows = pyarrow(), 0
    with (
        folder.writing(path) as target,
        lib.parquet.ParquetWriter(target, arrow_schema(), **parquet_options()) as writer,
    ):
        for table in _row_groups(folder, files):
            writer.write_table(table, row_group_size=ROW_GROUP)
            rows += table.num_rows
    return DumpFile(path=path, rows=rows, bytes=folder.size(path))


def _row_groups(folder: Folder, files: Sequence[DumpFile]) -> Iterator[pa.Table]:
    """The rows of all files, in portions of the size of good row groups."""
    lib, waiting, rows = pyarrow(), [], 0
    for table in chain.from_iterable(read_file(folder, file) for file in files):
        waiting.append(table)
        rows += table.num_rows
        if rows >= ROW_GROUP:
            yield lib.concat_tables(waiting)
            waiting, rows = [], 0
    if waiting:
        yield lib.concat_tables(waiting)


def read_file(folder: Folder, file: DumpFile) -> Iterator[pa.Table]:
    """A file's row groups, one at a time, as a joined file may be too large for memory.

    Raises:
        HistoryUnreadable: the file is damaged, has another version, or another length than the manifest says.
    """
    lib = pyarrow()
    try:
        with folder.open(file.path) as opened:
            held = lib.parquet.ParquetFile(opened)
            _check(folder, file, held)
            for number in range(held.num_row_groups):
                yield held.read_row_group(number)
    except (OSError, lib.ArrowInvalid) as error:
        raise HistoryUnreadable(f"{folder.full(file.path)} can't be read: {error}") from error


def _check(folder: Folder, file: DumpFile, held: Any) -> None:
    if not held.schema_arrow.equals(arrow_schema(), check_metadata=True):
        raise HistoryUnreadable(f"{folder.full(file.path)} does not have schema version {SCHEMA_VERSION}")
    rows = held.metadata.num_rows
    if rows != file.rows:
        raise HistoryUnreadable(f"{folder.full(file.path)} holds {rows} rows; the manifest says {file.rows}")


def _commit(folder: Folder, group: Sequence[Sequence[DumpFile]], joined: Sequence[DumpFile], number: int) -> Manifest:
    old = {file.path for files in group for file in files}

    def swap(manifest: Manifest) -> None:
        if manifest.compacted != number - 1 or not old <= {file.path for file in manifest.files}:
            raise FolderBusy(f"{folder.url}: another process has changed the dump meanwhile; run this again")
        manifest.compacted = number
        manifest.files = [file for file in manifest.files if file.path not in old] + list(joined)
        manifest.replaced += [Replaced(path=path, at_ms=wall_ms()) for path in sorted(old)]

    return update_manifest(folder, swap)


def remove_replaced(folder: Folder, grace_s: float) -> int:
    """Removes files that were replaced long enough ago: first the files, then their names, so that none is
    forgotten.
    """
    until_ms = (wall_s() - grace_s) * 1000
    gone = {file.path for file in require_manifest(folder).replaced if file.at_ms <= until_ms}
    if not gone:
        return 0
    for path in gone:
        folder.remove(path)

    def drop(manifest: Manifest) -> None:
        manifest.replaced = [file for file in manifest.replaced if file.path not in gone]

    update_manifest(folder, drop)
    return len(gone)
