"""Reads dumps for the tests, and writes history as scripts would have left it at another time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import redis

from streamdq.dump.arrow import arrow_schema, by_hour, table_in, write_parquet
from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import EVENTS, DumpFile, Manifest, path_of, require_manifest, update_manifest
from streamdq.keys import ShardKeys
from streamdq.store.history.rows import SEPARATOR

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000 - 1_700_000_000_000 % HOUR_MS


def row_text(id: str, finished_ms: int, event: str = "done", **fields: Any) -> str:
    """A row in the form that scripts write."""
    values = {
        "event": event, "id": id, "group": "default", "attempt": 1, "step": 0, "consumer": "c-1-abc",
        "created_ms": finished_ms - 9, "due_ms": finished_ms - 8, "moved_ms": finished_ms - 7,
        "started_ms": finished_ms - 6, "error": "", "reason": "", "body_bytes": 12, "key": "",
        "finished_ms": finished_ms,
    } | fields  # fmt: skip
    return SEPARATOR.join(map(str, values.values()))


def write_rows(
    client: redis.Redis, shard: ShardKeys, count: int, begin_ms: int = START_MS, step_ms: int = 1000, name: str = "j"
) -> list[str]:
    """Writes history rows from another time, and counts them like the scripts; returns their entries."""
    with client.pipeline(transaction=False) as pipe:
        for n in range(count):
            at = begin_ms + n * step_ms
            pipe.xadd(shard.history, {"e": row_text(f"{name}{n}", at)}, id=f"{at}-{n}")
        entries = [entry.decode() for entry in pipe.execute()]
    if entries:
        client.hincrby(shard.counts, "history", count)
        client.hsetnx(shard.settings, "history_since", entries[0])
    return entries


def fill(folder: Folder, files: int, rows: int = 3, hours: int = 2, begin_ms: int = START_MS) -> None:
    """Writes a dump of several runs, each with rows in every hour."""
    for run in range(files):
        entries = []
        for hour in range(hours):
            at = begin_ms + hour * HOUR_MS + run * 1000
            entries += [(f"{at + n}-0".encode(), [b"e", row_text(f"{run}-{n}", at + n).encode()]) for n in range(rows)]

        def add(manifest: Manifest, entries: list[tuple[bytes, list[bytes]]] = entries) -> None:
            manifest.dumped += 1
            for hour, table in by_hour(table_in("t", 0, entries)).items():
                path = path_of(hour, f"d{manifest.dumped:09}")
                with folder.writing(path) as file:
                    write_parquet(table, file)
                manifest.files.append(DumpFile(path=path, rows=table.num_rows, bytes=folder.size(path)))

        update_manifest(folder, add, new=True)


def tables(folder: Folder) -> Iterator[pa.Table]:
    """The files in the manifest, each checked against it."""
    manifest = require_manifest(folder)
    assert len({file.path for file in manifest.files}) == len(manifest.files)
    for file in manifest.files:
        with folder.open(file.path) as opened:
            table = pq.ParquetFile(opened).read()
        assert table.schema.equals(arrow_schema(), check_metadata=True)
        assert (table.num_rows, folder.size(file.path)) == (file.rows, file.bytes)
        hours = {f"{EVENTS}/dt={at:%Y-%m-%d}/hour={at:%H}" for at in table["finished"].to_pylist()}
        assert hours == {file.path.rpartition("/")[0]}
        yield table


def dumped(folder: Folder | Path) -> list[dict[str, Any]]:
    """All rows of the dump, in the order of their streams; checks that there are no duplicates."""
    if isinstance(folder, Path):
        folder = LocalFolder(folder)
    rows = [row for table in tables(folder) for row in table.to_pylist()]
    keys = [(row["topic"], row["shard"], row["entry"]) for row in rows]
    assert len(set(keys)) == len(keys)
    manifest = require_manifest(folder)
    assert sum(stream.rows for stream in manifest.streams) in (len(rows), 0)
    return sorted(rows, key=lambda row: (row["topic"], row["shard"], *map(int, row["entry"].split("-"))))


def entries_of(folder: Folder | Path, topic: str = "t", shard: int = 0) -> list[str]:
    return [row["entry"] for row in dumped(folder) if (row["topic"], row["shard"]) == (topic, shard)]


def marks(manifest: Manifest) -> dict[tuple[str, int], str]:
    return {(stream.topic, stream.shard): stream.last for stream in manifest.streams}


def now_ms() -> int:
    return int(time.time() * 1000)
