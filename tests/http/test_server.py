"""`streamdq serve` as its users have it."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from streamdq.cli import app as cli
from streamdq.http.auth import Role, new_token
from tests.conftest import BINARIES
from tests.extras import run_without
from tests.http.harness import kind
from tests.http.live import Live
from tests.servers import Pool, Server
from tests.waiting import HANG_S, until


def serving(servers: Pool, **limits: str) -> Iterator[Live]:
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    given = {f"STREAMDQ_HTTP_{name.upper()}": value for name, value in limits.items()}
    with Live(servers[BINARIES[-1]].url, env={**os.environ, **given}) as running:
        yield running


@pytest.fixture(scope="module")
def live(servers: Pool) -> Iterator[Live]:
    yield from serving(servers, max_request_bytes="4096")


@pytest.fixture(scope="module")
def impatient(servers: Pool) -> Iterator[Live]:
    """For callers that it gives up on."""
    yield from serving(servers, header_timeout_s="0.3")


def connect(live: Live) -> socket.socket:
    return socket.create_connection(("127.0.0.1", live.port), timeout=HANG_S)


def logged(live: Live, event: str) -> bool:
    return any(line["event"] == event for line in live.log)


def answer(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


def test_a_round_trip(live: Live, redis_server: Server) -> None:
    del redis_server
    with live.client() as client:
        assert client.put("/v1/topics/a%2Fb/jobs/1%2F2", json={"body": 1, "delay": "50ms"}).status_code == 201
        taken = client.post("/v1/topics/a%2Fb/take", params={"timeout": "60s"}).json()
        assert taken["job"]["id"] == "1/2"
        assert client.post("/v1/claims/finish", json={"claim": taken["claim"]}).status_code == 204
        assert client.get("/openapi.json").json()["openapi"].startswith("3.1")
        metrics = client.get("/metrics").text
        assert 'streamdq_up{namespace="streamdq"} 1.0' in metrics
        assert (
            'streamdq_job_attempts_total{group="default",namespace="streamdq",outcome="done",topic="a/b"} 1.0'
            in metrics
        )


def test_a_slow_head(impatient: Live) -> None:
    with connect(impatient) as connection:
        connection.sendall(b"GET /health/alive HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        assert answer(connection) == b""


@pytest.mark.thorough
def test_a_caller_that_reads_nothing(impatient: Live) -> None:
    """Its answers fill what the system keeps for a connection, and the rest would stay with the server."""
    with connect(impatient) as connection:
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300)

        def cut_off() -> bool:
            try:
                return connection.send(b"x") == 0
            except ConnectionError:
                return True

        until(cut_off, "the server has given it up")


def test_a_large_head(live: Live) -> None:
    with connect(live) as connection:
        connection.sendall(b"GET /health/alive HTTP/1.1\r\nHost: localhost\r\nX-Large: " + b"x" * 100_000)
        answered = answer(connection)
        assert answered.startswith(b"HTTP/1.1 400")
        assert b"application/problem+json" in answered


def test_an_unreadable_request_is_logged(redis_server: Server) -> None:
    """As often as somebody can read: see test_of_many_refusals_some_are_logged_and_the_rest_counted."""
    with Live(redis_server.url) as live:
        with connect(live) as connection:
            connection.sendall(b"no request\r\n\r\n")
            assert answer(connection).startswith(b"HTTP/1.1 400")
        assert live.stop() == 0
        logged = [line for line in live.log if "Invalid HTTP" in str(line)]
    assert [(line["event"], line["why"], line["peer"]) for line in logged] == [("refused", "malformed", "127.0.0.1")]


def head_of(size: int) -> bytes:
    """A request without a body whose head has so many bytes."""
    begins, ends = b"GET /health/alive HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Large: ", b"\r\n\r\n"
    return begins + b"x" * (size - len(begins) - len(ends)) + ends


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(("size", "status"), [(32 * 1024, b"200"), (32 * 1024 + 1, b"400"), (60_000, b"400")])
def test_the_limit_of_a_head_is_exact(live: Live, size: int, status: bytes, parts: int) -> None:
    """Whether it comes at once or not, and where it is not the first of its connection."""
    head = head_of(size)
    with connect(live) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(head), -(-len(head) // parts)):
            connection.sendall(head[start : start - (-len(head) // parts)])
        assert answer(connection).startswith(b"HTTP/1.1 " + status)
    first = b"GET /health/alive HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(live) as connection:
        connection.sendall(first + head)
        answers = answer(connection)
        assert [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]] == [b"200", status]


def test_a_bulk_upload_under_way_at_the_end_learns_how_far_it_came(redis_server: Server) -> None:
    """What the answer says is in, and no more. It gets the answer although it goes on to send."""
    line = b'{"id": "job-%d", "body": 1, "delay": "1h"}\n'
    with Live(redis_server.url) as running, running.client() as client, redis_server.client() as redis:

        def loaded() -> int:
            return int(redis.hlen("streamdq:{t:0}:jobs"))

        def is_ending() -> bool:
            try:
                connect(running).close()
            except ConnectionError:
                return True
            return False

        def body() -> Iterator[bytes]:
            yield b"".join(line % number for number in range(1300)) + b'{"id": "half'
            until(lambda: loaded() >= 1000, "two batches are in")
            running.process.send_signal(signal.SIGTERM)
            until(is_ending, "it takes no more connections")
            for _ in range(20):
                yield b" " * 65_536

        lines = {"Content-Type": "application/x-ndjson"}
        response = client.post("/v1/topics/t/bulk", content=body(), headers=lines)
        assert running.process.wait(HANG_S) == 0
        assert response.json()["lines_read"] == loaded()
    assert (response.status_code, kind(response)) == (503, "stopping")
    assert response.json()["lines_read"] in (1000, 1300)  # asked to end while the second batch was sent, or after
    assert "retry-after" in response.headers


def test_a_caller_that_sends_too_much_hears_of_it(live: Live) -> None:
    """Although it goes on to send when the answer is there."""
    with connect(live) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + (b"400\r\n" + b"x" * 1024 + b"\r\n") * 5)
        assert connection.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 413"
        for _ in range(500):
            connection.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        answered = answer(connection)
        assert answered.startswith(b"HTTP/1.1 413")
        assert answered.endswith(b"}")


HEAD = b"PUT /v1/topics/t/jobs/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


NEVER_ENDS = [
    (b"Content-Length: 5000\r\n\r\n", b"413"),
    (b"Content-Length: 99999999999999999999\r\n\r\n", b"413"),
    (b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n", b"400"),
    (b"Transfer-Encoding: chunked\r\n\r\n" + (b"400\r\n" + b"x" * 1024 + b"\r\n") * 5, b"413"),
]


def test_bodies_that_are_too_long(live: Live) -> None:
    for rest, status in NEVER_ENDS:
        answered_problem(live, rest, status)


def test_bodies_that_do_not_come(servers: Pool) -> None:
    for impatient in serving(servers, body_timeout_s="0.3"):
        for rest in (b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n5\r\n[1,2,\r\n"):
            answered_problem(impatient, rest, b"408")


def answered_problem(live: Live, rest: bytes, status: bytes) -> None:
    with connect(live) as connection:
        connection.sendall(HEAD + rest)
        answered = b""
        while not answered.endswith(b"}"):  # the server waits for the rest before it closes
            answered += connection.recv(65536)
        assert answered.startswith(b"HTTP/1.1 " + status)
        assert b"application/problem+json" in answered


def waits(server: Server) -> bool:
    """Whether somebody waits for a job."""
    with server.client() as client:
        return any(each["cmd"] == "xreadgroup" for each in client.client_list())


def test_a_caller_that_hangs_up_loses_nothing(live: Live, redis_server: Server) -> None:
    with live.client() as client:
        client.patch("/v1/topics/t", json={})
        with connect(live) as connection:
            connection.sendall(b"POST /v1/topics/t/take?timeout=60s HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda: waits(redis_server), "it waits")
        client.put("/v1/topics/t/jobs/a", json={"body": 1, "delay": "100ms"})
        taken = client.post("/v1/topics/t/take", params={"timeout": "60s"})
        assert taken.json()["job"]["attempt"] == 1


def test_it_ends_at_once_and_tells_those_who_wait(redis_server: Server) -> None:
    with Live(redis_server.url) as live, live.client() as client, ThreadPoolExecutor(1) as threads:
        client.patch("/v1/topics/t", json={})
        waiting = threads.submit(client.post, "/v1/topics/t/take", params={"timeout": "600s"})
        until(lambda: waits(redis_server), "it waits")
        live.process.send_signal(signal.SIGTERM)
        assert waiting.result(HANG_S).status_code == 204
        assert live.process.wait(HANG_S) == 0


def test_a_claim_outlives_the_process(redis_server: Server) -> None:
    with Live(redis_server.url) as live, live.client() as client:
        client.put("/v1/topics/t/jobs/a", json={"body": 1})
        claim = client.post("/v1/topics/t/take").json()["claim"]
        live.process.kill()
    with Live(redis_server.url) as live, live.client() as client:
        assert client.post("/v1/claims/finish", json={"claim": claim}).status_code == 204
        assert client.get("/v1/audit").json()["left"] == 0


def test_tokens_by_the_command_line(redis_server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tokens"
    assert cli.run(["token", "shop", "producer", "worker", "--file", str(file)]) == 0
    token = capsys.readouterr().out.strip()
    assert cli.run(["token", "eve", "viewer", "--file", str(file)]) == 0
    eve = capsys.readouterr().out.strip()
    assert file.stat().st_mode & 0o077 == 0
    line = file.read_text().splitlines()[1]
    assert cli.run(["token", "shop", "viewer", "--file", str(file)]) == 2
    assert "already" in capsys.readouterr().err
    assert cli.run(["token", "shop", "boss"]) == 2
    with Live(redis_server.url, "--tokens-file", str(file)) as live:
        with live.client(token) as client:
            assert client.put("/v1/topics/t/jobs/a", json={"body": 1}).status_code == 201
            assert kind(client.get("/v1/audit")) == "forbidden"
        with live.client() as client:
            assert kind(client.get("/v1/topics")) == "unauthenticated"
        with live.client(token) as client:
            steps = (
                ("{", "tokens not reloaded", 200), (line, "tokens reloaded", 401), ("", "no token is valid", 401),
            )  # fmt: skip
            for text, event, status in steps:
                file.write_text(text)
                live.process.send_signal(signal.SIGHUP)
                until(partial(logged, live, event), event)
                assert client.get("/v1/topics").status_code == status
        with live.client(eve) as client:
            assert client.get("/v1/topics").status_code == 401  # the last one is revoked
            file.unlink()
            live.log.clear()
            live.process.send_signal(signal.SIGHUP)
            until(partial(logged, live, "tokens not reloaded"), "no file")
            assert client.get("/v1/topics").status_code == 401
        assert token not in str(live.log)


def test_a_hangup_without_a_file_of_tokens_ends_nothing(redis_server: Server) -> None:
    """Nor one that comes while the server begins."""
    with Live(redis_server.url, env={**os.environ, "TEST_HANGUP": "yes"}) as live, live.client() as client:
        until(partial(logged, live, "nothing to reload"), "the first is not lost")
        live.log.clear()
        live.process.send_signal(signal.SIGHUP)
        until(partial(logged, live, "nothing to reload"), "it says so")
        assert client.get("/health/ready").status_code == 200
        assert live.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "without tokens"),
        (["--tokens-file", "/nowhere/tokens"], "can't read"),
        (["--tokens-file", "/dev/zero"], "File too large"),
        (["--host", "192.0.2.1", "--tokens-file", "TOKENS"], "can't listen"),
        (["--log-level", "loud"], "log-level"),
    ],
)
def test_it_refuses_to_start(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tokens").write_text(new_token("a", [Role.VIEWER])[1])
    words = [str(tmp_path / "tokens") if word == "TOKENS" else word for word in arguments]
    assert cli.run(["--url", "redis://unused", "serve", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_without_its_packages_it_names_the_extra(missing: str) -> None:
    code, error = run_without(missing, "serve")
    assert code == 2
    assert f"needs {missing}" in error


def test_the_secret_by_the_command_line(redis_server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    def secret(*words: str, ends: int = 0) -> str:
        assert cli.run(["--url", redis_server.url, "secret", *words]) == ends
        return capsys.readouterr().out.strip()

    assert "nothing to drop" in secret("drop")
    assert "the first secret was made" in secret("rotate")
    rotated = json.loads(secret("rotate", "--json"))
    assert (rotated["rotated"], rotated["since_ms"] > 1_600_000_000_000) == (True, True)
    when = f"{datetime.fromtimestamp(rotated['since_ms'] / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    assert f"replaced at {when} are still valid" in secret("rotate", ends=1)
    assert json.loads(secret("rotate", "--json", ends=1)) == {"rotated": False, "since_ms": rotated["since_ms"]}
    assert f"replaced at {when} is dropped" in secret("drop")
    assert json.loads(secret("drop", "--json")) == {"dropped": False}
    shown = secret("rotate") + secret("drop") + secret("drop", "--json")
    with redis_server.client() as client:
        assert client.get("{streamdq}:secret").decode() not in shown
