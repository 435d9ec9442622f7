"""The gauges, read from a Redis in a known state."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streamdq import NewJob, Queue, __version__
from streamdq.config import Settings
from streamdq.dump import Dumper
from streamdq.dump.local import LocalFolder
from streamdq.exporter.exporter import RedisCollector
from streamdq.keys import NamespaceKeys
from streamdq.metrics.declared import TopicLabels
from streamdq.queue import carry_out, store_of
from streamdq.store.schedules.schedules import Schedules
from streamdq.times.clock import ManualClock
from tests.redis.harness import NAMESPACE, Space, opened, taken
from tests.servers import Server
from tests.waiting import HANG_S, eventually, until


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as Redis takes; a scrape has seconds."""
    monkeypatch.setattr("streamdq.exporter.exporter._ANSWER_S", HANG_S)
    monkeypatch.setattr("streamdq.exporter.gauges._LONGEST_S", HANG_S)
    monkeypatch.setenv("STREAMDQ_CALL_TIMEOUT_S", str(HANG_S))


@pytest.fixture
def queue(redis_server: Server) -> Iterator[Queue]:
    with Queue(redis_server.url, NAMESPACE) as opened_queue:
        yield opened_queue


def values_of(collector: RedisCollector, namespace: str = NAMESPACE) -> dict[tuple[str, ...], float]:
    """{(name without prefix, values of labels behind the namespace ...): value}"""
    found = {}
    for sample in (sample for family in collector.collect() for sample in family.samples):
        labels = dict(sample.labels)
        assert labels.pop("namespace") == namespace
        found[(sample.name.removeprefix("streamdq_"), *labels.values())] = sample.value
    return found


def test_flows_are_counted_by_state(redis_server: Server) -> None:
    clock = ManualClock()
    with Queue(redis_server.url, NAMESPACE, clock=clock) as queue:
        assert ("flows", "open") not in read(redis_server.url)
        for name in ("a", "b"):
            with queue.flow(name) as flow:
                flow.enqueue("t", 1)
        found = read(redis_server.url)
        assert (found["flows", "open"], found["flows", "ended"], found[("flows_overdue_seconds",)]) == (2, 0, 0)
        queue.cancel_flow("a")
        found = read(redis_server.url)
    assert (found["flows", "open"], found["flows", "ended"]) == (2, 0)  # the mover tells the flow of its jobs' ends


def test_a_flow_that_will_be_forgotten_is_no_coming_load(redis_server: Server, queue: Queue) -> None:
    with queue.flow("a", keep="1h") as flow:
        flow.enqueue("t", 1)
    with queue.take("t", timeout=HANG_S) as claim:
        assert claim
    until(lambda: read(redis_server.url)["flows", "ended"] == 1, "the flow has ended")
    found = read(redis_server.url)
    assert [found["jobs_due_within", "streamdq.flows", window] for window in ("1h", "1d")] == [0, 0]


def test_a_flow_that_no_mover_looks_at_is_overdue(redis_server: Server) -> None:
    with Queue(redis_server.url, NAMESPACE, clock=ManualClock(1_000_000)) as queue:
        queue.flow("a").__enter__()
    assert read(redis_server.url)[("flows_overdue_seconds",)] > 86_400


def read(url: str, namespace: str = NAMESPACE) -> dict[tuple[str, ...], float]:
    """What a process that has just begun reads."""
    collector = RedisCollector(url, namespace, TopicLabels(Settings().metrics_topics))
    try:
        return values_of(collector, namespace)
    finally:
        collector.close()


def test_an_empty_namespace_has_gauges_of_its_own(redis_server: Server) -> None:
    found = read(redis_server.url)

    assert found.pop(("clock_skew_seconds",)) == pytest.approx(0, abs=HANG_S)
    assert found.pop(("build_info", __version__)) == 1
    assert found == {("up",): 1, ("mover_lease_held",): 0, ("mover_last_move_timestamp_seconds",): 0}


def test_jobs_by_state_lag_and_the_coming_load(redis_server: Server, queue: Queue) -> None:
    queue.configure("t", groups=["a", "b"], ttr="30s")
    for delay in ("30s", "5m", "30m", "12h", "3d"):
        queue.enqueue("t", {}, delay=delay)
    queue.enqueue("t", {}, id="first")
    queue.enqueue("t", {})
    taken(queue, "t", "a").bury("enough")
    held = taken(queue, "t", "a")
    queue.pause("t")
    until(lambda: read(redis_server.url)["mover_lease_held",] == 1, "the mover of this process is active")

    found = read(redis_server.url)

    assert [found["jobs", "t", state] for state in ("delayed", "ready", "running", "dead")] == [5, 2, 1, 1]
    assert [found["lag_jobs", "t", group] for group in "ab"] == [0, 2]
    assert [found["jobs_due_within", "t", window] for window in ("1m", "10m", "1h", "1d")] == [1, 2, 3, 4]
    assert [found["ttr_seconds", "t", group] for group in "ab"] == [30, 30]
    assert found["topic_paused", "t"] == 1
    assert found["conservation_imbalance_jobs", "t"] == 0
    assert found["jobs_lost_total", "t"] == 0
    assert found["consumers", "t", "a"] == 1
    held.finish()


def collector_of(url: str, most: int = 200) -> RedisCollector:
    return RedisCollector(url, NAMESPACE, TopicLabels(most))


def test_what_was_put_in_and_how_it_ended_is_reported_for_all_processes(redis_server: Server, queue: Queue) -> None:
    """By any process: no other needs to be scraped."""
    queue.configure("t", shards=3, groups=["a", "b"])
    queue.enqueue_many("t", [NewJob({}, id=f"j{number}") for number in range(10)])
    queue.enqueue_many("t", [NewJob({}, id=f"later{number}", delay="1h") for number in range(4)])
    queue.enqueue("t", {}, id="j1", on_conflict="keep")
    queue.enqueue("t", {}, id="late", at=1_700_000_000_000, expire="1s")
    assert queue.cancel("t", "later1")
    for _ in range(10):
        with queue.take("t", "a"):
            pass
    assert not queue.take("t", "a", timeout=0), "the late one is given up"

    found = read(redis_server.url)

    assert found["jobs_enqueued_total", "t"] == 15
    assert [found["jobs_done_total", "t", group] for group in "ab"] == [10, 0]
    assert [found["jobs_cancelled_total", "t", group] for group in "ab"] == [1, 1]
    assert [found["jobs_expired_total", "t", group] for group in "ab"] == [1, 0]


def test_counters_of_redis_never_fall(redis_server: Server, queue: Queue) -> None:
    """Prometheus takes a fall for a restart, and would add all that was ever counted."""
    queue.configure("t", shards=2)
    for number in range(40):
        queue.enqueue("t", {}, id=str(number))
    counts = [NamespaceKeys(NAMESPACE).shard("t", shard).counts for shard in range(2)]
    with closing(collector_of(redis_server.url)) as collector, redis_server.client() as client:

        def enqueued() -> float:
            return values_of(collector)["jobs_enqueued_total", "t"]

        assert enqueued() == 40
        client.hincrby(counts[0], "enqueued", -3)  # as after a failover to a replica that was behind
        assert enqueued() == 40
        queue.enqueue_many("t", [NewJob({}) for _ in range(7)])
        assert enqueued() == 47
        client.hdel(counts[0], "enqueued")
        assert enqueued() == 47
        client.hincrby(counts[0], "enqueued", 5)
        assert enqueued() == 52


def test_what_is_counted_as_other_never_falls_when_a_topic_goes(redis_server: Server, queue: Queue) -> None:
    for number in range(4):
        queue.enqueue_many(f"t{number}", [NewJob({}) for _ in range(10 * number)])
    keys = NamespaceKeys(NAMESPACE)
    with closing(collector_of(redis_server.url, most=1)) as collector, redis_server.client() as client:
        assert values_of(collector)["jobs_enqueued_total", "other"] == 60
        client.hdel(keys.topics, "t2")
        client.delete(*client.keys(f"{NAMESPACE}:{{t2:0}}:*"))
        assert values_of(collector)["jobs_enqueued_total", "other"] == 60
        queue.enqueue("t3", {})
        with Queue(redis_server.url, NAMESPACE) as another:
            another.enqueue("t2", {})
        assert values_of(collector)["jobs_enqueued_total", "other"] == 62


def test_history_that_a_dump_lacks(redis_server: Server, queue: Queue, tmp_path: Path) -> None:
    def undumped() -> float:
        return read(redis_server.url)["history_undumped_rows", "t"]

    def cancel(count: int) -> None:
        for _ in range(count):
            queue.cancel("t", queue.enqueue("t", {}, delay="1h").id)

    queue.configure("t", shards=2)
    cancel(5)
    assert undumped() == 0, "no dump is registered"
    with Dumper(LocalFolder(tmp_path), redis_server.url, NAMESPACE).opened() as dumper:
        dumper.dump()
        assert undumped() == 0
        cancel(7)
        assert undumped() == 7
        dumper.dump()
    assert undumped() == 0


def test_what_is_late_and_what_is_held(redis_server: Server, queue: Queue) -> None:
    queue.enqueue("t", {}, at=int(time.time() * 1000) + 300)  # nothing moves it: no worker, no mover
    until(lambda: read(redis_server.url)["oldest_overdue_seconds", "t"] > 0.05, "it is overdue")
    with queue.take("t") as claim:
        assert claim is not None
        until(lambda: read(redis_server.url)["oldest_pending_seconds", "t", "default"] > 0.05, "it is held")
        before = read(redis_server.url)["oldest_pending_seconds", "t", "default"]
        with redis_server.client() as client:
            first = client.time()
            claim.touch()
            held_s = read(redis_server.url)["oldest_pending_seconds", "t", "default"]
            last = client.time()
        passed_s = (last[0] - first[0]) + (last[1] - first[1]) / 1e6
        assert held_s <= passed_s + 0.001, "since the touch, however long that and the read took"
        assert before > 0.05
    found = read(redis_server.url)
    assert (found["oldest_overdue_seconds", "t"], found["oldest_pending_seconds", "t", "default"]) == (0, 0)
    assert found["mover_last_move_timestamp_seconds",] == pytest.approx(time.time(), abs=HANG_S)


def test_a_job_that_vanished_is_missing_from_the_account(redis_server: Server, queue: Queue) -> None:
    queue.enqueue_many("t", [NewJob({}, id=str(i), delay="1h") for i in range(5)])
    keys = NamespaceKeys(NAMESPACE).shard("t", 0)
    with redis_server.client() as client:
        client.zremrangebyrank(keys.bucket, 0, 1)

    assert read(redis_server.url)["conservation_imbalance_jobs", "t"] == 2

    with redis_server.client() as client:  # another topic's surplus does not hide it
        client.hincrby(NamespaceKeys(NAMESPACE).shard("u", 0).counts, "done:default", 1)
        queue.configure("u", create=True)
        found = read(redis_server.url)
    assert (found["conservation_imbalance_jobs", "t"], found["conservation_imbalance_jobs", "u"]) == (2, -1)


async def test_a_lost_job_is_counted_once(redis_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.mover.reclaim._TICK_S", 0.05)
    with closing(Space(redis_server.url)) as space, redis_server.client() as client:
        space.queue.enqueue_many("t", [NewJob({}, id="lost", delay="50ms"), NewJob({}, id="kept", delay="50ms")])
        client.hdel(NamespaceKeys(NAMESPACE).shard("t", 0).jobs, "lost")
        worker = space.worker()
        worker.handler("t")(nothing)
        async with space.serving(worker):
            await eventually(lambda: read(redis_server.url)["jobs_lost_total", "t"] == 1, "the loss is found")
            found = read(redis_server.url)
    assert found["conservation_imbalance_jobs", "t"] == 1
    assert found["lag_jobs", "t", "default"] == 0
    assert found["jobs_lost_total", "t"] == 1


async def nothing(_body: dict) -> None:
    return None


def test_a_redis_that_hangs_is_reported_and_not_waited_for(
    redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMDQ_CALL_TIMEOUT_S", "0.3")
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        found = read(redis_server.url)
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)

    assert found["up",] == 0


def test_scrapes_at_once_share_one_reading(redis_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the last of them would hear of a Redis that hangs later than Prometheus waits."""
    readings, come = list[int](), threading.Semaphore(0)
    read_now = RedisCollector._read_now

    class Logged:
        """The collector's lock, which tells who has come to it."""

        def __init__(self) -> None:
            self._lock = threading.Lock()

        def __enter__(self) -> None:
            come.release()
            self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    def counted(self: RedisCollector) -> Any:
        readings.append(1)
        for _ in range(8):
            come.acquire()
        return read_now(self)

    with closing(collector_of(redis_server.url)) as collector, ThreadPoolExecutor(8) as scrapes:
        monkeypatch.setattr(collector, "_reading", Logged())
        monkeypatch.setattr(RedisCollector, "_read_now", counted)
        found = list(scrapes.map(lambda _: values_of(collector), range(8)))
    assert [one["up",] for one in found] == [1] * 8
    assert len(readings) == 1


def test_a_redis_that_is_slow_is_reported_before_all_is_read(
    redis_server: Server, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.configure("t", shards=3)
    monkeypatch.setattr("streamdq.exporter.gauges._CHUNK", 1)
    assert read(redis_server.url)["up",] == 1
    monkeypatch.setattr("streamdq.exporter.gauges._LONGEST_S", 0.0)
    assert read(redis_server.url)["up",] == 0


async def test_a_consumer_that_has_nothing_to_read_counts_as_long_as_its_process_lives(
    redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.store.topics.group_consumers._ALIVE_MS", 0)
    with opened(redis_server.url) as space:
        workers = [space.worker(), space.worker()]  # one mover, and a standby
        for worker in workers:
            worker.handler("t")(nothing)
        async with space.serving(*workers):
            await eventually(lambda: space.stats().consumers == 2, "both are there")
            assert read(redis_server.url)["consumers", "t", "default"] == 2
        assert space.stats().consumers == 0


def test_a_schedule_that_no_mover_looks_at(redis_server: Server) -> None:
    with opened(redis_server.url, ManualClock(1_800_000_000_000)) as space:
        for id in ("s", "later"):
            space.queue.schedule("t", id=id, every="1h")
            space.clock.advance("1m")  # type: ignore[union-attr]
        space.queue.schedule("asleep", id="s", every="1h")
        space.queue.pause_schedule("asleep", "s")
        with redis_server.client() as client:
            client.zadd("test:{t:0}:ticks", {"s": time.time() * 1000 - 60_000})
        found = read(redis_server.url)
    assert found["schedule_oldest_overdue_seconds", "t"] >= 60
    assert found["schedule_oldest_overdue_seconds", "asleep"] == 0


def test_schedules_by_state_and_what_became_of_their_occurrences(redis_server: Server) -> None:
    with opened(redis_server.url, ManualClock(1_800_000_000_000)) as space:
        space.queue.configure("without", create=True)
        for id in ("a", "b", "c"):
            space.queue.schedule("t", id=id, every="1h")
        space.queue.schedule("t", id="ended", every="1h", until=1_800_000_000_001)
        space.queue.pause_schedule("t", "b")
        store = store_of(space.queue)
        assert space.clock is not None
        space.clock.advance("1h")  # type: ignore[attr-defined]
        carry_out(
            space.queue, Schedules(store.session, store.scripts, store.topics).fire(store.session.keys.shard("t", 0), 1)
        )
        with redis_server.client() as client:
            client.hincrby("test:{t:0}:counts", "skipped", 3)
            client.hincrby("test:{t:0}:counts", "missed", 4)

        found = read(redis_server.url)

    assert {labels: value for labels, value in found.items() if labels[0].startswith("schedule")} == {
        ("schedules", "t", "active"): 2,
        ("schedules", "t", "paused"): 1,
        ("schedules", "t", "ended"): 1,
        ("schedule_oldest_overdue_seconds", "t"): 0,
        ("schedule_occurrences_total", "t", "enqueued"): 2,
        ("schedule_occurrences_total", "t", "skipped"): 3,
        ("schedule_occurrences_total", "t", "missed"): 4,
    }
