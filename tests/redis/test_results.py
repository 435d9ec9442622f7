"""Results: what handlers return, and waiting for it; each wait ends."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from streamdq import (
    AsyncQueue,
    BodyDamaged,
    BodyUnreadable,
    Bury,
    InvalidInput,
    JobCancelled,
    JobExpired,
    JobFailed,
    NoResult,
    Queue,
    ResultGone,
    ResultNotKept,
    ResultTimeout,
    ResultTooLarge,
    ServerUnavailable,
    Topic,
    UnknownGroup,
    UnknownTopic,
)
from streamdq.codec import Codec, Encrypt, Offload, Zstd
from tests.redis.harness import NAMESPACE, SETTINGS, Seen, Space, taken
from tests.servers import Server
from tests.waiting import HANG_S, eventually, until

KEY = "2026-11=3q2+796tvu/erb7v3q2+796tvu/erb7v3q2+796tvu8="


@dataclass
class Close:
    n: int


@dataclass
class Closed:
    total: int


def wait(space: Space, id: str, queue: Queue | None = None, **options: Any) -> Any:
    return (queue or space.queue).result("t", id, timeout=HANG_S, **options)


@pytest.fixture
def kept(space: Space) -> Space:
    """The topic `t` keeps results for a day."""
    space.queue.configure("t", result="1d", create=True)
    return space


# -- values


@pytest.mark.usefixtures("kept")
async def test_what_the_handler_returns_comes_back(space: Space) -> None:
    worker = space.worker()

    @worker.handler("t", result="1d")
    async def double(body: dict[str, int]) -> dict[str, int]:
        return {"n": 2 * body["n"]}

    async with space.serving(worker), AsyncQueue(space.url, NAMESPACE, settings=SETTINGS) as queue:
        job = await queue.enqueue("t", {"n": 21})
        assert await queue.result(job, timeout=HANG_S) == {"n": 42}
        assert await queue.result("t", job.id, timeout=0) == {"n": 42}
        assert await asyncio.to_thread(wait, space, job.id) == {"n": 42}


@pytest.mark.usefixtures("kept")
async def test_a_plain_function_and_what_it_lets_be_awaited(space: Space) -> None:
    worker = space.worker()

    async def later(n: int) -> int:
        return n + 1

    @worker.handler("t", result="1h")
    def handle(n: int) -> Any:
        return later(n) if n else None

    async with space.serving(worker), AsyncQueue(space.url, NAMESPACE, settings=SETTINGS) as queue:
        jobs = [await queue.enqueue("t", n) for n in (0, 1)]
        assert [await queue.result(job, timeout=HANG_S) for job in jobs] == [None, 2]


async def test_a_typed_topic_returns_its_type(kept: Space) -> None:
    space = kept
    orders = Topic("t", Close, result=Closed)
    worker = space.worker()

    @worker.handler(orders, result="1d")
    async def close(order: Close) -> Any:
        return Closed(order.n) if order.n else {"sum": 1}

    async with space.serving(worker), AsyncQueue(space.url, NAMESPACE, settings=SETTINGS) as queue:
        job = await orders.enqueue(queue, Close(7))
        closed = await orders.result(queue, job, timeout=HANG_S)
        assert closed == Closed(7)
        assert await asyncio.to_thread(orders.result, space.queue, job.id) == Closed(7)
        wrong = await orders.enqueue(queue, Close(0))
        with pytest.raises(ResultNotKept, match="not of the topic's type: total: Field required"):
            await orders.result(queue, wrong, timeout=HANG_S)
        with pytest.raises(InvalidInput, match="is of topic 't', not of 'other'"):
            await Topic("other", Close).result(queue, job)


async def test_a_batch_has_a_result_for_each_job(kept: Space) -> None:
    space = kept
    worker, seen = space.worker(), Seen()

    @worker.handler("t", batch=3, result="1d")
    async def handle(bodies: list[int]) -> Any:
        seen.add(bodies)
        return [n * n for n in bodies] if bodies[0] != 9 else [1]

    space.queue.enqueue_many("t", [{"body": n, "id": f"j{n}"} for n in (1, 2, 3)])
    async with space.serving(worker):
        assert [await asyncio.to_thread(wait, space, f"j{n}") for n in (1, 2, 3)] == [1, 4, 9]
        space.queue.enqueue_many("t", [{"body": 9, "id": f"k{n}"} for n in range(3)])
        for n in range(3):
            with pytest.raises(ResultNotKept, match="returned 1 results for a batch of 3 jobs"):
                await asyncio.to_thread(wait, space, f"k{n}")
    assert len(seen.all) == 2, "an attempt ran again because of what it returned"


@pytest.mark.usefixtures("kept")
async def test_what_is_no_json_is_kept_as_an_error_and_runs_once(space: Space) -> None:
    worker, seen = space.worker(), Seen()

    @worker.handler("t", result="1d")
    async def handle(n: int) -> Any:
        seen.add(n)
        return [object(), float("nan"), "x" * 100_000][n]

    async with space.serving(worker):
        for n, (kind, why) in enumerate([
            (ResultNotKept, "Unable to serialize unknown type"), (ResultNotKept, "Out of range float"),
            (ResultTooLarge, "100002 bytes of JSON, 65536 may be kept"),
        ]):  # fmt: skip
            space.queue.enqueue("t", n, id=f"j{n}")
            with pytest.raises(kind, match=why):
                await asyncio.to_thread(wait, space, f"j{n}")
    assert seen.all == [0, 1, 2]
    assert space.stats().done == 3


@pytest.mark.usefixtures("kept")
async def test_results_of_hidden_jobs_say_no_more_than_a_class(space: Space) -> None:
    worker = space.worker()
    worker.show_errors = False

    @worker.handler("t", result="1d")
    async def handle(_: int) -> Any:
        return object()

    async with space.serving(worker):
        space.queue.enqueue("t", 1, id="j")
        with pytest.raises(ResultNotKept, match="PydanticSerializationError: its message is not kept"):
            await asyncio.to_thread(wait, space, "j")


async def test_codecs_apply_and_are_bound_to_the_job(kept: Space, redis_server: Server, tmp_path: Any) -> None:
    space = kept
    codec: list[Codec] = [Zstd(), Encrypt(KEY), Offload(f"file://{tmp_path}/files", over="32KiB")]
    worker = space.worker()
    worker._codec = codec

    @worker.handler("t", result="1d")
    async def handle(n: int) -> Any:
        return {"secret": os.urandom(n).hex()}

    with Queue(space.url, NAMESPACE, codec=codec, settings=SETTINGS) as queue, redis_server.client() as client:
        queue.enqueue_many(
            "t", [{"body": 10, "id": "small"}, {"body": 100_000, "id": "large"}, {"body": 10, "id": "b"}]
        )
        async with space.serving(worker):
            small, large, _ = [await asyncio.to_thread(wait, space, id, queue) for id in ("small", "large", "b")]
        assert (len(small["secret"]), len(large["secret"])) == (20, 200_000)
        k = queue._store.session.keys.shard("t", 0)
        stored = {id: client.get(k.result_of("default", id)) for id in ("small", "large")}
        assert b"secret" not in stored["small"]
        assert len(stored["large"]) < 300
        client.set(k.result_of("default", "b"), stored["small"], ex=60)
        with pytest.raises(BodyDamaged, match="the result of job 'b'"):
            queue.result("t", "b")
        with pytest.raises(BodyUnreadable, match="the result of job 'small' in topic 't' can't be read"):
            wait(space, "small")


# -- other ends


@pytest.mark.usefixtures("kept")
async def test_a_job_that_fails_says_why(space: Space) -> None:
    worker = space.worker()

    @worker.handler("t", result="1d", retry="none")
    async def handle(n: int) -> None:
        raise Bury("no such order") if n else ValueError("wrong")

    async with space.serving(worker):
        space.queue.enqueue_many("t", [{"body": 0, "id": "a"}, {"body": 1, "id": "b"}])
        with pytest.raises(JobFailed, match="ValueError: wrong") as failed:
            await asyncio.to_thread(wait, space, "a")
        assert (failed.value.reason, failed.value.error) == ("exhausted", "ValueError: wrong")
        with pytest.raises(JobFailed, match="no such order"):
            await asyncio.to_thread(wait, space, "b")


def test_a_dead_job_is_failed_longer_than_its_result_is_kept(kept: Space, redis_server: Server) -> None:
    kept.queue.enqueue("t", 1, id="j")
    with kept.queue.take("t") as claim:
        assert claim
        claim.bury("no")
    with redis_server.client() as client:
        assert client.delete("test:{t:0}:result:default:j") == 1
    with pytest.raises(JobFailed, match="buried"):
        wait(kept, "j")
    assert kept.queue.kick("t", "j") == 1
    with pytest.raises(ResultTimeout):
        kept.queue.result("t", "j", timeout=0)


def test_cancelled_while_somebody_waits(kept: Space) -> None:
    kept.queue.enqueue("t", 1, id="j", delay="1h")
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(wait, kept, "j")
        until(lambda: watched(kept.queue) == 1, "it waits")
        assert kept.queue.cancel("t", "j")
        with pytest.raises(JobCancelled):
            waiting.result()


def test_expired(kept: Space) -> None:
    kept.queue.enqueue("t", 1, id="j", expire="1ms", delay="1ms")
    until(lambda: not kept.queue.take("t", timeout="50ms") and kept.stats().expired, "it is given up")
    with pytest.raises(JobExpired):
        wait(kept, "j")


def test_gone(kept: Space) -> None:
    with pytest.raises(ResultGone, match="neither a job 'never'"):
        wait(kept, "never")
    with pytest.raises(UnknownTopic):
        kept.queue.result("other", "j")
    with pytest.raises(UnknownGroup, match="no group 'nobody'; it has default"):
        wait(kept, "never", group="nobody")
    with pytest.raises(InvalidInput, match="pass a Job, or a topic and an id"):
        kept.queue.result("t")


@pytest.mark.parametrize("payload", [b"{bad", b"\xff"])
def test_what_another_client_has_written(kept: Space, redis_server: Server, payload: bytes) -> None:
    key = kept.queue._store.session.keys.shard("t", 0).result_of("default", "j")
    with redis_server.client() as client:
        client.set(key, b"1|done|" + payload, ex=60)
    with pytest.raises(BodyDamaged, match="the result of job 'j'"):
        wait(kept, "j")


def test_a_topic_that_keeps_none_says_how(space: Space) -> None:
    space.queue.enqueue("t", 1, id="j")
    with pytest.raises(NoResult, match=r'result="1d".*`streamdq topic configure t --result 1d`'):
        wait(space, "j")
    with space.queue.take("t") as claim:
        assert claim
        with pytest.raises(NoResult, match="keeps no results of group 'default'"):
            claim.finish(result=1)
        claim.finish()


def test_a_deleted_topic(kept: Space) -> None:
    kept.queue.enqueue("t", 1, id="j", delay="1h")
    kept.queue.delete_topic("t", force=True)
    with pytest.raises((ResultGone, UnknownTopic)):
        wait(kept, "j")


def test_the_time_out(kept: Space) -> None:
    kept.queue.enqueue("t", 1, id="j", delay="1h")
    with pytest.raises(ResultTimeout, match="has not ended within 20ms"):
        kept.queue.result("t", "j", timeout="20ms")
    assert watched(kept.queue) == 0, "whoever has given up still waits"


# -- who ends jobs


def test_take_gives_a_result(kept: Space) -> None:
    kept.queue.enqueue_many("t", [{"body": n, "id": f"j{n}"} for n in range(3)])
    for n in range(3):
        claim = kept.queue.take("t")
        assert claim
        if n == 0:
            with pytest.raises(InvalidInput, match="Unable to serialize"):
                claim.finish(result=object())
        if n < 2:
            claim.finish(result=[{"n": 1}, None][n])
        else:
            claim.finish()
    assert [wait(kept, f"j{n}") for n in range(3)] == [{"n": 1}, None, None]


def test_a_claim_that_fails_after_a_refused_finish_sends_no_result(kept: Space) -> None:
    kept.queue.enqueue("t", 1, id="j", retry="none")
    claim = kept.queue.take("t")
    assert claim
    claim._held.result = b"done|1"
    claim.fail("no")
    with pytest.raises(JobFailed, match="no"):
        wait(kept, "j")


async def test_what_a_thread_returns_is_kept_also_while_the_loop_is_blocked(kept: Space) -> None:
    """Another thread ends its attempt then."""
    worker, blocked, seen = kept.worker(), threading.Event(), Seen()

    @worker.handler("t", result="1d")
    def plain(n: int) -> int:
        seen.add(n)
        blocked.wait(HANG_S)
        return n + 1

    @worker.handler("batches", batch=2, result="1d")
    def batch(numbers: list[int]) -> list[int]:
        seen.add(numbers)
        blocked.wait(HANG_S)
        return [n * n for n in numbers]

    @worker.handler("blocking")
    async def block(_: int) -> None:
        blocked.set()
        ended = [("t", "a"), ("batches", "b"), ("batches", "c")]
        until(lambda: all(kept.state(id, topic) == "gone" for topic, id in ended), "they have ended")

    kept.queue.enqueue("t", 1, id="a")
    kept.queue.enqueue_many("batches", [{"body": 2, "id": "b"}, {"body": 3, "id": "c"}])
    async with kept.serving(worker):
        await seen.count(2)
        kept.queue.enqueue("blocking", 0)
        assert await asyncio.to_thread(wait, kept, "a") == 2
    assert [kept.queue.result("batches", id) for id in "bc"] == [4, 9]


async def test_groups_name_whose_result(space: Space) -> None:
    space.queue.configure("t", groups=["a", "b"], result={"a": "1d", "b": "1d"}, create=True)
    workers = []
    for group in "ab":
        worker = space.worker(group)
        worker.handler("t", result="1d")(lambda n, group=group: f"{group}{n}")
        workers.append(worker)
    space.queue.enqueue("t", 1, id="j")
    async with space.serving(*workers):
        assert [await asyncio.to_thread(wait, space, "j", group=group) for group in "ab"] == ["a1", "b1"]
    with pytest.raises(InvalidInput, match="several groups of topic 't' keep results; name one: a, b"):
        wait(space, "j")
    space.queue.configure("t", result={"a": 0})
    assert wait(space, "j") == "b1"
    with pytest.raises(InvalidInput, match="has several groups; name those"):
        space.queue.configure("t", result="1d")
    with pytest.raises(UnknownGroup):
        space.queue.configure("t", result={"c": "1d"})


@pytest.mark.usefixtures("kept")
async def test_a_handler_does_not_wait_for_its_own_worker(space: Space) -> None:
    worker, seen = space.worker(), Seen()

    @worker.handler("t", result="1d")
    async def handle(body: dict[str, Any], job: Any) -> int:
        if body.get("of"):
            with pytest.raises(InvalidInput, match="this handler's worker serves 't' itself"):
                await job.async_queue.result("t", body["of"])
            seen.add(await job.async_queue.result("other", "o", timeout=HANG_S))
        return 1

    space.queue.configure("other", result="1d", create=True)
    space.queue.enqueue("other", 1, id="o")
    claim = space.queue.take("other")
    assert claim
    claim.finish(result=5)
    async with space.serving(worker):
        space.queue.enqueue("t", {"of": "j"}, id="j")
        assert await asyncio.to_thread(wait, space, "j") == 1
    assert seen.all == [5]


async def test_a_handler_reads_the_results_of_what_its_job_waited_for(space: Space) -> None:
    """They have ended, so reading them takes no slot from them, also if its worker serves their topic."""
    worker = space.worker()

    @worker.handler("t", result="1d")
    async def part(body: int) -> int:
        return body

    @worker.handler("join", result="1d")
    def join(_: Any, job: Any) -> int:
        parts = job.queue.dependencies("join", job.id).jobs
        return sum(job.queue.result(one.topic, one.id) for one in parts)

    @worker.handler("join.async", result="1d")
    async def join_async(_: Any, job: Any) -> int:
        parts = (await job.async_queue.dependencies("join.async", job.id)).jobs
        return sum([await job.async_queue.result(one.topic, one.id) for one in parts])

    async with space.serving(worker):
        parts = [space.queue.enqueue("t", number) for number in (1, 2, 3)]
        for joined in [space.queue.enqueue(topic, after=parts) for topic in ("join", "join.async")]:
            assert await asyncio.to_thread(space.queue.result, joined, timeout=HANG_S) == 6


async def test_a_job_with_a_key_is_found_by_its_id(space: Space) -> None:
    space.queue.configure("t", shards=4, result="1d", create=True)
    space.queue.enqueue_many("t", [{"body": n, "id": f"j{n}", "key": f"k{n}"} for n in range(8)])
    for _ in range(8):
        claim = space.queue.take("t")
        assert claim
        claim.finish(result=claim.job.id)
        assert wait(space, claim.job.id) == claim.job.id
        assert space.queue.result(claim.job) == claim.job.id


def test_after_the_number_of_shards_has_changed(kept: Space) -> None:
    kept.queue.enqueue_many("t", [{"body": n, "id": f"j{n}"} for n in range(6)])
    claim = kept.queue.take("t")
    assert claim
    claim.finish(result="first")
    done = claim.job.id
    other = kept.another_queue()
    with ThreadPoolExecutor(5) as threads:
        waiting = [threads.submit(wait, kept, f"j{n}") for n in range(6) if f"j{n}" != done]
        other.configure("t", shards=3)
        assert wait(kept, done) == "first"
        kept.queue.enqueue("t", 9, id=done)
        with pytest.raises(ResultTimeout):
            other.result("t", done, timeout="10ms")
        for _ in range(6):
            claim = other.take("t")
            assert claim
            claim.finish(result=claim.job.body)
        assert sorted(one.result() for one in waiting) == [n for n in range(6) if f"j{n}" != done]
    assert wait(kept, done) == 9


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_results_stay_after_the_number_of_shards_has_changed(kept: Space, shards: int) -> None:
    """They are where their jobs ended, also when the topic no longer remembers its earlier numbers of shards."""
    kept.queue.configure("t", shards=4)
    ids = [f"j{n}" for n in range(12)]
    for id in ids:
        kept.queue.enqueue("t", id, id=id)
        taken(kept.queue).finish(result=id)
    other = kept.another_queue()
    other.configure("t", shards=shards)
    assert [wait(kept, id) for id in ids] == [wait(kept, id, other) for id in ids] == ids
    other.enqueue("t", "new", id="j0")
    with pytest.raises(ResultTimeout):
        kept.queue.result("t", "j0", timeout=0)
    taken(other).finish(result="new")
    assert wait(kept, "j0") == "new"
    with pytest.raises(ResultGone):
        wait(kept, "unknown")


def test_a_new_topic_of_the_same_name_has_no_result_of_the_earlier_one(kept: Space) -> None:
    kept.queue.enqueue("t", "old", id="j")
    taken(kept.queue).finish(result="old")
    kept.queue.delete_topic("t")
    kept.queue.enqueue("t", "new", id="j")
    kept.queue.configure("t", result="1d")
    with pytest.raises(ResultTimeout):
        kept.queue.result("t", "j", timeout=0)
    taken(kept.queue).finish(result="new")
    assert wait(kept, "j") == "new"


# -- how it waits


def watched(queue: Queue) -> int:
    """For how many keys the queue's waits wait."""
    thread = queue._results
    if thread is None:
        return 0
    return sum(len(tracking._watchers) for tracking in list(thread._waits._link._choosing.values()))


def test_many_waits_share_two_connections(kept: Space, redis_server: Server) -> None:
    most = 300
    kept.queue.enqueue_many("t", [{"body": n, "id": f"j{n}"} for n in range(most)])

    async def all_of_them() -> None:
        async with AsyncQueue(kept.url, NAMESPACE, settings=SETTINGS) as queue:
            with redis_server.client() as client:
                before = client.info("clients")["connected_clients"]
                waits = [asyncio.create_task(queue.result("t", f"j{n}", timeout=HANG_S)) for n in range(most)]
                (tracking,) = await eventually_one(queue)
                await eventually(lambda: len(tracking._watchers) == most, "all of them wait")
                assert client.info("clients")["connected_clients"] - before <= 2
                commands = client.info("stats")["total_commands_processed"]
                assert client.info("stats")["total_commands_processed"] - commands <= 5, "somebody polls"
                await asyncio.to_thread(finish_all, kept, most)
                assert sorted(await asyncio.gather(*waits)) == list(range(most))
                assert tracking._watchers == {}

    asyncio.run(all_of_them())


async def eventually_one(queue: AsyncQueue) -> list[Any]:
    await eventually(lambda: bool(queue._link._choosing), "it has begun to look")
    return list(queue._link._choosing.values())


def finish_all(space: Space, count: int) -> None:
    for _ in range(count):
        claim = space.queue.take("t")
        assert claim
        claim.finish(result=claim.job.body)


def test_a_lost_connection_only_costs_a_look(kept: Space, redis_server: Server) -> None:
    kept.queue.enqueue("t", 1, id="j")
    with ThreadPoolExecutor(1) as thread, redis_server.client() as client:
        waiting = thread.submit(wait, kept, "j")
        until(lambda: watched(kept.queue) == 1, "it waits")
        for one in client.client_list():
            if "t" in one["flags"]:
                client.client_kill_filter(_id=one["id"])
        until(lambda: watched(kept.queue) == 1, "it waits again")
        finish_all(kept, 1)
        assert waiting.result() == 1


def test_a_server_that_tells_of_no_changes_is_polled(kept: Space, redis_server: Server) -> None:
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "blind", "on", ">pw", "~*", "&*", "+@all", "-client")
        try:
            url = redis_server.url.replace("redis://", "redis://blind:pw@")
            with Queue(url, NAMESPACE, settings=SETTINGS) as queue, ThreadPoolExecutor(1) as thread:
                kept.queue.enqueue("t", 1, id="j")
                waiting = thread.submit(wait, kept, "j", queue)
                until(lambda: queue._results is not None and queue._results._waits._polls_until > 0, "it polls")
                finish_all(kept, 1)
                assert waiting.result() == 1
        finally:
            client.execute_command("ACL", "DELUSER", "blind")


def test_closing_the_queue_ends_waits(kept: Space) -> None:
    queue = kept.another_queue()
    kept.queue.enqueue("t", 1, id="j", delay="1h")
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(wait, kept, "j", queue)
        until(lambda: watched(queue) == 1, "it waits")
        queue.close()
        with pytest.raises(ServerUnavailable, match="the queue was closed"):
            waiting.result()
    assert "streamdq-results" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ResultTimeout):  # it opens again
        queue.result("t", "j", timeout=0)


def test_a_look_now_and_then_heals_what_no_change_tells(
    kept: Space, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.operations.results.waits._RECHECK_S", 0.05)
    kept.queue.enqueue("t", 1, id="j", delay="1h")
    with ThreadPoolExecutor(1) as thread, redis_server.client() as client:
        waiting = thread.submit(wait, kept, "j")
        until(lambda: watched(kept.queue) == 1, "it waits")
        kept.queue.delete_topic("t", force=True)
        with pytest.raises((ResultGone, UnknownTopic, NoResult)):
            waiting.result()
        assert client.ping()
    kept.queue.configure("t", create=True)


@pytest.mark.thorough
async def test_on_a_cluster(spread: Space) -> None:
    worker = spread.worker()

    @worker.handler("t", result="1d")
    async def handle(n: int) -> int:
        return n * n

    spread.queue.configure("t", shards=6, create=True)
    async with spread.serving(worker), AsyncQueue(spread.url, NAMESPACE, settings=SETTINGS) as queue:
        jobs = [await queue.enqueue("t", n) for n in range(60)]
        found = await asyncio.gather(*(queue.result(job, timeout=HANG_S) for job in jobs))
        assert found == [n * n for n in range(60)]
        assert len(queue._link._choosing) == 3
        assert await asyncio.to_thread(spread.queue.result, jobs[7]) == 49


def test_a_forked_child_waits_with_connections_of_its_own(kept: Space) -> None:
    kept.queue.enqueue("t", 1, id="j")
    with suppress(ResultTimeout):
        kept.queue.result("t", "j", timeout=0)
    finish_all(kept, 1)
    code = in_child(lambda: 0 if kept.queue.result("t", "j", timeout=HANG_S) == 1 else 1)
    assert code == 0
    assert wait(kept, "j") == 1


def in_child(call: Callable[[], int]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = call()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
