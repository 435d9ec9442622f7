"""The app inside another one, and where Redis or its surroundings are not as they should be."""

from __future__ import annotations

import asyncio
import html
import os
import re
import signal
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from streamdq import AsyncQueue
from streamdq.config import Settings
from streamdq.errors import InvalidInput
from streamdq.http import Tokens, create_app
from streamdq.http.auth import Role, new_token
from tests.http.conftest import Open
from tests.http.harness import NAMESPACE, Api, kind
from tests.servers import Server
from tests.waiting import HANG_S


@pytest.mark.parametrize("outer", [Starlette, FastAPI])
@pytest.mark.parametrize("shared", [False, True])
async def test_mounted_in_another_app(redis_server: Server, outer: type[Starlette], shared: bool) -> None:
    queue = AsyncQueue(redis_server.url, NAMESPACE)
    app = create_app(
        None if shared else redis_server.url, NAMESPACE, queue=queue if shared else None, authentication="mine"
    )
    host = outer(routes=[Mount("/queue", app=app)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=host), base_url="http://localhost") as client:
        api = Api(client, app)
        made = await client.put("/queue" + api.job("a/b", "50%"), json={"body": 1})
        assert (made.status_code, made.json()["topic"], made.json()["id"]) == (201, "a/b", "50%")
        posted = await client.post("/queue/v1/topics/t/jobs", json={"body": 1})
        assert posted.headers["location"].startswith("/queue/v1/topics/t/jobs/")
        assert (await client.get(posted.headers["location"])).status_code == 200
        claim = (await client.post("/queue/v1/topics/t/take", params={"timeout": "60s"})).json()["claim"]
        assert (await client.post("/queue/v1/claims/finish", json={"claim": claim})).status_code == 204
        assert kind(await client.get("/queue/v1/nothing")) == "not-found"
        assert (await client.get("/queue/health/alive")).status_code == 200
    async with app.router.lifespan_context(app):
        assert (app.state.streamdq._opened is None) is shared
    assert app.state.streamdq._opened is None
    assert await queue.get("a/b", "50%") is not None  # a shared queue stays open
    await queue.close()


@pytest.mark.parametrize("prefix", ["/a b", "/ä", "/50%", "/a+b&c", "/tok/queue"])
async def test_mounted_below_any_path(redis_server: Server, prefix: str) -> None:
    app = create_app(redis_server.url, NAMESPACE, authentication="mine")
    host, base = Starlette(routes=[Mount(prefix, app=app)]), quote(prefix, safe="/+&")
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=host), base_url="http://localhost") as client,
    ):
        posted = await client.post(base + "/v1/topics/a%2Fb/jobs", json={"body": 1})
        assert posted.headers["location"].startswith(base + "/v1/topics/a%2Fb/jobs/")
        assert (await client.get(posted.headers["location"])).json()["topic"] == "a/b"
        assert f'href="{html.escape(base)}/failed"' in (await client.get(base + "/")).text
        assert (await client.get(base + "/static/app.css")).status_code == 200


def test_without_tokens_it_must_know_who_authenticates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMDQ_HTTP_TOKENS", raising=False)
    for tokens in (None, Tokens()):
        with pytest.raises(InvalidInput, match="authentication='mine'"):
            create_app("memory://unused", tokens=tokens)
    with pytest.raises(InvalidInput, match="neither 'tokens' nor 'mine'"):
        create_app("memory://unused", authentication="none")  # type: ignore[arg-type]
    create_app("memory://unused", authentication="mine")
    create_app("memory://unused", tokens=Tokens(required=True))
    monkeypatch.setenv("STREAMDQ_HTTP_TOKENS", new_token("a", [Role.VIEWER])[1])
    create_app("memory://unused")


async def test_what_the_page_mounts_is_for_admins(redis_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "http.md").read_text().partition("## In your own app")[2]
    (code,) = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("redis://localhost:6379/0", redis_server.url), names)
    monkeypatch.setenv("OPS_PASSWORD", "pässword")
    transport = httpx.ASGITransport(app=names["app"])
    async with (
        names["lifespan"](names["app"]),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        for path in (
            "/queue/",
            "/queue/v1/topics",
            "/queue/health/alive",
            "/queue//v1/topics",
            "/queue/static/app.css",
        ):
            refused = await client.get(path)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Basic"), path
        assert (await client.get("/queue/v1/topics", auth=("ops", "wrong"))).status_code == 401
        assert (await client.get("/queue/v1/topics", auth=("ops", "pässword"))).status_code == 200
        assert "Topics" in (await client.get("/queue/", auth=("ops", "pässword"))).text


# -- when Redis does not answer, or refuses


async def test_without_redis(open_api: Open, redis_server: Server) -> None:
    api = await open_api()
    await api.put("a")
    claim = (await api.take()).json()["claim"]
    impatient = await open_api(settings=Settings(call_timeout_s=0.2, url="memory://unused"))
    redis_server.stop()
    ends = [await impatient.put("b"), await impatient.take(), await impatient.end("finish", claim)]
    for response in (*ends, await impatient.get("a")):
        assert (response.status_code, kind(response)) == (503, "redis-unavailable")
        assert int(response.headers["retry-after"]) >= 1
        assert "127.0.0.1" not in response.text
    lines = {"content": b'{"body": 1}\n' * 3, "headers": {"Content-Type": "application/x-ndjson"}}
    bulk = await impatient.client.post("/v1/topics/t/bulk", **lines)
    assert (bulk.status_code, kind(bulk), bulk.json()["lines_read"]) == (503, "redis-unavailable", 0)
    assert kind(await impatient.client.get("/health/ready")) == "redis-unavailable"
    assert (await impatient.client.get("/health/alive")).status_code == 200
    assert 'streamdq_up{namespace="streamdq"} 0.0' in (await impatient.client.get("/metrics")).text
    redis_server.start()
    await ready(impatient, 200)
    assert (await api.put("b")).status_code == 201


async def ready(api: Api, answers: int) -> httpx.Response:
    """The first answer of this kind, without what was found before, which holds for a second."""
    async with asyncio.timeout(HANG_S):
        while True:
            api.app.state.streamdq.probe._holds_until = 0.0
            if (answer := await api.client.get("/health/ready")).status_code == answers:
                return answer


async def test_however_many_ask_redis_is_written_to_once_a_second(
    api: Api, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("streamdq.http.write_probe.time", SimpleNamespace(monotonic=lambda: now))
    probe = api.app.state.streamdq.probe
    write, written = probe.write, count()

    async def counted() -> None:
        next(written)
        await write()

    probe.write = counted
    with redis_server.client() as client:
        clients = len(client.client_list())
        answers = await asyncio.gather(*(api.client.get("/health/ready") for _ in range(100)))
        answers.append(await api.client.get("/health/ready"))
        now += 1
        answers.append(await api.client.get("/health/ready"))
        assert {answer.status_code for answer in answers} == {200}
        assert next(written) == 2
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


async def test_a_server_that_is_too_old_is_not_ready(api: Api, redis_server: Server) -> None:
    """One newer topic is enough: a load balancer must not send requests here. It is seen while the server runs."""
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
    await ready(api, 200)
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


@pytest.mark.parametrize("stopping", [True, False])
async def test_a_request_that_the_ending_server_cuts_off_is_answered(api: Api, stopping: bool) -> None:
    """Its body does not come: the caller would get a 500, and the log a traceback for each."""
    waits, sent = asyncio.Event(), list[Any]()

    async def receive() -> Any:
        waits.set()
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "http_version": "1.1", "method": "PUT", "scheme": "http", "path": "/v1/topics/t/jobs/a",
        "query_string": b"", "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1), "server": ("localhost", 80),
    }  # fmt: skip
    request = asyncio.create_task(api.app(scope, receive, send))
    await waits.wait()
    if stopping:
        api.app.state.streamdq.stopping.set()
    request.cancel()
    if not stopping:
        with pytest.raises(asyncio.CancelledError):
            await request
        return
    await request
    start, body = sent
    assert start["status"] == 503
    assert b"problem:stopping" in body["body"]
    assert {b"retry-after", b"connection"} <= dict(start["headers"]).keys()
