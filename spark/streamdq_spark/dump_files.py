"""The files of a dump, checked before anything is computed from them.

The manifest says which files count. Each is held against it and against the schema: a file that is missing, cut off,
of another version or of other columns is bad. A file that the manifest does not name is no part of the dump (a dump
that was killed leaves such files and writes their events again): it is left out and counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from streamdq.dump.arrow import arrow_schema
from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import EVENTS, DumpFile, Manifest, require_manifest
from streamdq.dump.open_folder import open_folder
from streamdq.errors import FolderError
from streamdq.store.history.rows import COLUMNS, SCHEMA_VERSION, VERSION_KEY

from .errors import BadDump
from .possible import is_sound, possible

_AT_ONCE = 16  # files of an hour are small; waiting for a distant store is what takes time
_SHOWN = 5
F = TypeVar("F")
T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = re.compile(rf"{EVENTS}/dt=(\d{{4}}-\d\d-\d\d)(/[^/.][^/]*)+")  # the only name that a file has


@dataclass(frozen=True, slots=True)
class GoodFile:
    """A file's path below the dump, its UTC day, its size, and when the last of its events finished, in ms; None: its
    footer does not say. `impossible`: how many of its rows are set aside.
    """

    path: str
    day: date
    rows: int
    bytes: int
    last_ms: int | None
    impossible: int = 0


@dataclass(frozen=True, slots=True)
class BadFile:
    """A bad file, what is wrong with it, and how many events it has according to the manifest."""

    path: str
    problem: str
    rows: int


@dataclass(slots=True)
class Dump:
    """The content of a dump. `unlisted`: Parquet files that are not part of it. `set_aside`: rows of
    files of which no row can be: those of a day after that on which the dump was written, among others.
    """

    folder: Folder
    manifest: Manifest
    unlisted: int
    files: list[GoodFile] = field(default_factory=list)
    bad: list[BadFile] = field(default_factory=list)
    set_aside: int = 0

    def between(self, first: date, last: date) -> list[GoodFile]:
        return [file for file in self.files if first <= file.day <= last]


def open_dump(input: str, *, quarantine: bool = False) -> Dump:
    """The dump in the folder, its files checked. `quarantine`: bad files are left out instead of an error.

    Raises:
        HistoryUnreadable: there is no dump, or its manifest is damaged or of another version.
        BadDump: a file is bad.
    """
    folder = open_folder(input)
    manifest = require_manifest(folder)
    dump = Dump(folder, manifest, _unlisted(folder, manifest))
    once: dict[str, DumpFile] = {}
    for file in manifest.files:
        if once.setdefault(file.path, file) is not file:
            dump.bad.append(BadFile(file.path, "is named twice by the manifest", file.rows))
    for found in of_each(folder, once.values(), partial(_check, folder)):
        if isinstance(found, BadFile):
            dump.bad.append(found)
        elif _is_ahead(found, manifest) or 0 < found.rows == found.impossible:
            dump.set_aside += found.rows
        else:
            dump.files.append(found)
    if dump.bad and not quarantine:
        raise BadDump(
            f"{len(dump.bad)} of the dump's {len(manifest.files)} files are bad: {_words_of(dump.bad)}. "
            "Restore them, or leave them and their events out with --quarantine"
        )
    return dump


def _is_ahead(file: GoodFile, manifest: Manifest) -> bool:
    """Whether it is of a day after the dump. The clocks of Redis and of the host that dumped may differ by a day."""
    written = _EPOCH + timedelta(milliseconds=manifest.written_ms, days=1)
    return bool(manifest.written_ms) and file.day > written.date()


def of_each(folder: Folder, files: Iterable[F], work: Callable[[F], T]) -> list[T]:
    """What is made of each file. Where files come from afar, several are waited for at once. On this machine, threads
    would only take turns in Python, which costs CPU time.
    """
    if isinstance(folder, LocalFolder):
        return [work(file) for file in files]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(work, files))


def read_file(folder: Folder, file: GoodFile | DumpFile) -> pa.Table:
    """The events of a file. Raises: BadDump."""
    try:
        with folder.open(file.path) as opened:
            return parquet.ParquetFile(opened).read().select(arrow_schema().names)
    except (OSError, pa.ArrowException) as error:
        meaning = str(error).splitlines()[0]
        raise BadDump(
            f"{folder.full(file.path)} is damaged ({meaning}); restore it, or remove it and leave its events out: "
            "--quarantine"
        ) from error


def _unlisted(folder: Folder, manifest: Manifest) -> int:
    known = {file.path for file in manifest.files} | {file.path for file in manifest.replaced}
    found = [path for path in folder.files(EVENTS) if not path.rpartition("/")[2].startswith(("_", "."))]
    return len([path for path in found if path.endswith(".parquet") and path not in known])


def _words_of(bad: Sequence[BadFile]) -> str:
    lines = [f"{file.path} {file.problem}" for file in bad[:_SHOWN]]
    more = [f"and {len(bad) - _SHOWN} more"] if len(bad) > _SHOWN else []
    return "; ".join(lines + more)


def _check(folder: Folder, file: DumpFile) -> GoodFile | BadFile:
    try:
        day = _day(file.path)
        footer = _footer(folder, file)
        last_ms = _last_ms(footer, day)
        if is_sound(footer, day):
            return GoodFile(file.path, day, file.rows, file.bytes, last_ms)
        left = possible(read_file(folder, file), day)
        last = pc.max(left["finished"]).as_py()
        last_ms = (last - _EPOCH) // timedelta(milliseconds=1) if last else last_ms
        return GoodFile(file.path, day, file.rows, file.bytes, last_ms, file.rows - left.num_rows)
    except _Bad as problem:
        return BadFile(file.path, str(problem), file.rows)


class _Bad(Exception):
    """What is wrong with a file."""


def _day(path: str) -> date:
    """The day that a file is of, by its path. Raises: `_Bad`."""
    found = _DAY.fullmatch(path)
    with suppress(ValueError):
        if found:
            return date.fromisoformat(found[1])
    raise _Bad("is not below a folder dt=YYYY-MM-DD")


def _footer(folder: Folder, file: DumpFile) -> parquet.FileMetaData:
    """The footer of a file that is as the manifest has it. Raises: `_Bad`."""
    try:
        size = folder.size(file.path)
        if size != file.bytes:
            raise _Bad(f"has {size} bytes where the manifest says {file.bytes}")
        with folder.open(file.path) as opened:
            footer = parquet.read_metadata(opened)
    except FolderError as error:
        missing = isinstance(error.__cause__, FileNotFoundError)
        raise _Bad("is missing" if missing else f"can't be read ({error.__cause__})") from error
    except (OSError, pa.ArrowException) as error:
        raise _Bad(f"is no whole Parquet file ({str(error).splitlines()[0]})") from error
    problem = _version_problem(footer)
    problem = problem or _schema_problem(footer.schema.to_arrow_schema())
    problem = problem or _nulls_problem(footer)
    if not problem and footer.num_rows != file.rows:
        problem = f"has {footer.num_rows} rows where the manifest says {file.rows}"
    if problem:
        raise _Bad(problem)
    return footer


def _last_ms(footer: parquet.FileMetaData, day: date) -> int | None:
    """When the last event of a file finished, by the statistics of its row groups. Raises: `_Bad`, if they tell of
    events of another day.
    """
    held = _statistics(footer, "finished")
    found = [(own.min, own.max) for own in held if own is not None and own.has_min_max]
    if not found or len(found) < len(held):
        return None
    last: datetime = max(ends[1] for ends in found)
    if {min(ends[0] for ends in found).date(), last.date()} != {day}:
        raise _Bad(f"has events that are not of {day}")
    return (last - _EPOCH) // timedelta(milliseconds=1)


def _statistics(footer: parquet.FileMetaData, column: str) -> list[parquet.Statistics | None]:
    """Of each row group."""
    at = footer.schema.names.index(column)
    return [footer.row_group(n).column(at).statistics for n in range(footer.num_row_groups)]


def _version_problem(footer: parquet.FileMetaData) -> str:
    held = (footer.metadata or {}).get(VERSION_KEY.encode())
    if held is None:
        return "was not written by streamdq"
    version = held.decode(errors="replace")
    return "" if version == SCHEMA_VERSION else f"has schema version {version!r}; this streamdq reads {SCHEMA_VERSION}"


def _schema_problem(schema: pa.Schema) -> str:
    for column in arrow_schema():
        position = schema.get_field_index(column.name)
        if position < 0:
            return f"has no column {column.name!r}"
        if (held := schema.field(position).type) != column.type:
            return f"has {column.name!r} as {held}, not as {column.type}"
    return ""


def _nulls_problem(footer: parquet.FileMetaData) -> str:
    for column in COLUMNS:
        if not column.nullable and any(held and held.null_count for held in _statistics(footer, column.name)):
            return f"has rows without {column.name!r}"
    return ""
