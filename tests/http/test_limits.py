"""What a server lets itself in for: files, connections, and the memory of answers."""

from __future__ import annotations

import os
import resource
import socket
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from streamdq.config import HttpSettings
from streamdq.errors import InvalidInput
from streamdq.http import limits
from streamdq.http.pages.render import pretty
from tests.http.live import Live
from tests.http.test_topics import bury
from tests.servers import Server
from tests.waiting import until

POLL = b"POST /v1/topics/t/take?timeout=60s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
ALIVE = b"GET /health/alive HTTP/1.1\r\nHost: localhost\r\n\r\n"


def served(connection: socket.socket) -> bool:
    """Asks, and reads the whole answer."""
    connection.sendall(ALIVE)
    answer = b""
    while not answer.endswith(b"}"):
        answer += connection.recv(4096)
    return answer.startswith(b"HTTP/1.1 200 ")


def make_topic(live: Live) -> None:
    with live.client() as client:
        assert client.patch("/v1/topics/t", json={}).status_code == 200


def connect(live: Live) -> socket.socket:
    return socket.create_connection(("127.0.0.1", live.port), timeout=20)


def open_files(live: Live) -> int:
    return sum(1 for _ in Path(f"/proc/{live.process.pid}/fd").iterdir())


@pytest.mark.parametrize(
    ("soft", "hard", "takes", "connections", "raised"),
    [
        (256, 10_000, 500, 2000, 2692),
        (1024, 1024, 332, 500, 1024),
        (4096, 4096, 500, 2000, 4096),
        (1024, resource.RLIM_INFINITY, 500, 2000, 2692),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 500, 2000, resource.RLIM_INFINITY),
    ],
)
def test_it_takes_what_fits(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, takes: int, connections: int, raised: int
) -> None:
    now = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: now[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, to: now.append(to))

    fitted = limits.fitted(HttpSettings())

    assert (fitted.max_takes, fitted.max_connections, now[-1][0]) == (takes, connections, raised)


def test_with_hardly_any_files_there_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    with pytest.raises(InvalidInput, match="ulimit"):
        limits.fitted(HttpSettings())


def test_long_polls_leave_room_for_others(redis_server: Server) -> None:
    """1024 files is what most systems give a service: all who wait and their connections to Redis don't fit in."""
    with Live(redis_server.url, files=1024) as live, ExitStack() as stack:
        make_topic(live)
        polls = [stack.enter_context(connect(live)) for _ in range(500)]
        for poll in polls:
            poll.sendall(POLL)
        with redis_server.client() as client:
            until(lambda: len([c for c in client.client_list() if c["cmd"] == "xreadgroup"]) >= 300, "they wait")

        def ask(number: int) -> list[int]:
            with live.client() as other:
                put = other.put(f"/v1/topics/other/jobs/{number}", json={"body": 1})
                return [put.status_code, other.get("/v1/topics").status_code, other.get("/health/ready").status_code]

        with ThreadPoolExecutor(60) as threads:
            assert list(threads.map(ask, range(60))) == [[201, 200, 200]] * 60
        assert open_files(live) < 1024
        told = 0
        for poll in polls:
            poll.setblocking(False)
            try:
                answer = poll.recv(4096)
            except BlockingIOError:
                continue
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: " in answer.lower()
            told += 1
        assert 0 < told <= 200  # the others wait
        assert not [line for line in live.log if line.get("level") == "error"]


@pytest.fixture
def small(redis_server: Server) -> Iterator[Live]:
    """A server for ten connections."""
    with Live(redis_server.url, env={**os.environ, "STREAMDQ_HTTP_MAX_CONNECTIONS": "10"}) as live:
        yield live


def test_the_longest_silent_connection_makes_room(small: Live) -> None:
    with ExitStack() as stack:
        kept = stack.enter_context(connect(small))
        assert served(kept)
        silent = [kept, *(stack.enter_context(connect(small)) for _ in range(9))]
        time.sleep(1.1)  # so long they may be silent in any case
        new = stack.enter_context(connect(small))
        assert served(new)
        assert kept.recv(1) == b""
        for one in silent[1:]:
            assert served(one)


def test_a_crowded_server_keeps_no_connection_alive(small: Live) -> None:
    with ExitStack() as stack:
        for number in range(1, 11):
            one = stack.enter_context(connect(small))
            one.sendall(ALIVE)
            answer = one.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert (b"connection: close" in answer.lower()) == (number > 7)


def test_where_all_are_busy_the_next_are_told_to_come_back(small: Live, redis_server: Server) -> None:
    make_topic(small)
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(connect(small)).sendall(POLL)
        with redis_server.client() as client:
            until(lambda: len([c for c in client.client_list() if c["cmd"] == "xreadgroup"]) == 10, "they wait")
        for _ in range(100):
            with connect(small) as late:
                late.sendall(ALIVE)
                answer = b"".join(iter(lambda: late.recv(4096), b""))
                assert answer.startswith(b"HTTP/1.1 503 ")
                assert b"retry-after: 2" in answer.lower()
                assert b"urn:streamdq:problem:too-busy" in answer
        crowd = [stack.enter_context(connect(small)) for _ in range(200)]
        until(lambda: open_files(small) < 150, "those far too many are cut off")
        del crowd
    until(lambda: alive(small), "there is room again")


def alive(live: Live) -> bool:
    with connect(live) as one:
        return served(one)


def peak_mib(live: Live) -> int:
    status = Path(f"/proc/{live.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) // 1024


async def test_those_who_read_slowly_cost_little(redis_server: Server) -> None:
    """A hundred large dead letters are 25 MB, and six who ask for them were 300."""
    await bury(redis_server, "t", {f"j{n}": "x" * 250_000 for n in range(100)})
    with Live(redis_server.url) as live, ExitStack() as stack:
        with live.client() as client:
            assert client.get("/v1/topics/t/dead?limit=1").status_code == 200
        before = peak_mib(live)
        slow = [stack.enter_context(connect(live)) for _ in range(6)]
        for one in slow:
            one.sendall(b"GET /v1/topics/t/dead?limit=500 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for one in slow:
            assert one.recv(1000).startswith(b"HTTP/1.1 200 ")  # and reads no more
        assert peak_mib(live) - before < 40


def test_a_body_is_shown_at_its_beginning() -> None:
    """Indented, it would be 40 MB."""
    raw = b"[" * 100 + b"1," * 120_000 + b"1" + b"]" * 100
    tracemalloc.start()
    try:
        shown = pretty(raw)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert shown.endswith("\n…")
    assert len(shown) == 100_002
    assert peak < 10_000_000
    assert pretty(b'{"a":"\xc3\xa4"}') == '{\n  "a": "ä"\n}'
