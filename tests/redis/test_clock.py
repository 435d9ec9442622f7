"""One clock decides, Redis's: a host whose clock is wrong starts nothing early and delays nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from streamdq import Job, NewJob
from tests.redis.harness import Seen, Space, taken
from tests.servers import Server
from tests.waiting import eventually

HOUR_S = 3600.0


@pytest.fixture(params=[HOUR_S, -HOUR_S], ids=["fast", "slow"])
def wrong_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """This host's wall clock is off by an hour, for everything in this process."""
    off_s: float = request.param

    def shifted(real: Callable[[], float], by: float) -> Callable[[], float]:
        return lambda: real() + by

    monkeypatch.setattr(time, "time", shifted(time.time, off_s))
    monkeypatch.setattr(time, "time_ns", shifted(time.time_ns, int(off_s * 1e9)))
    return off_s


async def starts(space: Space, server: Server, seen: Seen, jobs: list[NewJob]) -> list[int]:
    """Runs the jobs; how many ms after its due time each started, by Redis's clock."""
    worker = space.worker()
    client = server.client()

    @worker.handler("t")
    async def handler(_body: int, job: Job) -> None:
        seconds, micros = client.time()
        seen.add(seconds * 1000 + micros // 1000 - job.due_ms)

    async with space.serving(worker):
        space.queue.enqueue_many("t", jobs)
        await seen.count(len(jobs))
        await eventually(lambda: space.queue.audit("t").left == 0, "all done")
    client.close()
    return seen.all


async def test_a_wrong_clock_starts_nothing_early(
    space: Space, redis_server: Server, seen: Seen, wrong_clock: float
) -> None:
    made = space.queue.enqueue("u", 1, delay="1h")
    with redis_server.client() as client:
        redis_ms = client.time()[0] * 1000
    assert abs(made.created_ms - redis_ms) < 60_000
    here_ms = time.time() * 1000
    assert abs(here_ms - redis_ms) > 0.9 * abs(wrong_clock) * 1000
    assert made.due_ms - made.created_ms == 3_600_000
    late_ms = await starts(space, redis_server, seen, [NewJob(n, delay=0.05 + n / 500) for n in range(100)])
    assert min(late_ms) >= 0


async def test_a_claim_lives_its_ttr_whatever_the_hosts_clock_says(
    space: Space, redis_server: Server, seen: Seen, wrong_clock: float
) -> None:
    assert wrong_clock
    space.queue.configure("t", ttr="400ms")
    space.queue.enqueue("t", 1)
    claim = taken(space.queue, "t", timeout=0)
    (until_ms,) = [group.deadline_ms for group in space.job(claim.job.id).groups.values()]
    worker = space.recording(seen)
    with redis_server.client() as client:
        async with space.serving(worker):
            await seen.count(1)
            seconds, micros = client.time()
    assert until_ms <= seconds * 1000 + micros // 1000


async def test_an_absolute_time_is_the_callers_word(space: Space, redis_server: Server, seen: Seen) -> None:
    with redis_server.client() as client:
        seconds, micros = client.time()
        now_ms = seconds * 1000 + micros // 1000
    at_ms = now_ms + 120
    assert space.queue.enqueue("u", 1, at=at_ms).due_ms == at_ms
    late_ms = await starts(space, redis_server, seen, [NewJob(0, at=at_ms), NewJob(1, at=now_ms - 5_000)])
    assert min(late_ms) >= 0
    assert max(late_ms) >= 5_000
