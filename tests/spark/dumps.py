"""Small dumps, written row by row."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamdq import Queue
from streamdq.dump.arrow import arrow_schema, write_parquet
from streamdq.dump.manifest import MANIFEST, DumpFile, Manifest
from streamdq.store.history.rows import COLUMNS
from tests.spark.plain import Happened

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = {"created", "due", "moved", "started", "finished"}
START = datetime(2026, 1, 5, tzinfo=UTC)  # a Monday
DEFAULTS: dict[str, Any] = {
    "topic": "order.close", "shard": 0, "event": "done", "group": "default", "attempt": 1, "step": 0, "consumer": "w1",
    "error": None, "reason": None, "body_bytes": 20,
}  # fmt: skip


def event(number: int, finished: datetime, **columns: Any) -> dict[str, Any]:
    """A job that was done 5 ms after it was due, unless `columns` say otherwise."""
    due = columns.get("due", finished - timedelta(milliseconds=5))
    times = {"created": due - timedelta(minutes=1), "due": due, "moved": due, "started": due, "finished": finished}
    own = {"entry": f"{round(finished.timestamp() * 1000)}-{number}", "id": f"j{number}"}
    return DEFAULTS | times | own | columns


def days_of(days: int, each: int = 10) -> list[dict[str, Any]]:
    """So many events on each day, an hour apart, the topics and ends taking turns."""
    return [
        event(
            day * each + n,
            START + timedelta(days=day, hours=n, minutes=1),
            topic=("order.close", "refund.check")[n % 2],
            event=("done", "done", "retry", "dead")[n % 4],
        )
        for day in range(days)
        for n in range(each)
    ]


def as_row(happened: Happened) -> dict[str, Any]:
    """An event of a made-up history, as a dump holds it."""
    return {
        key: EPOCH + timedelta(milliseconds=value) if key in TIMES and value is not None else value
        for key, value in happened._asdict().items()
    }


def happened_in(queue: Queue, topic: str) -> Iterator[Happened]:
    """The history as Redis has it: not as a dump has it."""
    after: dict[int, str] = {}
    while (page := queue.history(topic, after)).rows:
        after = page.after
        for row in page.rows:
            yield Happened(
                row.topic, row.shard, row.entry, row.event.value, row.id, row.group or None, row.attempt, row.step,
                row.consumer or None, row.created_ms, row.due_ms, row.moved_ms, row.started_ms, row.finished_ms,
                row.error or None, row.reason or None, row.body_bytes, row.key or None,
            )  # fmt: skip


def write_dump(folder: Path, events: Iterable[dict[str, Any]], *, hours_each: int = 1) -> Manifest:
    """A dump as `streamdq dump` leaves it: a file per hour, and the manifest that names them. A file may also hold some
    hours, where so many files would only take time.
    """
    hours = defaultdict(list)
    for row in events:
        hour = row["finished"].hour // hours_each * hours_each
        hours[f"dt={row['finished']:%Y-%m-%d}/hour={hour:02}"].append(row)
    manifest = Manifest(namespace="streamdq", generation=1)
    for hour, rows in hours.items():
        path = f"events/{hour}/{len(manifest.files):06d}.parquet"
        manifest.files.append(write_file(folder, path, rows))
    write_manifest(folder, manifest)
    return manifest


def write_file(folder: Path, path: str, rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> DumpFile:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as opened:
        write_parquet(pa.Table.from_pylist(rows, schema or arrow_schema()), opened)
    return DumpFile(path=path, rows=len(rows), bytes=file.stat().st_size)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).write_text(json.dumps(manifest.model_dump()))


def damage_pages(file: Path) -> None:
    """The footer stays whole, and so all checks pass."""
    held = bytearray(file.read_bytes())
    footer = int.from_bytes(held[-8:-4], "little") + 8
    held[4 : len(held) - footer] = bytes(len(held) - footer - 4)
    file.write_bytes(held)


def column_names() -> list[str]:
    return [column.name for column in COLUMNS]
