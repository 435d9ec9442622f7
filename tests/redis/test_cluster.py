"""Everything on a real cluster of three masters."""

from __future__ import annotations

import pytest

from streamdq import Bury, Job, NewJob
from streamdq.link.connection import AsyncLink
from streamdq.link.opening import open_session
from streamdq.link.session import Gather, Op, arun, pause, returned, run, together
from streamdq.operations.topics.stats import Stats, stats
from streamdq.queue import store_of
from tests.redis.harness import NAMESPACE, SETTINGS, Seen, Space, recorder
from tests.servers import Cluster
from tests.waiting import eventually


async def test_four_shards_over_three_masters(spread: Space, redis_cluster: Cluster, seen: Seen) -> None:
    spread.queue.configure("t", shards=4, groups=["a", "b"])
    workers = [spread.worker("a"), spread.worker("b")]
    for worker in workers:
        worker.handler("t")(recorder(seen))
    spread.queue.enqueue_many("t", (NewJob(n, id=f"j{n}", delay=n % 3 / 20) for n in range(300)))
    for n in range(300, 320):
        spread.queue.enqueue("t", n, id=f"j{n}", delay="20ms")
    used = 0
    for node in redis_cluster.nodes:
        with node.client() as client:
            used += any(b":jobs" in key for key in client.scan_iter())
    assert used >= 2
    await spread.burst(*workers)
    assert sorted(seen.all) == sorted([*range(320), *range(320)])
    audit = spread.audit()
    assert (audit.left, audit.balanced) == (0, True)
    assert spread.queue.stats("t").topics["t"].jobs == 0


async def test_a_whole_life(spread: Space, seen: Seen) -> None:
    spread.queue.configure("t", shards=4)
    worker = spread.worker()

    @worker.handler("t", retry="10ms 10ms")
    async def handler(body: str, job: Job) -> None:
        seen.add((body, job.attempt))
        if body == "retried" and job.attempt < 3:
            raise RuntimeError
        if body == "buried":
            raise Bury("x")

    @worker.on_dead
    async def reported(job: Job) -> None:
        seen.add((job.id, "dead"))

    for id in ("retried", "buried", "finished"):
        spread.queue.enqueue("t", id, id=id)
    for id in ("cancelled", "moved"):
        spread.queue.enqueue("t", id, id=id, delay="1h")
    assert spread.queue.cancel("t", "cancelled") is True
    assert spread.queue.reschedule("t", "moved", delay="50ms") is True
    await spread.burst(worker)
    assert sorted(seen.all, key=str) == sorted(
        [
            ("retried", 1),
            ("retried", 2),
            ("retried", 3),
            ("buried", 1),
            ("buried", "dead"),
            ("finished", 1),
            ("moved", 1),
        ],
        key=str,
    )
    assert [job.id for job in spread.queue.dead("t")] == ["buried"]
    assert spread.queue.kick("t") == 1
    assert spread.queue.cancel("t", "buried") is True
    assert spread.audit().left == 0


async def test_jobs_that_wait_for_others_in_other_shards_and_nodes(spread: Space, seen: Seen) -> None:
    for topic in ("a", "b"):
        spread.queue.configure(topic, shards=4)
    worker = spread.worker()

    async def handler(body: str) -> None:
        seen.add(body)
        if body == "fails":
            raise Bury("as told")

    for topic in ("a", "b"):
        worker.handler(topic)(handler)
    parents = [spread.queue.enqueue("a", f"first {n}", delay="50ms") for n in range(24)]
    middle = [spread.queue.enqueue("b", f"second {n}", after=parents[n : n + 6]) for n in range(12)]
    spread.queue.enqueue("a", "last", after=[*parents, *middle])
    fails = spread.queue.enqueue("b", "fails", after=middle[0])
    blocked = [spread.queue.enqueue("ab"[n % 2], "blocked", after=fails) for n in range(8)]
    spread.queue.enqueue("a", "undone", after=fails, on_failure="run")
    async with spread.serving(worker):
        await seen.count(24 + 12 + 3)
        first, second = ([seen.all.index(f"{name} {n}") for n in range(count)] for name, count in
                         (("first", 24), ("second", 12)))  # fmt: skip
        assert all(second[n] > max(first[n : n + 6]) for n in range(12))
        assert seen.all.index("last") > max(second)
        assert seen.all.index("undone") > seen.all.index("fails") > second[0]

        def are_blocked() -> bool:
            return sum(topic.blocked for topic in spread.queue.stats().topics.values()) == len(blocked)

        await eventually(are_blocked, "all of them have heard of it")
    found = [job.id for topic in "ab" for job in spread.queue.find(topic, state="blocked")]
    assert sorted(found) == sorted(job.id for job in blocked)
    assert spread.audit().balanced


def test_figures_are_asked_of_all_nodes_at_the_same_time(spread: Space) -> None:
    spread.queue.configure("t", shards=12)
    spread.queue.enqueue_many("t", (NewJob(n, delay="1h") for n in range(100)))
    at_once = []

    def watched() -> Op[Stats]:
        op = stats(store_of(spread.queue))
        step = next(op)
        while True:
            if isinstance(step, Gather):
                at_once.append(len(step.ops))
            try:
                step = op.send((yield step))
            except StopIteration as stop:
                return stop.value

    found = run(spread.queue._link, watched())
    assert at_once == [3, 3]  # the figures, the consumers
    assert found.delayed == 100


async def test_operations_at_the_same_time_have_a_result_or_an_error_each(spread: Space) -> None:
    def fails() -> Op[int]:
        yield from pause(0)
        raise ValueError("x")

    def works() -> Op[int]:
        yield from pause(0.01)
        return 1

    link, _ = open_session(spread.url, NAMESPACE, SETTINGS, None, AsyncLink)
    try:
        for found in (
            run(spread.queue._link, together([works(), fails(), works()])),
            await arun(link, together([works(), fails(), works()])),
            await arun(link, together([works()])) + await arun(link, together([fails()])) + [1],
        ):
            assert [result for result in found if not isinstance(result, Exception)] == [1, 1]
            with pytest.raises(ValueError, match="x"):
                returned(found[1])
            assert returned(found[2]) == 1
    finally:
        await link.close()
