"""take(): one job at a time, for callers without a worker."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamdq import AsyncQueue, Bury, Claim, InvalidInput, Queue, StaleClaim
from streamdq.errors import UnknownTopic
from tests.redis.harness import NAMESPACE, SETTINGS, Space
from tests.waiting import HANG_S, until


def taken(space: Space, topic: str = "t", group: str = "default", queue: Queue | None = None) -> Claim:
    claim = (queue or space.queue).take(topic, group, timeout=HANG_S)
    assert claim
    return claim


def test_take_and_finish(space: Space) -> None:
    space.queue.enqueue("t", {"n": 1}, id="a")
    claim = taken(space)
    assert (claim.job.id, claim.job.body, claim.job.attempt, claim.job.state) == ("a", {"n": 1}, 1, "running")
    assert space.state("a") == "running"
    claim.finish()
    assert space.state("a") == "gone"
    assert space.stats().done == 1


def test_take_waits_for_a_job_that_becomes_due(space: Space) -> None:
    job = space.queue.enqueue("t", 1, delay="150ms")
    claim = taken(space)
    assert claim.job.id == job.id
    claim.finish()


def test_take_waits_for_a_job_that_comes(space: Space) -> None:
    with ThreadPoolExecutor(1) as thread:
        space.queue.configure("t", create=True)
        claim = thread.submit(taken, space)
        until(lambda: "streamdq-mover" in {one.name for one in threading.enumerate()}, "it has begun to take")
        space.another_queue().enqueue("t", 1, id="a")
        claim.result().finish()
    assert space.stats().done == 1


def test_the_block_finishes_or_fails_the_job(space: Space) -> None:
    space.queue.enqueue("t", 1, id="a", retry="1ms")
    with pytest.raises(KeyError, match="lost"), taken(space):
        raise KeyError("lost")
    assert space.job("a").groups["default"].error == "KeyError: 'lost'"
    with taken(space):
        pass
    assert space.state("a") == "gone"


def test_a_failure_with_a_delay_uses_up_no_step_but_attempt_100_is_the_last(space: Space) -> None:
    space.queue.enqueue("t", 1, id="a", retry="none")
    for _ in range(99):
        taken(space).fail("busy", delay=0)
    claim = taken(space)
    assert claim.job.attempt == 100
    with pytest.raises(InvalidInput, match="Bury says what follows"):
        claim.fail(Bury("no such order"), delay="1s")
    claim.fail(KeyError("lost"), delay=0)
    state = space.job("a").groups["default"]
    assert (state.state, state.reason, state.error) == ("dead", "exhausted", "KeyError: 'lost'")


def test_an_ended_claim_has_ended(space: Space) -> None:
    space.queue.enqueue("t", 1, id="a")
    claim = taken(space)
    claim.finish()
    for end in (claim.finish, claim.touch, lambda: claim.fail("x"), lambda: claim.bury("x")):
        with pytest.raises(StaleClaim):
            end()
    assert space.stats().done == 1


def test_a_claim_that_was_taken_over_is_refused(space: Space) -> None:
    space.queue.enqueue("t", 1, id="a")
    slow = taken(space)
    slow.touch("1ms")
    other = taken(space, queue=space.another_queue())
    assert (other.job.id, other.job.attempt) == ("a", 2)
    for end in (slow.touch, lambda: slow.fail("x"), lambda: slow.bury("x"), slow.finish):
        with pytest.raises(StaleClaim, match=r"TTR passed|has ended"):
            end()
    assert space.state("a") == "running"
    other.finish()
    assert (space.stats().done, space.stats().reclaimed) == (1, 1)


def test_closing_ends_the_mover(space: Space) -> None:
    with Queue(space.url, NAMESPACE, settings=SETTINGS) as queue:
        queue.configure("t", create=True)
        assert not queue.take("t", timeout=0)
        assert "streamdq-mover" in {thread.name for thread in threading.enumerate()}
    assert "streamdq-mover" not in {thread.name for thread in threading.enumerate()}


def test_a_with_block_gets_the_claim_or_none(space: Space) -> None:
    space.queue.configure("t", create=True)
    with space.queue.take("t", timeout=0) as claim:
        assert claim is None
    space.queue.enqueue("t", {"n": 1})
    with space.queue.take("t") as claim:
        assert claim is not None
        assert claim.job.body == {"n": 1}
    assert space.stats().done == 1
    nothing = space.queue.take("t", timeout=0)
    assert (bool(nothing), repr(nothing)) == (False, "NoClaim()")
    with pytest.raises(AttributeError, match="job: no job was ready, so there is no claim; write `if claim:`"):
        nothing.job  # type: ignore[union-attr]  # noqa: B018


async def test_an_asynchronous_block_gets_them_too(space: Space) -> None:
    async with AsyncQueue(space.url, NAMESPACE, settings=SETTINGS) as queue:
        await queue.enqueue("t")
        async with await queue.take("t") as claim:
            assert claim is not None
            assert claim.job.body == {}
        async with await queue.take("t", timeout=0) as claim:
            assert claim is None


def test_a_topic_is_not_made_by_taking_from_it(space: Space) -> None:
    with pytest.raises(UnknownTopic, match="no topic 't'"):
        space.queue.take("t", timeout=0)
    assert space.queue.stats().topics == {}
