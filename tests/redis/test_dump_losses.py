"""What Redis keeps for a dump, and how a dump tells of what is gone: trimmed, deleted, flushed, or put back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamdq import Queue
from streamdq.config import Settings
from streamdq.dump.dumper import Dumped, Dumper
from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import Manifest, require_manifest, update_manifest
from streamdq.errors import InvalidInput, ServerRefusesWrites
from streamdq.keys import NamespaceKeys, ShardKeys
from streamdq.store.scripts import Scripts
from tests.dumps import HOUR_MS, START_MS, dumped, entries_of, now_ms
from tests.redis.dumping import SHARD, Setting
from tests.servers import Cluster


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


@pytest.mark.parametrize("only", [(), ("t", "new")], ids=["all", "named"])
def test_what_is_made_while_a_dump_runs_is_kept_from_its_first_row(here: Setting, only: tuple[str, ...]) -> None:
    settings = Settings(history_length=100)
    here.queue.configure("new", create=True)
    dumper = Dumper(here.folder, here.server.url, topics=only, settings=settings)
    with Queue(here.server.url, settings=settings) as queue, dumper.opened():
        dumper.dump()

        def made(_rows: int, total: int | None) -> None:
            if total is not None:  # the shards that this run reads have been asked
                queue.configure("t", shards=2)
                queue.delete_topic("new")
                queue.configure("new", create=True)

        dumper.dump(progress=made)
        shards = [ShardKeys("streamdq", "t", 1), ShardKeys("streamdq", "new", 0)]
        for shard in shards:
            here.write(350, shard=shard)
            for n in range(8):  # of t some are in this shard
                queue.enqueue(shard.topic, 1, id=f"{n}", delay="1h")
                queue.cancel(shard.topic, f"{n}")  # writes a row, and would trim
        assert dumper.dump() == Dumped(rows=716, files=len(here.manifest.files))
    assert all(here.client.xlen(shard.history) < 250 for shard in shards), "what is dumped is trimmed"


def test_a_dump_of_some_topics_keeps_no_history_of_others(here: Setting) -> None:
    here.dump(topics=["t"])
    here.queue.configure("new", create=True)
    assert not here.client.hexists(ShardKeys("streamdq", "new", 0).settings, "dumps")
    with pytest.raises(InvalidInput):
        here.dump(topics=["tt"])
    here.queue.configure("tt", create=True)
    assert not here.client.hexists(ShardKeys("streamdq", "tt", 0).settings, "dumps"), "it was misspelt"


def test_a_dump_that_is_forgotten_while_a_topic_is_made_holds_nothing(
    here: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.dump()
    configure, forgotten = Scripts.configure_each, []

    def late(self: Scripts, *args: Any) -> Any:
        with Queue(here.server.url) as queue:
            forgotten.append(queue.forget_dump(here.manifest.id))
        return configure(self, *args)

    monkeypatch.setattr(Scripts, "configure_each", late)
    here.queue.configure("new", create=True)
    assert forgotten[0]
    assert not here.client.hexists(ShardKeys("streamdq", "new", 0).settings, "dumps")
    assert not here.client.exists(NamespaceKeys("streamdq").dumps)


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
    assert here.dump().whole
    assert here.client.exists(NamespaceKeys("streamdq").dumps), "a topic that is made now is kept for it"


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
    here.queue.configure("new", create=True)
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


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("lacking", [0, 2])
def test_a_topic_that_was_deleted_takes_along_what_was_not_dumped(here: Setting, lacking: int, again: bool) -> None:
    """No more than that is lost, and it is known how much."""
    here.write(3)
    assert here.dump().rows == 3
    here.write(lacking, begin_ms=START_MS + HOUR_MS)
    here.queue.delete_topic("t")
    if again:
        here.queue.configure("t", create=True)
        here.write(1, begin_ms=START_MS + 2 * HOUR_MS)

    done = here.dump()
    assert (done.rows, done.lost, done.resets, done.whole) == (int(again), lacking, 0, not lacking)
    assert len(here.entries) == 3 + again
    assert here.dump().whole


def test_a_topic_that_was_deleted_before_a_row_of_it_was_dumped_takes_its_rows_along(here: Setting) -> None:
    here.dump()
    began_ms = now_ms()
    here.write(4, begin_ms=began_ms + HOUR_MS)
    here.queue.delete_topic("t")
    here.queue.configure("t", create=True)
    here.write(1, begin_ms=began_ms + 2 * HOUR_MS)
    done = here.dump()
    assert (done.rows, done.lost, done.whole) == (1, 4, False)
    assert here.dump().whole


def test_what_was_lost_with_a_deleted_topic_is_counted_once(here: Setting) -> None:
    """Also where none of its rows had been dumped before."""
    here.dump()
    began_ms = now_ms()
    here.write(4, begin_ms=began_ms + HOUR_MS)

    def begun(manifest: Manifest) -> None:  # as a run leaves it that was stopped after another stream's rows
        manifest.stream("t", 0).since = f"{began_ms + HOUR_MS}-0"

    update_manifest(here.folder, begun)
    here.queue.delete_topic("t")
    assert here.dump().lost == 4
    here.queue.configure("t", create=True)
    here.write(1, begin_ms=began_ms + 2 * HOUR_MS)
    assert here.dump() == Dumped(rows=1, files=1)


def test_a_topic_that_is_deleted_and_made_again_while_it_is_followed(here: Setting) -> None:
    here.write(3)
    dumper = Dumper(here.folder, here.server.url, topics=["t"])
    with dumper.opened():
        assert dumper.dump().rows == 3
        here.queue.delete_topic("t")
        assert dumper.dump() == Dumped()
        here.queue.configure("t", create=True)
        here.write(2, begin_ms=START_MS + HOUR_MS)
        assert (dumper.dump().rows, dumper.dump().rows) == (2, 0)
    assert len(here.entries) == 5


def test_after_a_flush_everything_is_new(here: Setting) -> None:
    first = here.write(10, begin_ms=START_MS + HOUR_MS)
    here.dump()
    here.write(5, begin_ms=START_MS + 2 * HOUR_MS)
    here.client.flushall()
    here.queue.configure("t", create=True)
    # The clock was set back, too: these come before what was dumped.
    second = here.write(20)
    here.client.xtrim(SHARD.history, maxlen=13, approximate=False)
    done = here.dump()
    assert (done.rows, done.resets, done.lost, done.whole) == (13, 1, 7, False)
    assert here.entries == second[7:] + first
    assert (here.manifest.streams[0].resets, here.manifest.streams[0].lost) == (1, 7)
    assert here.dump().whole


def test_a_flush_is_reported_also_while_nothing_has_happened_since(here: Setting) -> None:
    first = here.write(10)
    here.dump()
    here.client.flushall()
    assert here.dump().resets == 1
    assert here.dump().resets == 0
    assert here.client.keys() == [NamespaceKeys("streamdq").dumps.encode()], "no shard is made"
    here.queue.configure("t", create=True)
    assert here.dump().resets == 0
    second = here.write(5, begin_ms=START_MS + HOUR_MS)
    assert (here.dump().rows, here.entries) == (5, first + second)


@pytest.mark.parametrize("more", [4, 10, 14])
def test_a_redis_that_went_back_is_reported_and_nothing_is_twice(here: Setting, more: int) -> None:
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
        here.queue.configure("t", create=True)
        entries += here.write(meanwhile, begin_ms=START_MS + (2 * n + 1) * HOUR_MS)
        lost = here.dump()
        assert (lost.rows, lost.resets) == (meanwhile, 1)
        restore()
        entries += here.write(5, begin_ms=START_MS + (2 * n + 2) * HOUR_MS)
        done = here.dump()
        assert (done.rows, done.lost, done.resets) == (5, 0, 1 if meanwhile else 0)
        assert here.entries == entries


def test_a_stream_made_again_in_the_past_is_reported(here: Setting) -> None:
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
    assert not here.client.exists(NamespaceKeys("streamdq").dumps)
    here.write(10, begin_ms=START_MS + HOUR_MS)
    assert here.dump().rows == 10
    assert here.client.hexists(SHARD.settings, "dumps")


@pytest.mark.thorough
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
    with Queue(redis_cluster.url) as queue, redis_cluster.client() as client:
        queue.configure("t", shards=6)
        queue.configure("new", create=True)
        made = [*(ShardKeys("streamdq", "t", number) for number in range(6)), ShardKeys("streamdq", "new", 0)]
        assert all(client.hexists(shard.settings, "dumps") for shard in made)
    rows = dumped(tmp_path)
    assert {row["id"] for row in rows} == {str(n) for n in range(40)}
    assert {row["shard"] for row in rows} == {0, 1, 2, 3}
