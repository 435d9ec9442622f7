"""What a server lets itself in for: files, connections, and the memory of answers."""

from __future__ import annotations

import os
import resource
import select
import socket
import tracemalloc
from collections.abc import Iterator
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
from tests.waiting import HANG_S, until

POLL = b"POST /v1/topics/t/take?timeout=600s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
ALIVE = b"GET /health/alive HTTP/1.1\r\nHost: localhost\r\n\r\n"


def asked(connection: socket.socket) -> bytes:
    """Asks, and reads the answer: whole, or until the server closes."""
    connection.sendall(ALIVE)
    answer = b""
    while not answer.endswith(b"}") and (part := connection.recv(4096)):
        answer += part
    return answer


def served(connection: socket.socket) -> bool:
    try:
        return asked(connection).startswith(b"HTTP/1.1 200 ")
    except ConnectionError:
        return False


def make_topic(live: Live) -> None:
    with live.client() as client:
        assert client.patch("/v1/topics/t", json={}).status_code == 200


def connect(live: Live) -> socket.socket:
    return socket.create_connection(("127.0.0.1", live.port), timeout=HANG_S)


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


def waiting(server: Server) -> int:
    """How many wait for a job."""
    with server.client() as client:
        return sum(each["cmd"] == "xreadgroup" for each in client.client_list())


def refused(polls: list[socket.socket]) -> list[socket.socket]:
    return select.select(polls, [], [], 0)[0]


# 1024 files is what most systems give a service: all who wait and their connections to Redis don't fit in.
@pytest.mark.parametrize(("files", "takes"), [(256, 25), pytest.param(1024, 332, marks=pytest.mark.thorough)])
def test_long_polls_leave_room_for_others(redis_server: Server, files: int, takes: int) -> None:
    more = 5
    with Live(redis_server.url, files=files) as live, ExitStack() as stack, live.client() as other:
        make_topic(live)
        polls = [stack.enter_context(connect(live)) for _ in range(takes + more)]
        for poll in polls:
            poll.sendall(POLL)
        until(
            lambda: waiting(redis_server) == takes and len(refused(polls)) == more,
            "some wait, the others are turned away",
        )

        for number in range(10):
            assert other.put(f"/v1/topics/other/jobs/{number}", json={"body": 1}).status_code == 201
            assert other.get("/v1/topics").status_code == other.get("/health/ready").status_code == 200
        assert open_files(live) < files
        assert len(refused(polls)) == more
        for poll in refused(polls):
            answer = poll.recv(4096)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: " in answer.lower()
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
        silent = [stack.enter_context(connect(small)) for _ in range(9)]
        until(lambda: alive(small), "the first has been silent for so long that it makes room")
        assert kept.recv(1) == b""
        assert all(map(served, silent))


def test_a_full_server_keeps_no_connection_alive(small: Live) -> None:
    closing = []
    with ExitStack() as stack:
        for one in reversed([stack.enter_context(connect(small)) for _ in range(10)]):
            answer = asked(one)  # the latest first: then all are there
            assert answer.startswith(b"HTTP/1.1 200 ")
            closes = b"connection: close" in answer.lower()
            assert not closes or one.recv(1) == b""
            closing.append(closes)
    assert closing == [True] * 3 + [False] * 7


def test_where_all_are_busy_the_next_have_to_come_back(small: Live, redis_server: Server) -> None:
    make_topic(small)
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(connect(small)).sendall(POLL)
        until(lambda: waiting(redis_server) == 10, "they wait")
        for _ in range(10):
            with connect(small) as late:
                answer = asked(late)
                assert answer.startswith(b"HTTP/1.1 503 ")
                assert b"retry-after: 2" in answer.lower()
                assert b"urn:streamdq:problem:too-busy" in answer
        limiter = [stack.enter_context(connect(small)) for _ in range(200)]
        until(lambda: len(refused(limiter)) > 100, "those far too many are cut off")
        assert open_files(small) < 150
    until(lambda: alive(small), "there is room again")


def alive(live: Live) -> bool:
    with connect(live) as one:
        return served(one)


def peak_mib(live: Live) -> int:
    status = Path(f"/proc/{live.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) // 1024


@pytest.mark.thorough
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
