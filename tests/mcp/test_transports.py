"""The SDK's own client reaches the server over stdio and over HTTP."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamdq import Queue
from streamdq.cli import app as cli
from streamdq.http.auth import Role, Tokens, new_token
from tests.extras import run_without
from tests.mcp.conftest import NAMESPACE, called
from tests.mcp.test_reads import BODY
from tests.servers import Server

if TYPE_CHECKING:
    from tests.mcp.served import Served

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
Serve = Callable[..., "Served"]


@pytest.fixture
def serve() -> Serve:
    from tests.mcp.served import Served  # with the SDK, which takes a second in every process of the suite

    return Served


async def test_over_stdio(redis_server: Server, queue: Queue) -> None:
    from mcp import Client, StdioServerParameters

    queue.enqueue("order.close", BODY, id="order-1", delay="1h")
    words = ["-m", "streamdq", "--url", redis_server.url, "--namespace", NAMESPACE, "mcp", "--allow-changes"]
    command = StdioServerParameters(command=sys.executable, args=[*words, "--topics", "order.*"])
    async with Client(command) as client:
        assert (await called(client, "stats"))["delayed"] == 1
        assert "this token is for other topics" in await called(client, "pause_topic", topic="mail.send")
        assert (await called(client, "cancel_job", topic="order.close", id="order-1"))["count"] == 1
    assert queue.get("order.close", "order-1") is None


async def test_over_http_each_token_has_its_own_rights(
    serve: Serve, redis_server: Server, queue: Queue, tmp_path: Path
) -> None:
    queue.enqueue("order.close", BODY, id="order-1", delay="1h")
    queue.enqueue("mail.send", BODY, delay="1h")
    viewer, first = new_token("eve", [Role.VIEWER])
    orders, second = new_token("orders", [Role.VIEWER, Role.PRODUCER], topics="order.*")
    served = serve(redis_server.url, Tokens.parse(f"{first}\n{second}"), tmp_path / "audit")
    async with served.app.router.lifespan_context(served.app):
        async with served.client(viewer) as client:
            assert (await called(client, "stats"))["delayed"] == 2
            refused = await called(client, "cancel_job", topic="order.close", id="order-1")
        async with served.client(orders) as client:
            assert [topic["topic"] for topic in (await called(client, "stats"))["topics"]] == ["order.close"]
            assert (await called(client, "cancel_job", topic="order.close", id="order-1"))["count"] == 1
        async with served.http() as stranger:
            missing = await stranger.post("/mcp", json=CALL)
            wrong = await stranger.post("/mcp", json=CALL, headers={"Authorization": "Bearer sdq_wrong"})

    assert "this takes the role admin or producer" in refused
    assert (missing.status_code, missing.json()["type"]) == (401, "urn:streamdq:problem:unauthenticated")
    assert (wrong.status_code, "www-authenticate" in wrong.headers) == (401, True)
    logged = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    cancelled = [line for line in logged if line["action"] == "cancel_job"]
    assert [(line["who"], line.get("status")) for line in cancelled] == [("eve", None), ("orders", 204)]


async def test_the_server_has_none_of_the_api_beside_it(serve: Serve, redis_server: Server) -> None:
    served = serve(redis_server.url, Tokens())
    async with served.app.router.lifespan_context(served.app), served.http() as http:
        for path in ("/", "/v1/topics", "/openapi.json", "/static/page.css"):
            assert (await http.get(path)).status_code == 404
        assert (await http.get("/health/alive")).status_code == 200
        assert (await http.get("/mcp")).status_code == 405


async def test_pages_of_other_sites_can_not_use_a_server_without_tokens(serve: Serve, redis_server: Server) -> None:
    served = serve(redis_server.url, Tokens())
    async with served.app.router.lifespan_context(served.app):
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
            async with served.http(**headers) as http:
                assert (await http.post("/mcp", json=CALL)).status_code == 403
        async with served.client() as client:
            assert (await called(client, "stats"))["topics"] == []


def test_over_http_topics_are_those_of_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--url", "redis://unused", "mcp", "--transport", "http", "--topics", "a"]) == 2
    assert "streamdq token" in capsys.readouterr().err


def test_others_can_not_reach_it_without_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--url", "redis://unused", "mcp", "--transport", "http", "--host", "0.0.0.0"]) == 2
    assert "without tokens anyone could do everything" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize("missing", ["mcp", "mcp_types"])
def test_without_its_extra(missing: str) -> None:
    code, err = run_without(missing, "mcp")
    assert (code, err) == (
        2, f"streamdq: this needs {missing}, which is not installed: pip install 'streamdq[mcp]'\n"
    )  # fmt: skip
