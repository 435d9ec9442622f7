"""Dumps of real history: whole, exact, and honest about what went missing."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import fsspec
import pytest
import redis
from fsspec.spec import AbstractFileSystem

from streamdq import Bury, Job, Queue
from streamdq.config import Settings
from streamdq.dump import dumper as dump_module
from streamdq.dump.compaction import compact
from streamdq.dump.dumper import Dumped, Dumper
from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import MANIFEST, Manifest, load_manifest, require_manifest, update_manifest
from streamdq.dump.open_folder import open_folder
from streamdq.errors import FolderBusy, FolderError, HistoryUnreadable, InvalidInput, ServerRefusesWrites
from streamdq.keys import ShardKeys
from streamdq.store.history import COLUMNS, HistoryRow
from tests.dumps import HOUR_MS, START_MS, dumped, entries_of, marks, now_ms, row_text, write_rows
from tests.redis.harness import Space, eventually
from tests.servers import Cluster, Server, until

SHARD = ShardKeys("streamdq", "t", 0)


class Setting:
    """A topic, its history, and a folder for the dump."""

    def __init__(self, server: Server, path: Path, queue: Queue, client: redis.Redis) -> None:
        self.server = server
        self.queue = queue
        self.client = client
        self.folder: Folder = LocalFolder(path)

    def dump(self, **options: Any) -> Dumped:
        dumper = Dumper(self.folder, self.server.url, **options)
        with dumper.opened():
            return dumper.dump()

    def write(self, count: int, *, shard: ShardKeys = SHARD, **place: Any) -> list[str]:
        return write_rows(self.client, shard, count, **place)

    def backup(self) -> Callable[[], None]:
        """Keeps the shard's history as it is; returns what puts it back."""
        kept = {name: self.client.dump(name) for name in (SHARD.history, SHARD.counts, SHARD.settings)}

        def restore() -> None:
            for name, content in kept.items():
                assert isinstance(content, bytes)
                self.client.restore(name, 0, content, replace=True)

        return restore

    @property
    def manifest(self) -> Manifest:
        return require_manifest(self.folder)

    @property
    def entries(self) -> list[str]:
        return entries_of(self.folder)


@pytest.fixture
def here(redis_server: Server, tmp_path: Path) -> Iterator[Setting]:
    with Queue(redis_server.url) as queue, redis_server.client() as client:
        queue.configure("t")
        yield Setting(redis_server, tmp_path / "dump", queue, client)


# -- what is in it


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

    @worker.handler("t", retry="0", ttr="150ms")
    async def handler(body: str, job: Job) -> None:
        if body == "fails" and job.attempt == 1:
            raise ValueError("ü")
        if body == "gives up":
            raise Bury("enough")

    space.queue.configure("t", ttr="150ms", shards=3)
    space.queue.enqueue("t", "lost", id="lost")
    assert space.queue.take("t", timeout=5) is not None
    for n, body in enumerate(["fails", "gives up", "fine", "fine"]):
        space.queue.enqueue("t", body, id=f"日本 {n}", delay="10ms")
    space.queue.enqueue("t", "x", id="cancelled", delay="1h")
    space.queue.cancel("t", "cancelled")
    space.queue.enqueue("t", "x", id="expired", at=1_700_000_000_000, expire=1)
    async with space.serving(worker):
        await eventually(lambda: space.audit().left == 1, "all but the dead one done")
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


def test_entries_of_one_millisecond_are_told_apart(here: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_module, "PAGE", 3)
    entries = here.write(10, step_ms=0, begin_ms=START_MS)
    assert here.dump(batch=4).rows == 10
    assert here.entries == entries


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


# -- what Redis keeps for it


def test_redis_keeps_what_is_not_dumped_and_trims_what_is(here: Setting) -> None:
    settings = Settings(history_length=100)
    with Queue(here.server.url, settings=settings) as queue:

        def end(count: int) -> None:
            for job in [queue.enqueue("t", 1, delay="1h") for _ in range(count)]:
                queue.cancel("t", job.id)

        end(350)
        assert here.client.xlen(SHARD.history) <= 200
        done = here.dump(settings=settings)
        assert done.rows + done.skipped == 350
        assert done.skipped >= 150
        end(350)
        assert here.client.xlen(SHARD.history) >= 350
        assert here.dump(settings=settings) == Dumped(rows=350, files=1)
        assert 100 <= here.client.xlen(SHARD.history) <= 200
    assert len(here.entries) == done.rows + 350


@pytest.mark.parametrize("before", [True, False], ids=["again", "first"])
def test_a_redis_that_is_full_is_dumped_and_gets_room(here: Setting, before: bool) -> None:
    if before:
        here.dump()
    here.write(1000)
    here.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(ServerRefusesWrites):
            here.queue.enqueue("t", 1)
        assert here.dump(settings=Settings(history_length=100)).rows == 1000
    finally:
        here.client.config_set("maxmemory", 0)
    assert here.client.xlen(SHARD.history) <= 200


def test_an_older_history_is_dumped_from_where_it_begins(here: Setting) -> None:
    entries = here.write(300)
    here.client.xtrim(SHARD.history, minid=entries[120], approximate=False)
    done = here.dump()
    assert (done.rows, done.skipped, done.lost, done.whole) == (180, 120, 0, True)
    assert here.manifest.streams[0].skipped == 120
    assert here.manifest.streams[0].first == entries[120]
    assert here.dump().skipped == 0


def test_a_stream_that_begins_after_the_dump_must_be_whole(here: Setting) -> None:
    here.dump()
    here.queue.configure("new")
    shard = ShardKeys("streamdq", "new", 0)
    entries = here.write(10, shard=shard, begin_ms=now_ms() + 60_000)
    here.client.xtrim(shard.history, maxlen=4, approximate=False)
    done = here.dump()
    assert (done.rows, done.lost, done.skipped, done.whole) == (4, 6, 0, False)
    assert entries_of(here.folder, "new") == entries[6:]
    assert here.dump().whole


@pytest.mark.parametrize("left", [0, 30, 130])
def test_what_was_trimmed_beyond_the_mark_is_counted(here: Setting, left: int) -> None:
    first = here.write(100)
    here.dump()
    second = here.write(100, begin_ms=START_MS + HOUR_MS)
    here.client.xtrim(SHARD.history, maxlen=left, approximate=False)
    done = here.dump()
    lost = max(0, 100 - left)
    assert (done.rows, done.lost, done.resets, done.whole) == (100 - lost, lost, 0, lost == 0)
    assert here.entries == first + second[lost:]
    assert here.manifest.streams[0].lost == lost
    third = here.write(10, begin_ms=START_MS + 2 * HOUR_MS)
    assert here.dump() == Dumped(rows=10, files=1)
    assert here.entries == first + second[lost:] + third


def test_a_stream_that_was_deleted_is_counted(here: Setting) -> None:
    here.write(10)
    here.dump()
    here.write(5, begin_ms=START_MS + HOUR_MS)
    here.client.delete(SHARD.history)
    assert here.dump().lost == 5
    again = here.write(3, begin_ms=START_MS + 2 * HOUR_MS)
    assert (here.dump().lost, here.entries[-3:]) == (0, again)


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("lacking", [0, 2])
def test_a_topic_that_was_deleted_takes_along_what_was_not_dumped(here: Setting, lacking: int, again: bool) -> None:
    """No more than that is lost, and it is known how much."""
    here.write(3)
    assert here.dump().rows == 3
    here.write(lacking, begin_ms=START_MS + HOUR_MS)
    here.queue.delete_topic("t")
    if again:
        here.queue.configure("t")
        here.write(1, begin_ms=START_MS + 2 * HOUR_MS)

    done = here.dump()
    assert (done.rows, done.lost, done.resets, done.whole) == (int(again), lacking, 0, not lacking)
    assert len(here.entries) == 3 + again
    assert here.dump().whole


def test_a_topic_that_is_deleted_and_made_again_while_it_is_followed(here: Setting) -> None:
    here.write(3)
    dumper = Dumper(here.folder, here.server.url, topics=["t"])
    with dumper.opened():
        assert dumper.dump().rows == 3
        here.queue.delete_topic("t")
        assert dumper.dump() == Dumped()
        here.queue.configure("t")
        here.write(2, begin_ms=START_MS + HOUR_MS)
        assert (dumper.dump().rows, dumper.dump().rows) == (2, 0)
    assert len(here.entries) == 5


def test_after_a_flush_everything_is_new(here: Setting) -> None:
    first = here.write(10, begin_ms=START_MS + HOUR_MS)
    here.dump()
    here.write(5, begin_ms=START_MS + 2 * HOUR_MS)
    here.client.flushall()
    here.queue.configure("t")
    # The clock was set back, too: these come before what was dumped.
    second = here.write(20)
    here.client.xtrim(SHARD.history, maxlen=13, approximate=False)
    done = here.dump()
    assert (done.rows, done.resets, done.lost, done.whole) == (13, 1, 7, False)
    assert here.entries == second[7:] + first
    assert (here.manifest.streams[0].resets, here.manifest.streams[0].lost) == (1, 7)
    assert here.dump().whole


def test_a_flush_is_told_also_while_nothing_has_happened_since(here: Setting) -> None:
    first = here.write(10)
    here.dump()
    here.client.flushall()
    assert here.dump().resets == 1
    assert here.dump().resets == 0
    assert here.client.keys() == []
    here.queue.configure("t")
    assert here.dump().resets == 0
    second = here.write(5, begin_ms=START_MS + HOUR_MS)
    assert (here.dump().rows, here.entries) == (5, first + second)


@pytest.mark.parametrize("more", [4, 10, 14])
def test_a_redis_that_went_back_is_told_and_nothing_is_twice(here: Setting, more: int) -> None:
    first = here.write(10)
    here.dump()
    restore = here.backup()
    second = here.write(10, begin_ms=START_MS + HOUR_MS)
    here.dump()
    restore()
    third = here.write(more, begin_ms=START_MS + 2 * HOUR_MS)
    done = here.dump()
    assert (done.rows, done.resets, done.lost) == (more, 1, 0)
    assert here.entries == first + second + third
    here.write(6, begin_ms=START_MS + 3 * HOUR_MS)
    assert here.dump() == Dumped(rows=6, files=1)


@pytest.mark.parametrize("meanwhile", [0, 4])
def test_a_redis_that_was_lost_and_restored_is_not_dumped_twice(here: Setting, meanwhile: int) -> None:
    entries = here.write(10)
    here.dump()
    for n in range(2):
        restore = here.backup()
        here.client.flushall()
        here.queue.configure("t")
        entries += here.write(meanwhile, begin_ms=START_MS + (2 * n + 1) * HOUR_MS)
        lost = here.dump()
        assert (lost.rows, lost.resets) == (meanwhile, 1)
        restore()
        entries += here.write(5, begin_ms=START_MS + (2 * n + 2) * HOUR_MS)
        done = here.dump()
        assert (done.rows, done.lost, done.resets) == (5, 0, 1 if meanwhile else 0)
        assert here.entries == entries


def test_a_stream_made_again_in_the_past_is_told(here: Setting) -> None:
    first = here.write(10, begin_ms=START_MS + HOUR_MS)
    here.dump()
    here.client.delete(SHARD.history)
    second = here.write(5)
    done = here.dump()
    assert (done.rows, done.resets) == (5, 1)
    assert here.entries == second + first


def test_a_stream_whose_counters_were_lost_is_still_the_same(here: Setting) -> None:
    first = here.write(10)
    here.dump()
    here.client.delete(SHARD.counts)
    here.client.hdel(SHARD.settings, "history_since", "dumps")
    second = here.write(5, begin_ms=START_MS + HOUR_MS)
    done = here.dump()
    assert (done.rows, here.entries) == (5, first + second)
    third = here.write(5, begin_ms=START_MS + 2 * HOUR_MS)
    assert here.dump() == Dumped(rows=5, files=1)
    assert here.entries == first + second + third


def test_fewer_shards_leave_none_of_their_history_behind(here: Setting) -> None:
    here.queue.configure("u", shards=3)
    last = ShardKeys("streamdq", "u", 2)
    here.write(5, shard=last)
    here.dump()
    here.write(5, shard=last, begin_ms=START_MS + HOUR_MS)
    here.queue.configure("u", shards=1)
    assert here.dump().rows == 5
    assert len(entries_of(here.folder, "u", 2)) == 10


def test_a_forgotten_dump_holds_nothing_and_goes_on_later(here: Setting) -> None:
    here.write(10)
    dumper = Dumper(here.folder, here.server.url)
    with dumper.opened():
        dumper.dump()
        assert here.client.hexists(SHARD.settings, "dumps")
        dumper.forget()
    assert not here.client.hexists(SHARD.settings, "dumps")
    here.write(10, begin_ms=START_MS + HOUR_MS)
    assert here.dump().rows == 10
    assert here.client.hexists(SHARD.settings, "dumps")


def test_on_a_cluster(redis_cluster: Cluster, tmp_path: Path) -> None:
    with Queue(redis_cluster.url) as queue:
        queue.configure("t", shards=4)
        for n in range(40):
            queue.enqueue("t", 1, id=str(n), delay="1h")
            queue.cancel("t", str(n))
    dumper = Dumper(LocalFolder(tmp_path), redis_cluster.url)
    with dumper.opened():
        assert dumper.dump() == Dumped(rows=40, files=len(require_manifest(LocalFolder(tmp_path)).files))
        assert dumper.dump() == Dumped()
    rows = dumped(tmp_path)
    assert {row["id"] for row in rows} == {str(n) for n in range(40)}
    assert {row["shard"] for row in rows} == {0, 1, 2, 3}


# -- the folder


def test_a_full_disk_costs_nothing_that_was_committed(here: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    first = here.write(10)
    here.dump()
    second = here.write(10, begin_ms=START_MS + HOUR_MS)
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(FolderError, match="No space left on device"):
            here.dump()
    assert here.entries == first
    assert here.folder.files("events") == [file.path for file in here.manifest.files]
    assert (here.dump().rows, here.entries) == (10, first + second)


def test_files_are_joined_while_a_dump_goes_on(here: Setting) -> None:
    entries = here.write(10)
    dumper = Dumper(here.folder, here.server.url)
    with dumper.opened():
        for hour in range(3):
            dumper.dump()
            entries += here.write(10, begin_ms=START_MS + 60_000 * (hour + 1))
            compact(here.folder, grace_s=0)
        dumper.dump()
    assert here.entries == entries
    assert len(here.manifest.files) == 2


def test_a_killed_ones_files_are_cleared_away(here: Setting) -> None:
    entries = here.write(3)
    here.folder.write("events/dt=2023-11-14/hour=22/d000000001.parquet", b"not committed")
    here.folder.write("events/dt=2023-11-14/hour=22/_d000000001.parquet.tmp", b"half")
    here.folder.write("events/dt=2023-11-14/hour=22/c000000001.parquet", b"another's")
    here.dump()
    assert here.entries == entries
    names = [path.rpartition("/")[2] for path in here.folder.files("events")]
    assert names == ["c000000001.parquet", "d000000001.parquet"]


def test_a_folder_holds_the_dump_of_one_namespace(here: Setting) -> None:
    here.dump()
    with pytest.raises(InvalidInput, match="holds the dump of namespace 'streamdq', not 'other'"):
        here.dump(namespace="other")


def test_two_dumps_keep_out_of_each_others_way(here: Setting) -> None:
    with Dumper(here.folder, here.server.url).opened(), pytest.raises(FolderBusy, match="is already running"):
        here.dump()
    assert here.dump().whole


@pytest.fixture
def remote(here: Setting) -> Iterator[Setting]:
    """In fsspec's memory, where no lock tells and a rename is a copy."""
    system = fsspec.filesystem("memory")
    here.folder = open_folder("memory://bucket/dump")
    yield here
    system.rm("/bucket", recursive=True)


def test_any_url_of_fsspec(remote: Setting) -> None:
    first = remote.write(50, step_ms=HOUR_MS // 25)
    assert remote.dump(batch=20).rows == 50
    second = remote.write(5, begin_ms=START_MS + 5 * HOUR_MS)
    assert remote.dump().rows == 5
    assert remote.entries == first + second
    assert remote.folder.files("") == sorted([MANIFEST, *(file.path for file in remote.manifest.files)])


def test_two_dumps_at_once_are_found_out_where_nothing_locks(remote: Setting) -> None:
    entries = remote.write(10)
    late = Dumper(remote.folder, remote.server.url)
    with late.opened():

        def overtaken(rows: int, _total: int | None) -> None:
            if rows:
                remote.dump()

        with pytest.raises(FolderBusy, match="another dump has written there meanwhile"):
            late.dump(progress=overtaken)
        assert late.dump().rows == 0
    assert remote.entries == entries


def test_what_another_has_written_and_not_committed_yet_stays(remote: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = remote.write(10)
    commit = update_manifest

    def meanwhile(*arguments: Any, **options: Any) -> Manifest:
        if remote.folder.files("events"):
            monkeypatch.setattr(dump_module, "update_manifest", commit)
            with Dumper(open_folder(remote.folder.url), remote.server.url).opened():
                pass
        return commit(*arguments, **options)

    monkeypatch.setattr(dump_module, "update_manifest", meanwhile)
    assert remote.dump().rows == 10
    assert vars(dump_module)["update_manifest"] is commit
    assert remote.entries == entries


def test_another_that_commits_first_touches_no_file_of_the_other(
    remote: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = remote.write(10)
    commit = update_manifest
    second: list[str] = []

    def meanwhile(*arguments: Any, **options: Any) -> Manifest:
        if remote.folder.files("events"):
            monkeypatch.setattr(dump_module, "update_manifest", commit)
            second.extend(remote.write(3, begin_ms=START_MS + 60_000))
            with Dumper(open_folder(remote.folder.url), remote.server.url).opened() as faster:
                assert faster.dump().rows == 13
        return commit(*arguments, **options)

    monkeypatch.setattr(dump_module, "update_manifest", meanwhile)
    with pytest.raises(FolderBusy, match="another dump has written there meanwhile"):
        remote.dump()
    assert remote.entries == first + second
    assert remote.dump() == Dumped()


def test_what_a_killed_run_left_goes_after_a_day(remote: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    remote.write(3)
    remote.dump()
    left = [
        "events/dt=2023-11-14/hour=22/d000000009-1a.parquet",
        "events/dt=2023-11-14/hour=22/_d000000009-1a.parquet.tmp",
    ]
    for path in left:
        remote.folder.write(path, b"cut o")
    assert remote.dump().whole
    assert set(left) < set(remote.folder.files("events"))
    monkeypatch.setattr("streamdq.dump.remote.ABANDONED_AFTER", timedelta(0))
    assert remote.dump().whole
    assert remote.folder.files("events") == [file.path for file in remote.manifest.files]
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "modified", AbstractFileSystem.modified)
    remote.folder.write(left[0], b"cut o")
    assert remote.dump().whole
    assert left[0] in remote.folder.files("events"), "where no time is told, nothing is taken for abandoned"


def test_a_copy_that_was_cut_off_is_made_good(remote: Setting) -> None:
    """What a rename leaves that is a copy and dies: half of the target, and all of the source."""
    entries = remote.write(10)
    remote.dump()
    system = fsspec.filesystem("memory")
    whole = system.cat_file("/bucket/dump/manifest.json")
    system.pipe_file("/bucket/dump/_manifest.json.tmp", whole)
    system.pipe_file("/bucket/dump/manifest.json", whole[: len(whole) // 2])
    assert remote.entries == entries
    more = remote.write(5, begin_ms=START_MS + HOUR_MS)
    assert remote.dump().rows == 5
    assert remote.entries == entries + more


def test_half_a_manifest_beside_a_whole_one_is_left_alone(here: Setting) -> None:
    entries = here.write(10)
    here.dump()
    here.folder.write("_manifest.json.tmp", b'{"format": "stre')
    assert here.entries == entries


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is damaged"),
        ('{"format": "streamdq dump"', "is damaged"),
        ("[]", "is damaged"),
        ('{"format": "notes"}', "is not the manifest of a dump"),
        ('{"format": "streamdq dump", "schema_version": "9"}', "has schema version '9'"),
        ('{"format": "streamdq dump", "schema_version": "1", "files": [{"path": "x"}]}', "is damaged: files.0.rows"),
    ],
)
def test_a_manifest_that_can_not_be_read_stops_the_dump(here: Setting, content: str, message: str) -> None:
    here.write(3)
    here.folder.write(MANIFEST, content.encode())
    with pytest.raises(HistoryUnreadable, match=message):
        here.dump()
    assert here.folder.files("events") == []


def test_the_manifest_is_plain_json(here: Setting) -> None:
    here.write(3)
    here.dump()
    found = json.loads(here.folder.read(MANIFEST) or b"")
    assert found["schema_version"] == "1"
    assert found["namespace"] == "streamdq"
    assert found["streams"][0]["rows"] == 3 == found["files"][0]["rows"]
    assert marks(here.manifest) == {("t", 0): here.entries[-1]}


def test_there_is_none_before_the_first_run(here: Setting) -> None:
    assert load_manifest(here.folder) is None
    with pytest.raises(HistoryUnreadable, match="holds no dump"):
        require_manifest(here.folder)
    until(lambda: here.dump().whole, "dumped")
    assert require_manifest(here.folder).files == []
