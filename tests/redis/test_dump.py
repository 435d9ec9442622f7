"""Dumps of real history: whole and exact, run after run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streamdq import Bury, Job
from streamdq.dump import dumper as dump_module
from streamdq.dump.dumper import Dumped, Dumper
from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import require_manifest
from streamdq.errors import InvalidInput
from streamdq.keys import ShardKeys
from streamdq.store.history.rows import COLUMNS, HistoryRow
from tests.dumps import HOUR_MS, START_MS, dumped, entries_of, now_ms, row_text
from tests.redis.dumping import SHARD, Setting
from tests.redis.harness import Space
from tests.servers import Server
from tests.waiting import eventually


def as_dumped(row: HistoryRow) -> dict[str, Any]:
    """What a dump should hold of the row, told apart from how the dump is made."""
    values: dict[str, Any] = {}
    for column in COLUMNS:
        if hasattr(row, column.name):
            value = getattr(row, column.name)
            values[column.name] = None if value == "" else value
        else:
            ms = getattr(row, f"{column.name}_ms")
            values[column.name] = None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
    return values


async def test_a_real_life_row_by_row(space: Space, redis_server: Server, tmp_path: Path) -> None:
    worker = space.worker()

    @worker.handler("t", retry="0")
    async def handler(body: str, job: Job) -> None:
        if body == "fails" and job.attempt == 1:
            raise ValueError("ü")
        if body == "gives up":
            raise Bury("enough")

    space.queue.configure("t", shards=3)
    space.queue.enqueue("t", "lost", id="lost")
    (space.queue.take("t") or pytest.fail("nothing came")).touch("1ms")
    for n, body in enumerate(["fails", "gives up", "fine", "fine"]):
        space.queue.enqueue("t", body, id=f"日本 {n}", delay="10ms")
    space.queue.enqueue("t", "x", id="cancelled", delay="1h")
    space.queue.cancel("t", "cancelled")
    space.queue.enqueue("t", "x", id="expired", at=1_700_000_000_000, expire=1)
    async with space.serving(worker):
        await eventually(lambda: space.audit().left == 0, "all but the dead one done")
    space.queue.kick("t", "日本 1")
    await space.burst(worker)
    with Dumper(LocalFolder(tmp_path), redis_server.url, "test").opened() as dumper:
        done = dumper.dump()
    rows = space.queue.history("t").rows
    assert {row.event for row in rows} == {"done", "retry", "dead", "reclaimed", "cancelled", "expired", "kicked"}
    assert dumped(tmp_path) == [as_dumped(row) for row in rows]
    assert (done.rows, done.whole, done.skipped) == (len(rows), True, 0)
    manifest = require_manifest(LocalFolder(tmp_path))
    assert manifest.rows == len(rows) == sum(stream.rows for stream in manifest.streams)
    assert {(stream.topic, stream.shard) for stream in manifest.streams} == {("t", 0), ("t", 1), ("t", 2)}
    for stream in manifest.streams:
        own = [row["entry"] for row in dumped(tmp_path) if row["shard"] == stream.shard]
        assert ([stream.first, stream.last] if own else []) == ([own[0], own[-1]] if own else [])
        assert stream.written == len(own)


def test_a_second_run_takes_what_came_since(here: Setting) -> None:
    first = here.write(10)
    assert here.dump().rows == 10
    assert here.dump() == Dumped()
    files, generation = here.manifest.files, here.manifest.generation
    second = here.write(5, begin_ms=START_MS + HOUR_MS)
    assert (here.dump().rows, here.entries) == (5, first + second)
    assert here.manifest.files[: len(files)] == files
    assert here.manifest.generation == generation + 1


def test_hours_and_batches_are_files_of_their_own(here: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_module, "PAGE", 7)
    entries = here.write(100, step_ms=HOUR_MS // 25)
    done = here.dump(batch=30)
    assert (done.rows, here.entries) == (100, entries)
    # 35 rows at a time: the first batch ends within the second hour, and so on.
    assert [file.rows for file in here.manifest.files] == [25, 10, 15, 20, 5, 25]
    assert len({file.path.rpartition("/")[0] for file in here.manifest.files}) == 4
    assert done.files == 6


def test_one_topic_of_several(here: Setting) -> None:
    here.queue.configure("u", shards=2)
    mine = here.write(3)
    other = here.write(4, shard=ShardKeys("streamdq", "u", 1))
    assert here.dump(topics=["t"]).rows == 3
    assert [stream.topic for stream in here.manifest.streams] == ["t"]
    assert here.dump().rows == 4
    assert (here.entries, entries_of(here.folder, "u", 1)) == (mine, other)
    with pytest.raises(InvalidInput, match="no topic 'v'"):
        here.dump(topics=["v"])


def test_what_is_written_meanwhile_waits_for_the_next_run(here: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_module, "PAGE", 10)
    here.write(30)
    dumper, seen = Dumper(here.folder, here.server.url), []

    def more(rows: int, total: int | None) -> None:
        seen.append((rows, total))
        if total is None and len(seen) == 2:
            here.write(30, begin_ms=START_MS + HOUR_MS, name="later")

    with dumper.opened():
        assert dumper.dump(progress=more).rows == 30
        assert seen == [(0, 30), (10, None), (10, None), (10, None)]
        assert dumper.dump().rows == 30
    assert len(here.entries) == 60


def test_it_can_be_stopped_between_pages(here: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_module, "PAGE", 10)
    entries = here.write(30)
    dumper = Dumper(here.folder, here.server.url)
    with dumper.opened():
        assert dumper.dump(stopping=lambda: True).rows == 10
        assert here.entries == entries[:10]
        assert dumper.dump() == Dumped(rows=20, files=1)
    assert here.entries == entries


@pytest.mark.foreign_keys
def test_what_is_no_row_is_left_out_and_counted(here: Setting) -> None:
    good = row_text("good", START_MS)
    texts: list[Any] = [
        good, "", "nonsense", good.replace("done", "danced"), good.replace("good", "go\nod"), good + "\x1fmore",
        row_text("", START_MS), row_text("x", START_MS, attempt="many"), b"\xff" + good.encode(),
        row_text("x", START_MS, attempt=2**31), row_text("x", 10**20), row_text("x", 10**15),
        good.rpartition("\x1f")[0] + "\x1f",
    ]  # fmt: skip
    for text in texts:
        here.client.xadd(SHARD.history, {"e": text})
    here.write(2, begin_ms=now_ms() + 1000)
    here.client.hincrby(SHARD.counts, "history", len(texts))
    done = here.dump()
    assert (done.rows, done.unreadable, done.lost, done.whole) == (3, 12, 0, False)
    assert [row["id"] for row in dumped(here.folder)] == ["good", "j0", "j1"]
    assert here.manifest.unreadable == 12
    assert here.dump().whole
