"""What is counted in the process that does it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from streamdq import AsyncQueue, Job, JobExists, NewJob, Queue, StaleClaim
from streamdq.errors import ServerRefusesWrites
from streamdq.testing import drain
from streamdq.times.clock import ManualClock
from tests.metrics import sample
from tests.redis.harness import NAMESPACE, opened
from tests.servers import Server
from tests.waiting import HANG_S, eventually


@pytest.fixture
def queue(redis_server: Server) -> Iterator[Queue]:
    with Queue(redis_server.url, NAMESPACE) as opened_queue:
        yield opened_queue


_TO_FINISH = "time_to_finish_seconds_sum"


class Counted:
    """How much counters have grown since."""

    def __init__(self, **labels: str) -> None:
        self._labels = labels
        self._before: dict[str, float] = {}
        self._before = {name: self[name] for name in ("duplicate", "moved")}

    def __getitem__(self, name: str) -> float:
        found = sample(f"streamdq_jobs_{name}_total", self._labels) or 0
        return found - self._before.get(name, 0)


def errors(kind: str) -> float:
    return sample("streamdq_redis_errors_total", {"namespace": NAMESPACE, "kind": kind}) or 0


async def test_what_is_refused(redis_server: Server, queue: Queue) -> None:
    counted = Counted(namespace=NAMESPACE, topic="counted")
    queue.enqueue("counted", {}, id="a", delay="1h")
    queue.enqueue("counted", {}, id="a", on_conflict="keep")
    with pytest.raises(JobExists):
        queue.enqueue("counted", {}, id="a")
    queue.enqueue_many("counted", [NewJob({}, id=id, delay="1h") for id in "abc"])
    queue.enqueue("counted", {}, id="b", delay="2h", on_conflict="replace")
    other = AsyncQueue(redis_server.url, NAMESPACE)
    await other.enqueue("counted", {}, delay="1h")
    await other.enqueue("counted", {}, id="c", on_conflict="keep")
    await other.close()

    assert counted["duplicate"] == 4


def test_two_namespaces_are_told_apart(redis_server: Server, queue: Queue) -> None:
    """In one process, with topics of one name."""
    here, there = (Counted(namespace=name, topic="both") for name in (NAMESPACE, "another"))
    with Queue(redis_server.url, "another") as another:
        for each, times in ((queue, 2), (another, 3)):
            each.enqueue("both", {}, id="a", delay="1h")
            for _ in range(times):
                each.enqueue("both", {}, id="a", on_conflict="keep")
    assert (here["duplicate"], there["duplicate"]) == (2, 3)


async def test_what_is_moved(redis_server: Server) -> None:
    counted = Counted(namespace=NAMESPACE, topic="expiring")
    with opened(redis_server.url) as space:
        ran: list[object] = []
        worker = space.worker()

        @worker.handler("expiring")
        async def handle(body: dict) -> None:
            ran.append(body)

        space.queue.enqueue_many("expiring", [NewJob({}, delay="20ms"), NewJob({}, delay="30ms")])
        space.queue.enqueue("expiring", {}, at=1_700_000_000_000, expire="1s")
        async with space.serving(worker):
            await eventually(lambda: len(ran) == 2 and space.stats("expiring").expired == 1, "two ran, one is given up")
    assert counted["moved"] in (2, 3)  # one that is due as it comes goes straight to ready, unless others are due


async def test_a_claim_that_was_taken_over_counts_as_stale(redis_server: Server) -> None:
    def counted(outcome: str) -> float:
        labels = {"namespace": NAMESPACE, "topic": "taken", "group": "default", "outcome": outcome}
        return sample("streamdq_job_attempts_total", labels) or 0

    before = {outcome: counted(outcome) for outcome in ("stale", "done")}
    with opened(redis_server.url) as space:
        space.queue.configure("taken", ttr="500ms")
        space.queue.enqueue("taken", {})
        claim = await asyncio.to_thread(space.queue.take, "taken", timeout=HANG_S)
        assert claim
        await eventually(lambda: space.stats("taken").ready == 1, "its TTR has passed")
        with pytest.raises(StaleClaim):
            claim.finish()

    assert {outcome: counted(outcome) - before[outcome] for outcome in before} == {"stale": 1, "done": 0}


def test_a_redis_that_refuses_writes(redis_server: Server, queue: Queue) -> None:
    queue.enqueue("t", {}, delay="1h")
    before = errors("refused_writes")
    with redis_server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(ServerRefusesWrites):
                queue.enqueue("t", {}, delay="1h")
        finally:
            client.config_set("maxmemory", 0)

    assert errors("refused_writes") == before + 1


async def test_a_retry_is_late_by_its_own_due_time_and_finished_by_the_first(redis_server: Server) -> None:
    clock = ManualClock()

    def timed(name: str) -> float:
        return sample(f"streamdq_job_{name}", {"namespace": NAMESPACE, "topic": "timed", "group": "default"}) or 0

    before = {name: timed(name) for name in ("lateness_seconds_count", "lateness_seconds_sum", _TO_FINISH)}
    with opened(redis_server.url, clock) as space:
        worker = space.worker()

        @worker.handler("timed", retry="1h")
        async def handle(_: dict, job: Job) -> None:
            if job.attempt == 1:
                raise ConnectionError

        space.queue.enqueue("timed", {}, delay="2h")
        await drain(worker, clock, "4h")

    assert timed("lateness_seconds_count") - before["lateness_seconds_count"] == 2
    assert timed("lateness_seconds_sum") - before["lateness_seconds_sum"] < 60
    assert timed(_TO_FINISH) - before[_TO_FINISH] == pytest.approx(3600, abs=60)
