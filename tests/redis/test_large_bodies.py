"""Large bodies in files, and who deletes these."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streamdq import AsyncQueue, Job, JobExists, NewJob
from streamdq.archive import Archive
from streamdq.codec import offload as offload_module
from streamdq.codec.encrypt import new_key
from streamdq.errors import BodyStorageUnavailable, InvalidInput
from streamdq.operations.jobs.large_bodies import Swept, sweep
from streamdq.queue import Queue, carry_out, store_of
from streamdq.store.commands import one
from streamdq.worker import ended_files
from tests.redis.harness import NAMESPACE, Seen, Space, taken
from tests.servers import Server
from tests.waiting import HANG_S, eventually

LARGE = "a large text " * 5000
DAY = timedelta(days=1)


class Store:
    """A folder for large bodies."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.settings: dict[str, Any] = {
            "codec": "offload", "offload": f"file://{where}", "offload_over_bytes": 1000, "max_body_bytes": 2000,
        }  # fmt: skip

    @property
    def files(self) -> list[Path]:
        return [path for path in self.where.rglob("*") if path.is_file()]


@pytest.fixture
def files(tmp_path: Path) -> Store:
    return Store(tmp_path / "bodies")


def swept(queue: Queue, *, delete: bool = True) -> Swept:
    return carry_out(queue, sweep(store_of(queue), DAY, delete=delete))


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files that are written in the test count as two days old."""
    monkeypatch.setattr(offload_module, "wall_now", lambda: datetime(2030, 1, 1, tzinfo=UTC))
    yield
    monkeypatch.undo()


def two_days_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload_module, "wall_now", lambda: datetime(2030, 1, 3, tzinfo=UTC))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers delete files as soon as the jobs have ended."""
    monkeypatch.setattr(ended_files, "_LATER_S", 0)


async def test_a_redis_that_lost_the_end_of_a_job_has_its_body(
    space: Space, redis_server: Server, seen: Seen, files: Store
) -> None:
    """As after a failover, or a crash between two writes of the append-only file."""
    worker, again = space.worker(**files.settings), space.worker(**files.settings)
    worker.handler("t")(seen.add)
    again.handler("t")(seen.add)
    space.another_queue(**files.settings).enqueue("t", LARGE)
    with redis_server.client() as client:
        saved = {key: client.dump(key) for key in client.scan_iter()}
        await space.burst(worker)
        client.flushall()
        for key, value in saved.items():
            client.restore(key, 0, value)
    await space.burst(again)
    assert seen.all == [LARGE, LARGE]
    assert len(files.files) == 1, "left to the sweep"


@pytest.mark.usefixtures("at_once")
async def test_a_large_body_arrives_and_its_file_goes(space: Space, seen: Seen, files: Store) -> None:
    worker = space.worker(**files.settings)

    @worker.handler("t")
    async def handler(body: str, job: Job) -> None:
        if job.attempt == 1:
            raise ValueError("once more")
        seen.add(body)

    queue = space.another_queue(**files.settings)
    made = queue.enqueue("t", LARGE, id="j", retry="1ms")
    assert made.body == LARGE
    assert len(files.files) == 1
    assert len(queue.get("t", "j").raw_body) < 150  # type: ignore[union-attr]
    queue.enqueue_many("t", [NewJob(LARGE + str(n), retry="1ms") for n in range(20)] + [NewJob("small", retry="1ms")])
    assert len(files.files) == 21
    async with space.serving(worker):
        assert sorted(await seen.count(22)) == sorted([LARGE, "small", *(LARGE + str(n) for n in range(20))])
        await eventually(lambda: not files.files, "the files are gone")


async def test_a_file_stays_until_the_last_group_has_finished(space: Space, files: Store) -> None:
    queue = space.another_queue(**files.settings)
    queue.configure("t", groups=["a", "b"])
    queue.enqueue("t", LARGE, id="j")
    for group, left in (("a", 1), ("b", 0)):
        claim = taken(queue, "t", group)
        assert claim.job.body == LARGE
        claim.finish()
        assert len(files.files) == left


def test_what_was_not_enqueued_leaves_no_file(space: Space, files: Store) -> None:
    queue = space.another_queue(**files.settings)
    queue.enqueue("t", LARGE, id="j", delay="1h")
    before = files.files
    with pytest.raises(JobExists):
        queue.enqueue("t", LARGE + "other", id="j")
    assert queue.enqueue("t", LARGE + "other", id="j", on_conflict="keep").body == LARGE
    assert queue.enqueue_many("t", [NewJob(LARGE, id="j")]).existing == ["j"]
    with pytest.raises(InvalidInput):
        queue.enqueue("t", LARGE, id="k", ttr=-1)
    with pytest.raises(InvalidInput, match="more than the 4194304 allowed"):
        queue.enqueue("t", "x" * 5_000_000)
    assert files.files == before
    queue.cancel("t", "j")


@pytest.mark.usefixtures("later")
def test_the_sweep_finds_jobs_in_the_shards_of_their_keys(
    space: Space, files: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = space.another_queue(**files.settings)
    queue.configure("t", shards=8)
    for n in range(20):
        queue.enqueue("t", LARGE, id=f"j{n}", key="merchant-7", delay="1h")
    assert queue.cancel("t", "j0", key="merchant-7")
    two_days_on(monkeypatch)
    found = swept(space.another_queue(**files.settings))
    assert (found.used, found.deleted) == (19, 1)
    job = queue.get("t", "j1")
    assert job is not None
    assert job.body == LARGE


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("made_again", [False, True])
def test_the_sweep_spares_jobs_of_topics_that_the_registry_lost(
    space: Space, files: Store, monkeypatch: pytest.MonkeyPatch, made_again: bool
) -> None:
    queue = space.another_queue(**files.settings)
    queue.configure("t", shards=4)
    for n in range(20):
        queue.enqueue("t", LARGE, id=f"j{n}", delay="1h")
    two_days_on(monkeypatch)
    store = store_of(queue)
    registry = store.session.keys.topics
    if made_again:  # with the default number of shards, by one who has not asked the shards yet
        carry_out(queue, one(store.session, registry, "HSET", registry, "t", '{"version":1,"groups":{"default":{}}}'))
    else:
        carry_out(queue, one(store.session, registry, "DEL", registry))
    found = swept(space.another_queue(**files.settings))
    assert (found.used, found.deleted, len(files.files)) == (20, 0, 20)
    store.topics.known.clear()
    queue.enqueue("t", {}, id="small")  # makes it known again
    queue.delete_topic("t", force=True)


@pytest.mark.usefixtures("later")
def test_the_sweep_deletes_what_no_job_names(space: Space, files: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = space.another_queue(**files.settings)
    for n in range(120):
        queue.enqueue("t", LARGE, id=f"j{n}", delay="1h")
    queue.enqueue("t", LARGE + "!", id="j0", delay="1h", on_conflict="replace")
    queue.enqueue("gone", LARGE, id="g", delay="1h")
    queue.delete_topic("gone", force=True)
    for n in range(1, 100):
        assert queue.cancel("t", f"j{n}")
    assert swept(queue) == Swept()  # too young, all of them
    two_days_on(monkeypatch)
    young = queue.enqueue("t", LARGE, id="young", delay="1h")
    queue.cancel("t", young.id)
    planned = swept(queue, delete=False)
    assert (planned.files, planned.used, planned.unused, planned.deleted) == (122, 21, 101, 0)
    assert planned.unused_bytes > 101 * len(LARGE)
    assert len(files.files) == 123
    assert swept(queue).deleted == 101
    assert len(files.files) == 22
    assert swept(queue) == Swept(files=21, used=21)
    for n in (0, *range(100, 120)):
        job = queue.get("t", f"j{n}")
        assert job is not None
        assert job.body == (LARGE + "!" if n == 0 else LARGE)
        queue.cancel("t", job.id)
    assert swept(queue).deleted == 21
    assert [path.name for path in (files.where / NAMESPACE).iterdir()] == ["2030-01-03T00"]
    with pytest.raises(InvalidInput, match="set STREAMDQ_OFFLOAD"):
        swept(space.queue)


@pytest.mark.usefixtures("at_once")
async def test_a_storage_that_is_away_costs_no_job(space: Space, seen: Seen, files: Store, tmp_path: Path) -> None:
    worker = space.worker(**files.settings)

    @worker.handler("t", retry="none")
    async def handler(body: str) -> None:
        seen.add(body)

    queue = space.another_queue(**files.settings)
    queue.enqueue("t", LARGE, id="j")
    files.where.rename(tmp_path / "away")
    files.where.write_text("not a folder")
    with pytest.raises(BodyStorageUnavailable):
        queue.enqueue("t", LARGE, id="k")
    assert queue.get("t", "k") is None
    async with space.serving(worker):
        await eventually(lambda: _went_back(space.job("j")), "it went back, and that was no attempt")
        files.where.unlink()
        (tmp_path / "away").rename(files.where)
        assert await seen.count(1) == [LARGE]
        await eventually(lambda: not files.files, "the file is gone")


def _went_back(job: Job) -> bool:
    return (job.snoozed >= 1, job.attempt) == (True, 0)


async def test_a_storage_that_hangs_keeps_nobody_from_redis(
    space: Space, files: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Host names are looked up in the event loop's own threads."""
    loop, hangs, goes_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    settings = space.settings.model_copy(update=files.settings)

    def hang(*_: object) -> None:
        loop.call_soon_threadsafe(hangs.set)
        goes_on.wait()

    async with AsyncQueue(space.url, NAMESPACE, settings=settings) as queue:
        await queue.enqueue("t", {}, id="small", delay="1h")
        monkeypatch.setattr(offload_module.Offload, "encode", hang)
        hanging = asyncio.ensure_future(queue.enqueue("t", LARGE))
        try:
            await hangs.wait()
            await asyncio.wait_for(asyncio.to_thread(int), HANG_S)
            assert await queue.cancel("t", "small")
            hanging.cancel()
            await asyncio.wait([hanging])
        finally:
            goes_on.set()


def test_an_archive_keeps_the_whole_body(space: Space, files: Store, tmp_path: Path) -> None:
    key = new_key("k")
    settings = files.settings | {"codec": "encrypt offload", "body_keys": key}
    queue = space.another_queue(**settings)
    queue.enqueue("t", LARGE, id="j")
    taken(queue, "t").bury("no")
    with Archive(f"sqlite:///{tmp_path}/dead.db", NAMESPACE) as archive:
        assert archive.store(space.queue).archived == 0  # it can't read the file, so the letter stays
        assert archive.store(queue).archived == 1
        for file in files.files:
            file.unlink()
        assert archive.kick(queue, "t").kicked == 1
    assert len(files.files) == 1
    claim = taken(queue, "t")
    assert claim.job.body == LARGE
    claim.finish()
    assert files.files == []


@pytest.mark.usefixtures("at_once")
@pytest.mark.thorough
async def test_it_works_in_a_bucket(space: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.s3 import Bucket, s3_server  # which takes a second to import

    with s3_server() as endpoint:
        bucket = Bucket(endpoint, "large-bodies", monkeypatch)
        settings: dict[str, Any] = {"codec": "offload", "offload": f"{bucket.url}/jobs", "offload_over_bytes": 1000}
        worker = space.worker(**settings)

        @worker.handler("t")
        async def handler(body: str) -> None:
            seen.add(body)

        queue = space.another_queue(**settings)
        monkeypatch.setattr(offload_module, "wall_now", lambda: datetime(2030, 1, 1, tzinfo=UTC))
        queue.enqueue("t", LARGE, id="cancelled", delay="1h")
        queue.cancel("t", "cancelled")
        queue.enqueue("t", LARGE, id="kept/é", delay="1h")
        assert len(bucket.keys) == 2
        two_days_on(monkeypatch)
        assert swept(queue) == Swept(files=2, used=1, unused=1, unused_bytes=len(LARGE) + 2, deleted=1)
        queue.reschedule("t", "kept/é", delay=0)
        async with space.serving(worker):
            assert await seen.count(1) == [LARGE]
            await eventually(lambda: not bucket.keys, "the file is gone")
        bucket.end()


@pytest.mark.usefixtures("later")
def test_the_sweep_spares_results_until_they_are_gone(
    space: Space, files: Store, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = space.another_queue(**files.settings)
    queue.configure("t", shards=4, result="3d")
    for n in range(4):
        queue.enqueue("t", n, id=f"j{n}", key="merchant-7" if n else None)
        with queue.take("t") as claim:
            assert claim
            claim.finish(result=LARGE)
    two_days_on(monkeypatch)
    found = swept(queue)
    assert (found.used, found.deleted) == (4, 0)
    assert queue.result("t", "j1") == LARGE
    with redis_server.client() as client:
        for key in client.scan_iter("*:result:default:j[12]"):
            client.delete(key)
    found = swept(queue)
    assert (found.used, found.deleted, len(files.files)) == (2, 2, 2)
    assert queue.result("t", "j3") == LARGE
