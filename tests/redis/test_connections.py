"""Connections to Redis: lost again and again, many at once, idle, closed behind one's back, and out of time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
import redis

from streamdq import AsyncQueue, NewJob, Queue
from streamdq.errors import AuthenticationFailed, ServerUnavailable, TooManyCalls
from streamdq.link.node import KEPT
from streamdq.link.session import begin
from streamdq.queue import store_of
from streamdq.store.namespace import redis_time_us
from tests.redis.harness import NAMESPACE, SETTINGS, Space
from tests.redis.proxies import proxy
from tests.servers import Cluster, Server
from tests.waiting import HANG_S, eventually, until

SHORT_S = 0.05


def of_the_queue(client: redis.Redis) -> int:
    """Connections that are not this client's."""
    return len(client.client_list()) - 1


@contextmanager
def watching(server: Server) -> Iterator[redis.Redis]:
    """A client of the server; whatever tests before have left open is closed."""
    with server.client() as client:
        cut_all(client)
        yield client


def cut_all(client: redis.Redis) -> None:
    client.client_kill_filter(_type="normal", skipme=True)


async def test_a_call_that_is_cancelled_before_it_waits_for_its_reply_leaves_no_connection(
    redis_server: Server,
) -> None:
    """A task that is cancelled before its first step closes nothing."""
    async with AsyncQueue(redis_server.url, NAMESPACE, settings=SETTINGS) as queue:
        with watching(redis_server) as client:
            await queue.stats()
            waiting = begin(queue._link, redis_time_us(store_of(queue).session))
            assert waiting is not None
            task = asyncio.create_task(waiting)
            task.cancel()
            await asyncio.wait([task])
            assert of_the_queue(client) == 1
            queue._link.drop_begun()
            await eventually(lambda: of_the_queue(client) == 0, "it is closed")
            await queue.stats()


# -- kept alive


async def test_the_system_asks_whether_the_other_end_is_there(redis_server: Server) -> None:
    """So a blocked read may last for long."""
    with Queue(redis_server.url, NAMESPACE, settings=SETTINGS) as queue:
        async with AsyncQueue(redis_server.url, NAMESPACE, settings=SETTINGS) as other:
            queue.stats()
            await other.stats()
            pools = queue._link._nodes[""], other._link._nodes[""]
            taken = pools[0]._idle.take(), pools[1]._idle.take()
            for one in (taken[0]._sock, taken[1]._writer.get_extra_info("socket")):
                assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                idle_s, pause_s, times = (one.getsockopt(socket.IPPROTO_TCP, name) for name in options)
                assert idle_s + pause_s * times <= 10
            for pool, connection in zip(pools, taken, strict=True):
                pool._idle.put(connection, ())


# -- lost and made anew


def test_a_queue_outlives_any_number_of_lost_connections(space: Space, redis_server: Server) -> None:
    with redis_server.client() as client:
        for n in range(130):
            space.queue.enqueue("t", n)
            cut_all(client)
        assert space.queue.stats("t").topics["t"].jobs == 130


def _answers(queue: Queue) -> bool:
    try:
        queue.stats()
    except ServerUnavailable:
        return False
    return True


@pytest.mark.thorough
def test_a_queue_outlives_more_than_a_hundred_takers(space: Space, redis_server: Server) -> None:
    queue, takers = space.queue, 120
    queue.configure("t", create=True)
    with watching(redis_server) as client, ThreadPoolExecutor(takers) as pool:
        taken = [pool.submit(queue.take, "t", timeout=HANG_S) for _ in range(takers)]

        def all_wait() -> bool:
            return client.info("clients")["blocked_clients"] >= takers

        until(all_wait, "all of them wait in Redis")
        queue.enqueue_many("t", (NewJob(n) for n in range(takers)))
        claims = [claim for future in taken if (claim := future.result())]
        for claim in claims:
            claim.finish()
        while claim := queue.take("t", timeout=0):
            claim.finish()
    assert queue.stats("t").topics["t"].groups["default"].done == takers


async def test_a_new_connection_sends_nothing_but_its_call(redis_server: Server) -> None:
    sent: list[bytes] = []

    def note(data: bytes, to_redis: bool) -> bytes:
        if to_redis:
            sent.append(data)
        return data

    with proxy(redis_server.port, note) as between:
        with Queue(between.url, NAMESPACE, settings=SETTINGS) as queue:
            queue.get("t", "x")
        async with AsyncQueue(between.url, NAMESPACE, settings=SETTINGS) as queue_of_loop:
            await queue_of_loop.get("t", "x")
    assert sent
    assert not any(word in b"".join(sent) for word in (b"SETINFO", b"HELLO", b"PING"))


# -- many at once


@pytest.mark.thorough
async def test_a_burst_of_calls_waits_in_line(redis_server: Server) -> None:
    settings = SETTINGS.model_copy(update={"max_connections": 8, "call_timeout_s": 60.0})
    with watching(redis_server) as client:
        client.config_set("maxclients", 30)
        try:
            async with AsyncQueue(redis_server.url, NAMESPACE, settings=settings) as queue:
                await queue.configure("t", create=True)
                await asyncio.gather(*(queue.enqueue("t", n, delay="1h") for n in range(2_000)))
                await asyncio.gather(*(queue.get("t", str(n)) for n in range(2_000)))  # these have a call each
                assert (await queue.stats("t")).topics["t"].jobs == 2_000
                assert of_the_queue(client) <= 8
        finally:
            client.config_set("maxclients", 10_000)


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Nothing is answered."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_who_waits_too_long_in_line_has_sent_nothing(space: Space) -> None:
    queue = space.another_queue(max_connections=1, call_timeout_s=0.25)
    space.queue.enqueue("t", 0, id="j", delay="1h")
    until(lambda: _answers(queue), "it knows the topic")
    line = queue._link._nodes[""]._line
    place = line.enter(1)  # as a call that does not end
    assert place
    with pytest.raises(TooManyCalls, match=r"nothing was sent.*all 1 connections.*STREAMDQ_MAX_CONNECTIONS"):
        queue.cancel("t", "j")
    place = None
    assert space.queue.cancel("t", "j") is True


async def test_who_waits_too_long_in_line_has_sent_nothing_awaited(space: Space, redis_server: Server) -> None:
    settings = SETTINGS.model_copy(update={"max_connections": 1, "call_timeout_s": 0.25})
    space.queue.enqueue("t", 0, id="j", delay="1h")
    async with AsyncQueue(redis_server.url, NAMESPACE, settings=settings) as queue:
        with contextlib.suppress(ServerUnavailable):
            await queue.stats()
        line = queue._link._nodes[""]._line
        await line.acquire()
        with pytest.raises(TooManyCalls, match=r"STREAMDQ_MAX_CONNECTIONS"):
            await queue.cancel("t", "j")
        line.release()
    assert space.queue.cancel("t", "j") is True


async def test_takers_keep_nobody_waiting(redis_server: Server) -> None:
    """They hold a connection each; those have a limit of their own, at which a taker just waits."""
    settings = SETTINGS.model_copy(update={"max_connections": 1, "max_blocked_reads": 3})
    with watching(redis_server) as client:
        async with AsyncQueue(redis_server.url, NAMESPACE, settings=settings) as queue:
            await queue.configure("t", create=True)
            takers = [asyncio.create_task(queue.take("t", timeout="60s")) for _ in range(10)]
            await eventually(lambda: client.info("clients")["blocked_clients"] >= 3, "some wait in Redis")
            await queue.enqueue("t", 1, delay="1h")
            assert not any(taker.done() for taker in takers), "it waited for none"
            assert client.info("clients")["blocked_clients"] <= 3 + 2  # and the mover's
            await queue.enqueue_many("t", [NewJob(n) for n in range(10)])
            for claim in await asyncio.gather(*takers):
                assert claim
                await claim.finish()


# -- idle


@pytest.fixture
def soon_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.link.node.IDLE_S", SHORT_S)


@pytest.mark.usefixtures("soon_old")
def test_connections_of_a_burst_are_closed_by_later_calls(redis_server: Server) -> None:
    with watching(redis_server) as client, Queue(redis_server.url, NAMESPACE, settings=SETTINGS) as queue:
        queue.configure("t", create=True)
        with stopped(redis_server), ThreadPoolExecutor(30) as pool:
            calls = [pool.submit(queue.get, "t", f"j{n}") for n in range(30)]  # those of enqueue would go together
            until(lambda: queue._link._nodes[""]._line.free == 20, "thirty at once")
            os.kill(redis_server.pid, signal.SIGCONT)
            for call in calls:
                call.result()
        until(lambda: queue.get("t", "j") is None and of_the_queue(client) == KEPT, "the others are closed")
        queue.enqueue("t", 1, delay="1h")


@pytest.mark.usefixtures("soon_old")
async def test_connections_of_a_burst_are_closed_by_later_awaited_calls(redis_server: Server) -> None:
    with watching(redis_server) as client:
        async with AsyncQueue(redis_server.url, NAMESPACE, settings=SETTINGS) as queue:
            await queue.configure("t", create=True)
            await asyncio.gather(*(queue.get("t", str(n)) for n in range(100)))
            async with asyncio.timeout(HANG_S):
                while of_the_queue(client) != KEPT:
                    await queue.get("t", "j")
            await queue.enqueue("t", 1, delay="1h")


def test_a_closed_queue_leaves_no_connection(redis_server: Server) -> None:
    """Not even that of a call which is under way."""
    with watching(redis_server) as client:
        queue = Queue(redis_server.url, NAMESPACE, settings=SETTINGS)
        queue.configure("t", create=True)
        taker = threading.Thread(target=queue.take, args=("t",), kwargs={"timeout": 1})
        taker.start()
        until(lambda: client.info("clients")["blocked_clients"] >= 1, "it waits in Redis")
        queue.close()
        taker.join()
        until(lambda: of_the_queue(client) == 0, "all are closed")


async def test_a_closed_async_queue_leaves_no_connection(redis_server: Server) -> None:
    with watching(redis_server) as client:
        queue = AsyncQueue(redis_server.url, NAMESPACE, settings=SETTINGS)
        await queue.configure("t", create=True)
        calls = [asyncio.create_task(queue.enqueue("t", n, delay="1h")) for n in range(20)]
        await asyncio.sleep(0)
        await queue.close()
        await asyncio.gather(*calls)
        await eventually(lambda: of_the_queue(client) == 0, "all are closed")


@pytest.mark.parametrize("times", [1, 3])
async def test_what_redis_closed_while_idle_is_found_before_it_is_used(redis_server: Server, times: int) -> None:
    """A cancel can't be repeated once it may have run. The event loop has not noticed either: nothing is awaited
    between the kill and the call.
    """
    with redis_server.client() as client:
        async with AsyncQueue(redis_server.url, NAMESPACE, settings=SETTINGS) as queue:
            for n in range(times):
                await queue.enqueue("t", 1, id=f"j{n}", delay="1h")
                cut_all(client)
                assert await queue.cancel("t", f"j{n}") is True
            await queue.enqueue("t", 1, id="told", delay="1h")
            cut_all(client)
            await asyncio.sleep(0)
            assert await queue.cancel("t", "told") is True


def test_what_redis_closed_a_moment_ago_is_found_too(redis_server: Server) -> None:
    with redis_server.client() as client, Queue(redis_server.url, NAMESPACE, settings=SETTINGS) as queue:
        for n in range(20):
            queue.enqueue("t", 1, id=f"j{n}", delay="1h")
            cut_all(client)
            assert queue.cancel("t", f"j{n}") is True


def test_a_server_that_takes_no_more_clients_has_run_nothing(redis_server: Server) -> None:
    with redis_server.client() as client, Queue(redis_server.url, NAMESPACE, settings=SETTINGS) as queue:
        queue.enqueue("t", 1, id="j", delay="1h")
        client.config_set("maxclients", 1)
        cut_all(client)
        later = threading.Timer(0.2, client.config_set, ("maxclients", 10_000))
        later.start()
        try:
            assert queue.cancel("t", "j") is True  # sent again: it can't have run
        finally:
            later.join()


@pytest.mark.thorough
def test_a_clusters_nodes_that_take_no_more_clients_have_run_nothing(redis_cluster: Cluster) -> None:
    """They say so in other words than a single server."""
    with Queue(redis_cluster.url, NAMESPACE, settings=SETTINGS) as queue, ExitStack() as opened:
        queue.enqueue("t", 1, id="j", delay="1h")
        clients = [opened.enter_context(node.client()) for node in redis_cluster.nodes]
        for client in clients:
            client.config_set("maxclients", 1)
            cut_all(client)
        later = threading.Timer(0.2, lambda: [client.config_set("maxclients", 10_000) for client in clients])
        later.start()
        try:
            assert queue.cancel("t", "j") is True  # sent again: it can't have run
        finally:
            later.join()


def test_a_password_that_is_asked_for_since_then(redis_server: Server) -> None:
    """Redis answers a call of many words by one who is not logged in with a protocol error."""
    with redis_server.client() as client, Queue(redis_server.url, NAMESPACE, settings=SETTINGS) as queue:
        queue.enqueue("t", 1)
        client.config_set("requirepass", "secret")
        cut_all(client)
        try:
            with pytest.raises(AuthenticationFailed):
                queue.enqueue("t", 1)
        finally:
            client.config_set("requirepass", "")


def test_a_forked_child_has_connections_of_its_own(redis_server: Server) -> None:
    """Forked while a thread of the parent holds the only place in line."""
    with Queue(redis_server.url, NAMESPACE, settings=SETTINGS.model_copy(update={"max_connections": 1})) as queue:
        queue.enqueue("t", 1, id="parent", delay="1h")
        place = queue._link._nodes[""]._line.enter(1)
        assert place
        child = os.fork()
        if child == 0:
            code = 1
            try:
                queue.enqueue("t", 2, id="child", delay="1h")
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        place = None
        assert {queue.get("t", id) is not None for id in ("parent", "child")} == {True}


# -- out of time


@contextmanager
def answering(reply: Callable[[int], bytes], pause_s: float) -> Iterator[str]:
    """The URL of a server that sends its n-th piece of an answer after each pause, whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def serve(connection: socket.socket) -> None:
            with connection:
                for n in range(1_000):
                    if ended.wait(pause_s):
                        return
                    try:
                        connection.sendall(reply(n))
                    except OSError:
                        return

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)


def drops(n: int) -> bytes:
    return b"$100000\r\n" if n == 0 else b"x"


def handshakes(_: int) -> bytes:
    return b"+OK\r\n"


def silence(_: int) -> bytes:
    return b""


@pytest.mark.parametrize(("reply", "pause_s"), [(drops, 0.05), (handshakes, 0.2), (silence, 0.05)])
@pytest.mark.parametrize(
    "scheme",
    [
        "redis://:pw@{}/1",
        pytest.param("redis+cluster://:pw@{},{}", marks=pytest.mark.thorough),
        pytest.param("redis+sentinel://:pw@{},{},{}/s", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("calls", ["sync", "async"])
async def test_one_deadline_however_slowly_it_is_answered(
    reply: Callable[[int], bytes], pause_s: float, scheme: str, calls: str
) -> None:
    """Reply by reply, or byte by byte, none of which comes later than a time-out for each of them would allow. It would
    wait for hours.
    """
    settings = SETTINGS.model_copy(update={"call_timeout_s": 0.25})
    with answering(reply, pause_s) as address:
        url = scheme.replace("{}", address)
        if calls == "sync":
            with Queue(url, settings=settings) as queue, pytest.raises(ServerUnavailable):
                await asyncio.to_thread(queue.enqueue, "t", 1)
        else:
            async with AsyncQueue(url, settings=settings) as queue_of_loop:
                with pytest.raises(ServerUnavailable):
                    await queue_of_loop.enqueue("t", 1)


@pytest.mark.thorough
def test_takers_keep_their_time(space: Space, redis_server: Server) -> None:
    """A server that hangs: a blocked read ends a little after it should have."""
    space.queue.configure("t", create=True)
    queue = space.another_queue(call_timeout_s=0.5)
    with watching(redis_server) as client:
        until(lambda: _answers(queue), "it knows the topic")
        with ThreadPoolExecutor(1) as pool:
            taken = pool.submit(queue.take, "t", timeout="3s")
            until(lambda: client.info("clients")["blocked_clients"] >= 1, "it waits in Redis")
            with stopped(redis_server), pytest.raises(ServerUnavailable):
                taken.result()
