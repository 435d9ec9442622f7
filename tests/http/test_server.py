"""`streamdq serve` as its users have it, and the app where Redis or its surroundings are not as they should be."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from streamdq import AsyncQueue
from streamdq.cli import app as cli
from streamdq.config import Settings
from streamdq.http import create_app
from streamdq.http.auth import Role, new_token
from tests.conftest import BINARIES
from tests.extras import run_without
from tests.http.conftest import Open
from tests.http.harness import NAMESPACE, Api, kind
from tests.http.live import Live
from tests.servers import Pool, Server, until


@pytest.fixture(scope="module")
def live(servers: Pool) -> Iterator[Live]:
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    limits = {"STREAMDQ_HTTP_HEADER_TIMEOUT_S": "0.3", "STREAMDQ_HTTP_BODY_TIMEOUT_S": "0.3",
              "STREAMDQ_HTTP_MAX_REQUEST_BYTES": "4096"}  # fmt: skip
    with Live(servers[BINARIES[-1]].url, env={**os.environ, **limits}) as running:
        yield running


def connect(live: Live) -> socket.socket:
    return socket.create_connection(("127.0.0.1", live.port), timeout=10)


def told(live: Live, event: str) -> bool:
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
        taken = client.post("/v1/topics/a%2Fb/take", params={"timeout": "10s"}).json()
        assert taken["job"]["id"] == "1/2"
        assert client.post("/v1/claims/finish", json={"claim": taken["claim"]}).status_code == 204
        assert client.get("/openapi.json").json()["openapi"].startswith("3.1")
        metrics = client.get("/metrics").text
        assert 'streamdq_up{namespace="streamdq"} 1.0' in metrics
        assert (
            'streamdq_job_attempts_total{group="default",namespace="streamdq",outcome="done",topic="a/b"} 1.0'
            in metrics
        )


def test_a_slow_head(live: Live) -> None:
    with connect(live) as connection:
        connection.sendall(b"GET /health/alive HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        started = time.monotonic()
        assert answer(connection) == b""
        assert time.monotonic() - started < 5


def test_a_slow_head_after_a_request(live: Live) -> None:
    with connect(live) as connection:
        connection.sendall(b"GET /health/alive HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while not received.endswith(b'{"status":"ok"}'):
            received += connection.recv(65536)
        connection.sendall(b"GET /health")
        assert answer(connection) == b""


def test_a_caller_that_reads_nothing(live: Live) -> None:
    """Its answers fill what the system keeps for a connection, and the rest would stay with the server."""
    with connect(live) as connection:
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300)

        def cut_off() -> bool:
            try:
                return connection.send(b"x") == 0
            except ConnectionError:
                return True

        until(cut_off, "the server has given it up")


def test_a_wait_is_not_a_slow_head(live: Live, redis_server: Server) -> None:
    del redis_server
    with live.client() as client:
        started = time.monotonic()
        assert client.post("/v1/topics/t/take", params={"timeout": "600ms"}).status_code == 204
        assert time.monotonic() - started > 0.5


def test_a_large_head(live: Live) -> None:
    with connect(live) as connection:
        connection.sendall(b"GET /health/alive HTTP/1.1\r\nHost: localhost\r\nX-Large: " + b"x" * 100_000)
        answered = answer(connection)
        assert answered.startswith(b"HTTP/1.1 400")
        assert b"application/problem+json" in answered


def test_who_sends_what_is_no_request_is_told_of_as_often_as_somebody_can_read(redis_server: Server) -> None:
    with Live(redis_server.url) as live:
        for _ in range(80):
            with connect(live) as connection:
                connection.sendall(b"no request\r\n\r\n")
                assert answer(connection).startswith(b"HTTP/1.1 400")
        assert live.stop() == 0
        told = [line for line in live.log if "event" in line and "Invalid HTTP" in str(line)]
    assert 60 <= len(told) < 80
    assert {(line["event"], line["why"], line["peer"]) for line in told} == {("refused", "malformed", "127.0.0.1")}


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


def test_a_bulk_upload_under_way_at_the_end_is_told_how_far_it_came(redis_server: Server) -> None:
    """What it was told of is in, and no more; it hears of it although it goes on to send."""
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

        started = time.monotonic()
        lines = {"Content-Type": "application/x-ndjson"}
        response = client.post("/v1/topics/t/bulk", content=body(), headers=lines)
        assert running.process.wait(10) == 0
        assert time.monotonic() - started < 8
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


@pytest.mark.parametrize(
    ("rest", "status"),
    [
        (b"Content-Length: 100\r\n\r\n{", b"408"),
        (b"Content-Length: 5000\r\n\r\n", b"413"),
        (b"Content-Length: 99999999999999999999\r\n\r\n", b"413"),
        (b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n", b"400"),
        (b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b"x" * 1024 + b"\r\n", b"408"),
        (b"Transfer-Encoding: chunked\r\n\r\n" + (b"400\r\n" + b"x" * 1024 + b"\r\n") * 5, b"413"),
    ],
)
def test_bodies_that_never_end(live: Live, rest: bytes, status: bytes) -> None:
    with connect(live) as connection:
        connection.sendall(HEAD + rest)
        answered = answer(connection)
        assert answered.startswith(b"HTTP/1.1 " + status)
        assert b"application/problem+json" in answered


def test_a_caller_that_hangs_up_loses_nothing(live: Live, redis_server: Server) -> None:
    del redis_server
    with live.client() as client:
        with connect(live) as connection:
            connection.sendall(b"POST /v1/topics/t/take?timeout=30s HTTP/1.1\r\nHost: localhost\r\n\r\n")
            until(lambda: "t" in client.get("/v1/stats").json()["topics"], "it waits")
        client.put("/v1/topics/t/jobs/a", json={"body": 1, "delay": "100ms"})
        taken = client.post("/v1/topics/t/take", params={"timeout": "10s"})
        assert taken.json()["job"]["attempt"] == 1


def test_it_ends_at_once_and_tells_those_who_wait(redis_server: Server) -> None:
    with Live(redis_server.url) as live, live.client() as client, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.post, "/v1/topics/t/take", params={"timeout": "60s"})
        until(lambda: b"t" in redis_server.client().hkeys("{streamdq}:topics"), "it waits")
        started = time.monotonic()
        live.process.send_signal(signal.SIGTERM)
        assert waiting.result(10).status_code == 204
        assert live.process.wait(10) == 0
        assert time.monotonic() - started < 4


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
                until(partial(told, live, event), event)
                assert client.get("/v1/topics").status_code == status
        with live.client(eve) as client:
            assert client.get("/v1/topics").status_code == 401  # the last one is revoked
            file.unlink()
            live.log.clear()
            live.process.send_signal(signal.SIGHUP)
            until(partial(told, live, "tokens not reloaded"), "no file")
            assert client.get("/v1/topics").status_code == 401
        assert token not in str(live.log)


def test_a_hangup_without_a_file_of_tokens_ends_nothing(redis_server: Server) -> None:
    with Live(redis_server.url) as live, live.client() as client:
        live.process.send_signal(signal.SIGHUP)
        until(partial(told, live, "nothing to reload"), "it says so")
        assert client.get("/health/ready").status_code == 200
        assert live.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--host", "0.0.0.0"], "without tokens"),
        (["--tokens-file", "/nowhere/tokens"], "can't read"),
        (["--host", "192.0.2.1", "--tokens-file", "TOKENS"], "can't listen"),
        (["--log-level", "loud"], "log-level"),
    ],
)
def test_it_refuses_to_start(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tokens").write_text(new_token("a", [Role.VIEWER])[1])
    words = [str(tmp_path / "tokens") if word == "TOKENS" else word for word in arguments]
    assert cli.run(["--url", "memory://unused", "serve", *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["--url", "nonsense"], "'nonsense' does not begin with one of"), (["--namespace", "a b"], "namespace: 'a b'")],
)
def test_a_queue_that_can_not_be_opened(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*arguments, "serve", "--port", "0"]) == 2
    error = capsys.readouterr().err
    assert told in error.splitlines()[-1]
    assert "Traceback" not in error


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_without_its_packages_it_names_the_extra(missing: str) -> None:
    code, error = run_without(missing, "serve")
    assert code == 2
    assert f"needs {missing}" in error


# -- in another app


@pytest.mark.parametrize("outer", [Starlette, FastAPI])
@pytest.mark.parametrize("shared", [False, True])
async def test_mounted_in_another_app(redis_server: Server, outer: type[Starlette], shared: bool) -> None:
    queue = AsyncQueue(redis_server.url, NAMESPACE)
    app = create_app(queue=queue) if shared else create_app(redis_server.url, NAMESPACE)
    host = outer(routes=[Mount("/queue", app=app)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=host), base_url="http://localhost") as client:
        api = Api(client, app)
        made = await client.put("/queue" + api.job("a/b", "50%"), json={"body": 1})
        assert (made.status_code, made.json()["topic"], made.json()["id"]) == (201, "a/b", "50%")
        posted = await client.post("/queue/v1/topics/t/jobs", json={"body": 1})
        assert posted.headers["location"].startswith("/queue/v1/topics/t/jobs/")
        assert (await client.get(posted.headers["location"])).status_code == 200
        claim = (await client.post("/queue/v1/topics/t/take", params={"timeout": "5s"})).json()["claim"]
        assert (await client.post("/queue/v1/claims/finish", json={"claim": claim})).status_code == 204
        assert kind(await client.get("/queue/v1/nothing")) == "not-found"
        assert (await client.get("/queue/health/alive")).status_code == 200
    async with app.router.lifespan_context(app):
        assert (app.state.streamdq._opened is None) is shared
    assert app.state.streamdq._opened is None
    assert await queue.get("a/b", "50%") is not None  # a shared queue stays open
    await queue.close()


# -- when Redis does not answer, or refuses


async def test_without_redis(open_api: Open, redis_server: Server) -> None:
    api = await open_api(settings=Settings(call_timeout_s=0.2, url="memory://unused"))
    await api.put("a")
    claim = (await api.take()).json()["claim"]
    redis_server.stop()
    for response in (await api.put("b"), await api.take(), await api.end("finish", claim), await api.get("a")):
        assert (response.status_code, kind(response)) == (503, "redis-unavailable")
        assert int(response.headers["retry-after"]) >= 1
        assert "127.0.0.1" not in response.text
    lines = {"content": b'{"body": 1}\n' * 3, "headers": {"Content-Type": "application/x-ndjson"}}
    bulk = await api.client.post("/v1/topics/t/bulk", **lines)
    assert (bulk.status_code, kind(bulk), bulk.json()["lines_read"]) == (503, "redis-unavailable", 0)
    assert kind(await api.client.get("/health/ready")) == "redis-unavailable"
    assert (await api.client.get("/health/alive")).status_code == 200
    assert 'streamdq_up{namespace="streamdq"} 0.0' in (await api.client.get("/metrics")).text
    redis_server.start()
    await ready(api, 200)
    assert (await api.put("b")).status_code == 201


async def ready(api: Api, answers: int) -> httpx.Response:
    """The first answer of this kind: what was found before holds for a second."""
    deadline = time.monotonic() + 5
    while (answer := await api.client.get("/health/ready")).status_code != answers:
        assert time.monotonic() < deadline, answer.text
    return answer


async def test_however_many_ask_redis_is_written_to_once_a_second(api: Api, redis_server: Server) -> None:
    probe = api.app.state.streamdq.probe
    write, written = probe.write, count()

    async def counted() -> None:
        next(written)
        await write()

    probe.write = counted
    with redis_server.client() as client:
        clients = len(client.client_list())
        started = time.monotonic()
        answers = await asyncio.gather(*(api.client.get("/health/ready") for _ in range(300)))
        for _ in range(20):
            await api.client.get("/health/ready")
        took_s = time.monotonic() - started
        assert {answer.status_code for answer in answers} == {200}
        assert 1 <= next(written) <= 1 + took_s
        assert len(client.client_list()) < clients + 10  # not one for each


async def began(api: Api) -> None:
    """Returns when a probe is under way."""
    for _ in range(1000):
        if api.app.state.streamdq.probe._under_way is not None:
            return
        await asyncio.sleep(0)
    raise AssertionError("nobody asks")


async def test_a_probe_outlives_the_one_who_asked_first(api: Api, redis_server: Server) -> None:
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        first = asyncio.create_task(api.client.get("/health/ready"))
        second = asyncio.create_task(api.client.get("/health/ready"))
        await began(api)
        first.cancel()
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)
    assert (await second).status_code == 200


async def test_data_of_a_newer_version(api: Api, redis_server: Server) -> None:
    """Whatever is asked for, the server says that it is too old, and changes nothing."""
    await api.put("a")
    claim = (await api.take()).json()["claim"]
    await api.put("b")
    with redis_server.client() as client:
        client.hset("{streamdq}:topics", "t", '{"format": 99}')
        client.hset("streamdq:{t:0}:settings", "format", 99)
        client.delete("{streamdq}:probe")
        before = {key: client.dump(key) for key in client.keys("streamdq:*")}
        asked = [await api.put("c"), await api.get("b"), await api.take(), await api.end("finish", claim)]
        asked += [await api.client.delete(api.job("t", "b"))]
        for path in ("topics", "topics/t/dead", "stats", "upcoming", "audit"):
            asked += [await api.client.get(f"/v1/{path}")]
        for response in asked:
            assert (response.status_code, kind(response)) == (503, "newer-format"), response.request.url
            assert "upgrade" in response.json()["detail"]
            assert "retry-after" in response.headers
        for page in ("/topics/t", "/topics/t/jobs/b"):
            shown = await api.client.get(page)
            assert (shown.status_code, "upgrade" in shown.text) == (503, True), page
        scraped = (await api.client.get("/metrics")).text
        assert 'streamdq_up{namespace="streamdq"} 0.0' in scraped
        assert {key: client.dump(key) for key in client.keys("streamdq:*")} == before


async def test_a_server_that_is_too_old_is_not_ready(api: Api, redis_server: Server) -> None:
    """One newer topic is enough: whoever spreads requests must not send them here. It is seen while the server runs."""
    await api.put("a")
    await ready(api, 200)
    with redis_server.client() as client:
        client.hset("{streamdq}:topics", "newer", '{"format": 99}')
        client.delete("{streamdq}:probe")
        api.app.state.streamdq._known_until = 0.0  # ten seconds later
        answer = await ready(api, 503)
        assert kind(answer) == "newer-format"
        assert not client.exists("{streamdq}:probe")
        assert (await api.client.get("/health/alive")).status_code == 200
        client.hdel("{streamdq}:topics", "newer")
    await ready(api, 200)


async def test_a_redis_that_takes_no_writes(api: Api, redis_server: Server) -> None:
    assert (await api.client.get("/health/ready")).status_code == 200
    with redis_server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            refused = await api.put("a")
            assert (refused.status_code, kind(refused)) == (503, "redis-refuses")
            assert "retry-after" in refused.headers
            assert kind(await ready(api, 503)) == "redis-refuses"
        finally:
            client.config_set("maxmemory", 0)


async def test_a_loop_that_stood_still(api: Api) -> None:
    backend = api.app.state.streamdq
    until_ticked = await api.client.get("/health/alive")
    assert until_ticked.json() == {"status": "ok"}
    backend.ticked = time.monotonic() - 60
    assert kind(await api.client.get("/health/alive")) == "too-busy"


async def test_a_fault_tells_no_details(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise KeyError("secret")

    monkeypatch.setattr("streamdq.queue.AsyncQueue.stats", broken)
    response = await api.client.get("/v1/stats")
    assert (response.status_code, kind(response)) == (500, "internal-error")
    assert "secret" not in response.text


async def test_nothing_is_to_be_kept(api: Api) -> None:
    for path in ("/v1/topics", "/v1/nothing", "/health/alive"):
        headers = (await api.client.get(path)).headers
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


def test_the_secret_by_the_command_line(redis_server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    def secret(*words: str, ends: int = 0) -> str:
        assert cli.run(["--url", redis_server.url, "secret", *words]) == ends
        return capsys.readouterr().out.strip()

    assert "nothing to drop" in secret("drop")
    assert "the first secret was made" in secret("rotate")
    told = json.loads(secret("rotate", "--json"))
    assert (told["rotated"], told["since_ms"] > 1_600_000_000_000) == (True, True)
    when = f"{datetime.fromtimestamp(told['since_ms'] / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    assert f"replaced at {when} are still valid" in secret("rotate", ends=1)
    assert json.loads(secret("rotate", "--json", ends=1)) == {"rotated": False, "since_ms": told["since_ms"]}
    assert f"replaced at {when} is dropped" in secret("drop")
    assert json.loads(secret("drop", "--json")) == {"dropped": False}
    shown = secret("rotate") + secret("drop") + secret("drop", "--json")
    with redis_server.client() as client:
        assert client.get("{streamdq}:secret").decode() not in shown
