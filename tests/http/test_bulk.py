"""Many jobs in one request, a line each."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamdq.config import HttpSettings, Settings
from tests.http.conftest import Open
from tests.http.harness import Api, kind
from tests.servers import Server

NDJSON = {"Content-Type": "application/x-ndjson"}


async def load(api: Api, content: object, **query: str) -> dict[str, object]:
    response = await api.client.post("/v1/topics/t/bulk", content=content, headers=NDJSON, params=query)  # type: ignore[arg-type]
    assert response.status_code == 200, response.text
    found: dict[str, object] = response.json()
    return found


def numbers(found: dict[str, object]) -> tuple[object, ...]:
    return tuple(found[name] for name in ("lines", "created", "existing", "invalid"))


async def test_what_became_of_each_line(api: Api) -> None:
    await api.put("b", delay="1h")
    lines = [
        b'{"id": "a", "body": {"n": 1}, "delay": "1h"}', b"", b"  ", b'{"id": "b", "body": 2}', b"{", b'{"body": null}',
        b'{"body": 1, "dealy": 2}', b'{"id": "a", "body": 9}', b'{"body": 1, "at": "2030-01-31T09:00:00+08:00"}',
        b"\xff", b"[1]", b'{"body": 1, "id": 7}',
    ]  # fmt: skip
    found = await load(api, b"\r\n".join(lines))
    assert numbers(found) == (10, 2, 2, 6)
    assert {(p["line"], p["problem"]) for p in found["problems"]} == {  # type: ignore[attr-defined]
        (4, "job-exists"), (5, "invalid-input"), (6, "invalid-input"), (7, "invalid-input"), (8, "job-exists"),
        (10, "invalid-input"), (11, "invalid-input"), (12, "invalid-input"),
    }  # fmt: skip
    assert (await api.get("a")).json()["body"] == {"n": 1}
    assert (await api.get("b")).json()["body"] == 1


async def test_a_line_may_wait_for_others(api: Api) -> None:
    lines = b"""{"id": "d", "body": 1, "after": [{"topic": "t", "id": "p"}]}
{"id": "x", "body": 1, "after": [{"topic": "t", "id": "unknown"}]}
{"id": "y", "body": 1, "after": [{"topic": "t", "id": "y"}]}
{"id": "p", "body": 1, "delay": "1h"}
{"id": "e", "body": 1, "after": [{"topic": "t", "id": "d"}]}"""
    found = await load(api, lines)
    assert numbers(found) == (5, 3, 0, 2)
    assert [(p["line"], p["problem"], p["id"]) for p in found["problems"]] == [  # type: ignore[attr-defined]
        (2, "parent-unknown", "x"), (3, "invalid-input", "y"),
    ]  # fmt: skip
    assert (await api.get("e")).json()["state"] == "waiting"


async def test_it_may_be_repeated(api: Api) -> None:
    body = b"".join(b'{"id": "j%d", "body": %d, "delay": "1h"}\n' % (n, n) for n in range(600))
    assert numbers(await load(api, body)) == (600, 600, 0, 0)
    again = await load(api, body)
    assert numbers(again) == (600, 0, 600, 0)
    assert len(again["problems"]) == 100  # type: ignore[arg-type]
    assert numbers(await load(api, body.replace(b"1h", b"2h"), on_conflict="replace")) == (600, 600, 0, 0)


async def test_each_line_has_its_own_rule(api: Api) -> None:
    lines = b"""{"id": "a", "body": 1, "delay": "1h", "rate_of_id": "1/h"}
{"id": "b", "body": 1, "delay": "1h"}
{"id": "c", "body": 1, "at_most": "1m"}
{"body": 1, "unique_for": "1m"}"""
    assert numbers(await load(api, lines)) == (4, 2, 0, 2)
    for id in "ab":
        assert (await api.client.delete(api.job("t", id))).status_code == 204
    assert numbers(await load(api, lines, on_conflict="postpone")) == (4, 2, 1, 1)


async def test_a_long_line_is_passed_over(open_api: Open) -> None:
    api = await open_api(settings=Settings(max_body_bytes=1000, url="memory://unused"))

    async def body() -> AsyncIterator[bytes]:
        yield b'{"body": 1}\n{"body": "'
        for _ in range(50):
            yield b"x" * 4096
        yield b'"}\n{"body": "' + b"y" * 2000 + b'"}\n{"body": 3}'

    found = await load(api, body())
    assert numbers(found) == (4, 2, 0, 2)


@pytest.mark.thorough
async def test_memory_is_bounded(api: Api, redis_server: Server) -> None:
    line = json.dumps({"body": "x" * 1000, "delay": "1h"}).encode() + b"\n"
    peaks = []
    for batches in (4, 12):

        async def body(batches: int = batches) -> AsyncIterator[bytes]:
            for _ in range(batches):
                yield line * 250

        tracemalloc.start()
        await load(api, body())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        redis_server.flush()
    assert peaks[1] < 1.5 * peaks[0] + 400_000, peaks
    assert peaks[1] < 12_000_000


async def test_limits(open_api: Open) -> None:
    api = await open_api(http=HttpSettings(max_bulk_bytes=2000))

    async def body() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b'{"body": "0123456789"}\n' * 10

    too_much = await api.client.post("/v1/topics/t/bulk", content=body(), headers=NDJSON)
    assert (too_much.status_code, kind(too_much)) == (413, "too-large")
    reserved = await api.client.post("/v1/topics/streamdq.flows/bulk", content=b'{"body": 1}\n', headers=NDJSON)
    assert kind(reserved) == "invalid-input"
    wrong = await api.client.post("/v1/topics/t/bulk", json=[1])
    assert kind(wrong) == "unsupported-media-type"


async def test_lines_that_keep_coming_do_not_keep_a_server_that_ends(api: Api) -> None:
    async def body() -> AsyncIterator[bytes]:
        for batch in range(1000):
            if batch == 3:
                api.app.state.streamdq.stopping.set()
            yield b'{"body": 1, "delay": "1h"}\n' * 100

    response = await api.client.post("/v1/topics/t/bulk", content=body(), headers=NDJSON)
    assert kind(response) == "stopping"
    assert 300 <= response.json()["lines_read"] <= 500
    stats = (await api.client.get("/v1/stats")).json()
    assert stats["delayed"] == response.json()["lines_read"]


async def test_a_caller_that_hangs_up_is_no_fault(api: Api) -> None:
    """In the middle of its lines: the whole batches are in, and nothing is raised."""
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b'{"body": 1}\n' * 501, "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    path = "/v1/topics/t/bulk"
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/x-ndjson")], "root_path": "",
        "scheme": "http", "http_version": "1.1", "server": ("localhost", 80), "client": ("localhost", 1),
        "asgi": {"version": "3.0"},
    }  # fmt: skip
    with capture_logs() as logs:
        await api.app(scope, receive, send)
    assert sent[0]["status"] == 400
    assert [line for line in logs if line["log_level"] == "error"] == []
    assert (await api.client.get("/v1/stats")).json()["ready"] == 500
