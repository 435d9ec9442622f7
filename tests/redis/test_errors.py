"""What can't be done: a typed error that says what to do, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis

from streamdq import AsyncQueue, Job, NewJob, Queue, StreamdqError
from streamdq.errors import (
    AuthenticationFailed,
    InvalidInput,
    JobExists,
    ServerError,
    ServerRefusesWrites,
    ServerUnavailable,
    UnknownGroup,
    UnsupportedServer,
)
from tests.redis.harness import NAMESPACE, SETTINGS, Seen, Space, counting, recorder
from tests.redis.proxies import Losing, proxy, speaking
from tests.servers import Binary, Server, free_port

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001
# One of each field; the others are refused by what encodes a job: tests/unit/job and
# tests/unit/store/jobs/test_records.py.
BAD_JOBS: list[tuple[str, dict[str, Any]]] = [
    ("negative", {"delay": timedelta(seconds=-1)}),
    ("ten years", {"delay": "99999d"}),
    ("can't read '5 apples'", {"delay": "5 apples"}),
    ("2030-01-01T00:00:00 has no time zone", {"at": NAIVE}),
    ("not both", {"at": 1_900_000_000_000, "delay": 1}),
    ("id:", {"id": "a\x00b"}),
    ("ttr:", {"ttr": "-5s"}),
    ("retry:", {"retry": ["1s"] * 101}),
    ("url:", {"url": "ftp://example.org"}),
    ("expire:", {"expire": -1}),
    ("body: is blank", {"body": None}),
    ("body: can't be written", {"body": object()}),
    ("body: 262145 bytes", {"body": "x" * (256 * 1024 - 1)}),
]
BAD_TOPICS = ["", "{}", "a b", "t" * 300, None]


def test_bad_input_is_refused_and_nothing_is_written(space: Space, redis_server: Server) -> None:
    space.queue.enqueue("t", {"n": 1}, id="there", delay="1h")
    with redis_server.client() as client:
        before = counting(client)
        for message, job in BAD_JOBS:
            fields = {"body": {"n": 1}, **job}
            for topic in ("t", "new"):
                with pytest.raises(InvalidInput, match=message) as refused:
                    space.queue.enqueue(topic, **fields)
                assert isinstance(refused.value, StreamdqError)
                assert isinstance(refused.value, ValueError)
            with pytest.raises(InvalidInput, match=message):
                space.queue.enqueue_many("t", [NewJob({"n": 1}), fields])
            assert counting(client) == before, job


def test_a_bad_topic_is_refused_everywhere(space: Space, redis_server: Server) -> None:
    for topic in BAD_TOPICS:
        for call in calls_on(space.queue, topic):
            with pytest.raises(InvalidInput, match="topic"):
                call()
    with redis_server.client() as client:
        # take's mover has its lease
        assert [key for key in client.scan_iter() if b"mover" not in key] == []


def calls_on(queue: Queue, topic: Any) -> tuple[Callable[[], Any], ...]:
    return (
        lambda: queue.enqueue(topic, 1),
        lambda: queue.enqueue_many(topic, [NewJob(1)]),
        lambda: queue.get(topic, "a"),
        lambda: queue.cancel(topic, "a"),
        lambda: queue.reschedule(topic, "a", delay=1),
        lambda: queue.take(topic, timeout=0),
        lambda: queue.dead(topic),
        lambda: queue.kick(topic),
        lambda: queue.purge(topic, all=True),
        lambda: queue.pause(topic),
        lambda: queue.resume(topic),
        lambda: queue.configure(topic, create=True),
    )


def test_many_stops_at_the_first_bad_job_and_says_what_is_in(space: Space) -> None:
    jobs = [NewJob(n, id=f"j{n}") for n in range(10)]
    jobs[7].delay = "soon"
    with pytest.raises(InvalidInput, match="can't read 'soon'"):
        space.queue.enqueue_many("t", jobs, batch_size=3)
    assert [n for n in range(10) if space.state(f"j{n}") != "gone"] == [0, 1, 2, 3, 4, 5]
    for size in (0, 501, -1):
        with pytest.raises(InvalidInput, match="batch_size"):
            space.queue.enqueue_many("t", [], batch_size=size)
    with pytest.raises(InvalidInput, match=r"job: there is no field 'dealy'; did you mean 'delay'\?"):
        space.queue.enqueue_many("t", [{"body": 1, "dealy": 5}])
    with pytest.raises(InvalidInput, match="job: there is no field 'colour'; fields are body, delay, "):
        space.queue.enqueue_many("t", [{"body": 1, "colour": 5}])
    with pytest.raises(InvalidInput, match="job: there is no field 7; fields are body, delay, "):
        space.queue.enqueue_many("t", [{7: 1}])  # type: ignore[dict-item]
    with pytest.raises(InvalidInput, match="job: the field 'body' is missing"):
        space.queue.enqueue_many("t", [{"id": "x"}])
    with pytest.raises(InvalidInput, match=r"job: 'hello' is neither a NewJob nor a dict such as \{'body': 7\}"):
        space.queue.enqueue_many("t", ["hello"])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match="job: 'body' is neither"):
        space.queue.enqueue_many("t", {"body": 1})  # type: ignore[dict-item]


def test_an_unknown_group(space: Space) -> None:
    space.queue.enqueue("t", 1)
    for call in (
        space.queue.dead,
        lambda t, g: space.queue.purge(t, group=g, all=True),
        lambda t, g: space.queue.kick(t, group=g),
    ):
        with pytest.raises(UnknownGroup, match=r"no group 'nobody', only default.*configure"):
            call("t", "nobody")
        with pytest.raises(InvalidInput, match="group"):
            call("t", "no body")
    with pytest.raises(UnknownGroup):
        space.queue.take("t", "nobody", timeout=0)


@pytest.mark.parametrize(
    "url",
    [
        "localhost", "http://localhost", "redis://localhost:port", "redis+cluster://localhost", "redis+cluster://",
        "redis+sentinel://localhost:1", "redis+sentinel://localhost/name", "",
    ],
)  # fmt: skip
def test_a_bad_url(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMDQ_URL", "nonsense")
    with pytest.raises(InvalidInput, match="url"):
        Queue(url or None)


def test_a_url_that_is_no_text() -> None:
    with Queue("memory://x") as queue, pytest.raises(InvalidInput, match="url: Queue is not text"):
        Queue(queue)  # type: ignore[arg-type]


def test_a_bad_url_keeps_its_password_to_itself() -> None:
    with pytest.raises(InvalidInput) as refused:
        Queue("rediss+typo://user:hunter2@example.org:1")
    assert "hunter2" not in str(refused.value)


# -- servers


def test_an_unreachable_server() -> None:
    url = f"redis://:hunter2@127.0.0.1:{free_port()}/0"
    with Queue(url, settings=Space.quick()) as queue:
        with pytest.raises(ServerUnavailable, match=r"127\.0\.0\.1.*check that it is running") as refused:
            queue.enqueue("t", 1)
        with pytest.raises(ServerUnavailable):
            queue.stats()
    assert isinstance(refused.value, ConnectionError)
    assert "hunter2" not in str(refused.value)
    assert ".;" not in str(refused.value)


async def test_an_unreachable_cluster() -> None:
    url = f"redis+cluster://:hunter2@127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    with (
        Queue(url, settings=Space.quick()) as queue,
        pytest.raises(ServerUnavailable, match=r"127\.0\.0\.1.*check that it is running") as refused,
    ):
        queue.enqueue("t", 1)
    assert "hunter2" not in str(refused.value)
    async with AsyncQueue(url, settings=Space.quick()) as queue_of_loop:
        with pytest.raises(ServerUnavailable, match=r"127\.0\.0\.1.*check that it is running"):
            await queue_of_loop.stats()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
    ],
    ids=["http", "ssh", "tls"],
)
def test_a_server_that_is_no_redis(answer: bytes) -> None:
    with (
        speaking(answer) as url,
        Queue(url, settings=SETTINGS) as queue,
        pytest.raises(UnsupportedServer, match=r"does not speak Redis's protocol.*check host"),
    ):
        queue.enqueue("t", 1)


def test_a_server_that_hangs_up() -> None:
    with speaking(b"") as url, Queue(url, settings=Space.quick()) as queue, pytest.raises(ServerUnavailable):
        queue.enqueue("t", 1)


@pytest.fixture
def locked(binary: Binary) -> Iterator[Server]:
    """A server with a password, and a user that may do nothing."""
    with Server(binary, options={"requirepass": "right"}) as server:
        with server.client() as client:
            client.acl_setuser("guest", enabled=True, passwords=["+guest"], commands=["+ping"], keys=["*"])
        yield server


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
@pytest.mark.parametrize("user", ["", ":wrong@", "nobody:right@", "guest:wrong@"])
def test_a_wrong_password(locked: Server, scheme: str, user: str) -> None:
    with (
        Queue(f"{scheme}://{user}127.0.0.1:{locked.port}", settings=SETTINGS) as queue,
        pytest.raises(AuthenticationFailed, match=r"user|password|login"),
    ):
        queue.enqueue("t", 1)
    with locked.client() as client:
        assert client.dbsize() == 0


def test_a_user_without_permission(locked: Server) -> None:
    with (
        Queue(f"redis://guest:guest@127.0.0.1:{locked.port}/0", settings=SETTINGS) as queue,
        pytest.raises(AuthenticationFailed, match="does not allow"),
    ):
        queue.enqueue("t", 1)


async def test_a_full_memory_refuses_producers_while_workers_drain(binary: Binary, seen: Seen) -> None:
    with Server(binary) as server, server.client() as client:
        space = Space(server.url)
        worker = space.worker()

        @worker.handler("t")
        async def handler(n: int, job: Job) -> None:
            if n % 10 == 0 and job.attempt == 1:
                raise RuntimeError
            seen.add(n)

        space.queue.enqueue_many("t", (NewJob(n, delay="300ms" if n % 2 else 0, retry="50ms") for n in range(2000)))
        client.config_set("maxmemory", "1mb")
        with pytest.raises(ServerRefusesWrites, match=r"refuses writes.*streamdq doctor"):
            space.queue.enqueue("t", 1)
        with pytest.raises(ServerRefusesWrites):
            space.queue.enqueue_many("t", [NewJob(1)])
        async with space.serving(worker):
            await seen.count(2000)
        assert sorted(seen.all) == list(range(2000))
        client.config_set("maxmemory", "0")
        audit = space.audit()
        assert (audit.left, audit.balanced) == (0, True)
        space.close()


@pytest.mark.parametrize("shards", [1, 2])
async def test_a_full_memory_drains_by_its_rate_and_once_it_is_resumed(binary: Binary, seen: Seen, shards: int) -> None:
    with Server(binary) as server, server.client() as client:
        space = Space(server.url)
        worker = space.worker()
        for topic in ("rated", "paused"):
            worker.handler(topic)(recorder(seen))
        space.queue.configure("rated", rate=1000, shards=shards)
        space.queue.configure("paused", shards=shards)
        space.queue.pause("paused")
        for topic in ("rated", "paused"):
            space.queue.enqueue_many(topic, (NewJob(f"{topic} {n}") for n in range(200)))
        client.config_set("maxmemory", "1mb")
        with pytest.raises(ServerRefusesWrites):
            space.queue.enqueue("rated", 1)
        async with space.serving(worker):
            await seen.count(200)
            space.queue.resume("paused")
            await seen.count(400)
        with pytest.raises(ServerRefusesWrites):
            space.queue.configure("new", create=True)
        client.config_set("maxmemory", "0")
        audit = space.audit()
        assert (audit.left, audit.balanced) == (0, True)
        space.close()


# -- the network


def test_a_dropped_reply_makes_no_second_job(space: Space, redis_server: Server) -> None:
    """The connection ends after Redis has run the call: it is sent again, and finds its own job."""
    losing = Losing(b"payload")
    with proxy(redis_server.port, losing) as between:
        queue = space.another_queue(between.url)
        job = queue.enqueue("t", "payload", id="a", delay="1h")
        assert (losing.dropped, job.id) == (1, "a")
        losing.left = 1
        queue.enqueue("t", "payload", delay="1h")
        losing.left = 1
        with pytest.raises(JobExists):  # someone else's job is no success
            queue.enqueue("t", "payload", id="a")
        losing.left = 2
        result = queue.enqueue_many("t", (NewJob("payload", id=f"j{n}", delay="1h") for n in range(20)), batch_size=5)
    assert (result.created, result.existing) == (20, [])
    assert losing.dropped == 5
    stats = space.queue.stats("t").topics["t"]
    assert (stats.enqueued, stats.jobs) == (22, 22)


def test_a_cancel_whose_reply_was_lost_is_not_repeated(space: Space, redis_server: Server) -> None:
    space.queue.enqueue("t", 1, id="target", delay="1h")
    with proxy(redis_server.port, Losing(b"target")) as between:
        queue = space.another_queue(between.url)
        assert queue.cancel("t", "another") is False  # Redis has the script now
        with pytest.raises(ServerUnavailable):
            queue.cancel("t", "target")
        assert queue.cancel("t", "target") is False
    assert space.stats().cancelled == 1


def test_any_other_refusal_is_a_server_error(redis_server: Server) -> None:
    with redis_server.client() as client, Queue(redis_server.url, NAMESPACE) as queue:
        client.set("{test}:topics", "not a hash")
        with pytest.raises(ServerError, match="WRONGTYPE"):
            queue.enqueue("t", 1)
    assert issubclass(ServerError, StreamdqError)
    assert not issubclass(ServerError, redis.RedisError)
