"""Fan-out: each group gets each job, and fails, retries and buries it alone."""

from __future__ import annotations

from streamdq import Job, JobState, Worker
from tests.redis.harness import Seen, Space, recorder


def noting(space: Space, group: str, topic: str = "t") -> tuple[Worker, Seen]:
    worker, seen = space.worker(group), Seen()
    worker.handler(topic)(recorder(seen))
    return worker, seen


async def test_each_group_gets_each_job(space: Space) -> None:
    space.queue.configure("t", groups=["email", "sms", "push"])
    served = [noting(space, group) for group in ("email", "sms", "push")]
    space.queue.enqueue_many("t", ({"body": n, "delay": "20ms"} for n in range(50)))
    await space.burst(*(worker for worker, _ in served))
    for _, seen in served:
        assert seen.all == list(range(50))
    assert space.queue.stats("t").topics["t"].jobs == 0


async def test_retries_of_one_group_are_invisible_to_the_other(space: Space) -> None:
    space.queue.configure("t", groups=["good", "bad"])
    good, seen = noting(space, "good")
    bad, tried = space.worker("bad"), Seen()

    @bad.handler("t", retry="5ms 5ms 5ms")
    async def fails(body: str, job: Job) -> None:
        tried.add((body, job.attempt))
        raise RuntimeError

    space.queue.enqueue("t", "x", id="a")
    await space.burst(good, bad)
    assert seen.all == ["x"]
    assert tried.all == [("x", 1), ("x", 2), ("x", 3), ("x", 4)]
    job = space.job("a")
    assert job.state == JobState.DEAD
    assert {group: progress.state for group, progress in job.groups.items()} == {"good": "done", "bad": "dead"}
    assert [job.id for job in space.queue.dead("t", "bad")] == ["a"]
    assert space.queue.dead("t", "good") == []


async def test_a_group_that_has_ended_a_job_and_not_done_it_says_why(space: Space) -> None:
    space.queue.configure("t", groups=["good", "bad"])
    bad = space.worker("bad")

    @bad.handler("t", retry="none")
    async def fails(body: str) -> None:
        raise RuntimeError(body)

    space.queue.enqueue("t", "no", id="a")
    await space.burst(bad)
    space.queue.purge("t", "a", group="bad")
    groups = {name: (one.state, one.reason) for name, one in space.job("a").groups.items()}
    assert groups == {"good": ("ready", None), "bad": ("ended", "purged")}
    purged = space.queue.find("t", state="ended", group="bad", where={"reason": "purged"})
    assert [job.id for job in purged] == ["a"]
    assert [job.id for job in space.queue.find("t", state="done")] == []


async def test_a_group_added_later_gets_what_waits_and_nothing_older(space: Space) -> None:
    first, seen = noting(space, "default")
    space.queue.enqueue("t", "done before")
    await space.burst(first)
    space.queue.enqueue("t", "ready", id="ready")
    space.queue.enqueue("t", "delayed", id="delayed", delay="30ms")
    late, got = noting(space, "late")
    async with space.serving(late):
        assert set(space.queue.stats("t").topics["t"].groups) == {"default", "late"}
        await got.count(2)
    assert got.all == ["ready", "delayed"]
    assert space.state("ready", group="default") == JobState.READY
    space.queue.enqueue("t", "after")
    await space.burst(first, late)
    assert seen.all == ["done before", "ready", "delayed", "after"]
    assert got.all == ["ready", "delayed", "after"]
    assert space.queue.stats("t").topics["t"].jobs == 0


async def test_settings_of_a_handler_are_its_groups_own(space: Space) -> None:
    one, other = space.worker("one"), space.worker("other")

    @one.handler("t", retry="none", ttr="7s")
    async def fails(_body: str) -> None:
        raise RuntimeError

    @other.handler("t", retry="0")
    async def fails_too(_body: str) -> None:
        raise RuntimeError

    async with space.serving(one, other):
        settings = space.queue.configure("t", create=True)
        space.queue.configure("t", groups=["one", "other"])
        space.queue.enqueue("t", "x", id="a")
        await space.becomes("a", JobState.DEAD)
        job = space.job("a")
    assert (settings.ttr_of("one"), settings.ttr_of("other")) == (7_000, 60_000)
    assert (job.groups["one"].attempt, job.groups["other"].attempt) == (1, 2)
