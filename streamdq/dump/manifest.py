"""The manifest of a dump, ``manifest.json`` in its folder. A file that is not in it is not part of the dump.

Every change is one new manifest, so readers see all of it or nothing. It is first written under a second name and then
replaces the old one. If that replacement was a copy and was interrupted, the second file is still complete and is read.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import FolderBusy, HistoryUnreadable
from ..store.history.rows import SCHEMA_VERSION
from .folder import Folder

MANIFEST = "manifest.json"
_NEXT = "_manifest.json.tmp"
EVENTS = "events"
FORMAT = "streamdq dump"
_TRIES = 5
_LIVES = 8


class DumpFile(BaseModel):
    """One Parquet file of the dump."""

    model_config = ConfigDict(frozen=True)

    path: str
    rows: int
    bytes: int
    schema_version: str = SCHEMA_VERSION


class Replaced(BaseModel):
    """A file whose rows were merged into another one. It is kept for a while, for those who still read it."""

    model_config = ConfigDict(frozen=True)

    path: str
    at_ms: int


class Life(BaseModel):
    """How far a stream that Redis lost was dumped; it may be restored from a backup."""

    model_config = ConfigDict(frozen=True)

    last: str
    written: int


class StreamMark(BaseModel):
    """How far one history stream is dumped. ``last`` is the high-water mark; ``''`` if nothing is dumped yet."""

    topic: str
    shard: int
    first: str = ""  # the dump's first entry
    last: str = ""  # all rows up to this entry are dumped
    rows: int = 0  # of this stream in the dump
    written: int = 0  # rows that Redis had written up to ``last``, dumped or not
    since: str = ""  # identifies the stream: another one after Redis lost it
    skipped: int = 0  # trimmed before the dump of the stream began
    lost: int = 0  # trimmed later, and never dumped
    resets: int = 0  # how often Redis had lost the stream; how much it lost is not known
    earlier: dict[str, Life] = Field(default_factory=dict)  # by ``since``, the latest last; few

    def keep_life(self) -> None:
        """Remembers how far the lost stream was dumped, in case it is restored."""
        others = [(since, life) for since, life in self.earlier.items() if since != self.since]
        latest = [*others, (self.since, Life(last=self.last, written=self.written))]
        self.earlier = dict(latest[-_LIVES:])


class Manifest(BaseModel):
    """The dump's state."""

    format: str = FORMAT
    schema_version: str = SCHEMA_VERSION
    id: str = Field(default_factory=lambda: secrets.token_hex(6))
    namespace: str = ""
    created_ms: int = 0  # by Redis's clock
    written_ms: int = 0  # when files were added last, by the clock of the host that dumped
    generation: int = 0
    dumped: int = 0  # numbers the files that dumps write
    compacted: int = 0  # numbers the files that compacting writes
    unreadable: int = 0  # entries that were not rows, left out
    streams: list[StreamMark] = Field(default_factory=list)
    files: list[DumpFile] = Field(default_factory=list)
    replaced: list[Replaced] = Field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def stream(self, topic: str, shard: int) -> StreamMark:
        """The stream's mark; adds one for a new stream."""
        for mark in self.streams:
            if (mark.topic, mark.shard) == (topic, shard):
                return mark
        self.streams.append(StreamMark(topic=topic, shard=shard))
        return self.streams[-1]


def load_manifest(folder: Folder) -> Manifest | None:
    """The dump's manifest; None if there is no dump in the folder.

    Raises:
        HistoryUnreadable: it is damaged, or of another version.
    """
    content = folder.read(MANIFEST)
    found = _parse(content)
    if found is None:
        found = _parse(folder.read(_NEXT))
    if found is None:
        if content is None:
            return None
        raise HistoryUnreadable(f"{folder.full(MANIFEST)} is damaged: it is not the manifest of a dump")
    if found.get("format") != FORMAT:
        raise HistoryUnreadable(f"{folder.full(MANIFEST)} is not the manifest of a dump")
    if found.get("schema_version") != SCHEMA_VERSION:
        raise HistoryUnreadable(
            f"{folder.full(MANIFEST)} has schema version {found.get('schema_version')!r}; this streamdq reads "
            f"and writes version {SCHEMA_VERSION}"
        )
    try:
        return Manifest.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise HistoryUnreadable(f"{folder.full(MANIFEST)} is damaged: {where}: {first['msg']}") from error


def _parse(content: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(content or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def require_manifest(folder: Folder) -> Manifest:
    """Like load_manifest, but there must be a dump.

    Raises:
        HistoryUnreadable: there is no dump in the folder.
    """
    found = load_manifest(folder)
    if found is None:
        raise HistoryUnreadable(f"{folder.url} holds no dump: there is no {MANIFEST}; write one with `streamdq dump`")
    return found


def update_manifest(folder: Folder, change: Callable[[Manifest], None], new: bool = False) -> Manifest:
    """Commits a change: reads the manifest, lets ``change`` modify it, and writes it. ``new``: there may be none yet.
    One process at a time, if the folder supports that: by a lock, or by noticing that another process was faster; then
    ``change`` is called again with what that process wrote. Returns the manifest written.

    Raises:
        FolderBusy: other processes were faster each time.
    """
    with folder.lock("manifest", "a commit", wait=True):
        for left in reversed(range(_TRIES)):
            stamp = folder.stamp(MANIFEST)
            manifest = (load_manifest(folder) or Manifest()) if new else require_manifest(folder)
            change(manifest)
            manifest.generation += 1
            try:
                folder.replace(MANIFEST, manifest.model_dump_json().encode(), stamp)
            except FolderBusy:
                if not left:
                    raise
            else:
                break
    return manifest


def remove_strays(folder: Folder, manifest: Manifest, letter: str) -> int:
    """Removes what a killed process left behind: files of its kind that are not in the manifest, and unfinished ones.
    ``letter``: the first letter of such files' names. Returns how many it removed.
    """
    named = {file.path for file in manifest.files} | {file.path for file in manifest.replaced}
    strays = [
        path
        for path in folder.files(EVENTS)
        if path not in named and path.rpartition("/")[2].lstrip("_").startswith(letter) and folder.abandoned(path)
    ]
    for path in strays:
        folder.remove(path)
    return len(strays)


def path_of(hour: int, name: str) -> str:
    """The path of a file for an hour (hours since 1970)."""
    when = datetime.fromtimestamp(hour * 3600, UTC)
    return f"{EVENTS}/dt={when:%Y-%m-%d}/hour={when:%H}/{name}.parquet"
