"""The page of the workers."""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from streamdq import Queue, Worker
from streamdq.config import Settings
from streamdq.http import Tokens
from streamdq.http.auth import Role, new_token
from streamdq.keys import NamespaceKeys
from tests.http.conftest import Open
from tests.http.harness import NAMESPACE, Api
from tests.http.site import EVIL, post, see
from tests.servers import Server


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look reads anew."""
    monkeypatch.setattr("streamdq.http.topic_cache.EVERY_S", 0.0)


async def look(site: Api) -> str:
    await see(site, "/workers")
    watch = site.app.state.streamdq.workers
    watch._found = None
    return await see(site, "/workers")


async def test_nobody_works(site: Api) -> None:
    assert "No worker. Start one" in await see(site, "/workers")


async def test_who_runs_what_and_where(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue("t", 1, id="a/b")
    worker = Worker(redis_server.url, NAMESPACE, settings=Settings(url="memory://unused"))
    started, goes_on = asyncio.Event(), asyncio.Event()

    @worker.handler("t")
    async def wait(_: object) -> None:
        started.set()
        await goes_on.wait()

    serving = asyncio.create_task(worker.serve(burst=True))
    await started.wait()
    page = await look(site)
    (row,) = re.findall(r"<tbody>\s*<tr>(.*?)</tr>", page, re.DOTALL)
    cells = [
        " ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)
    ]
    assert cells[1] == str(os.getpid())
    assert cells[2].endswith(" ago")
    assert cells[3:5] == ["t", "1"]
    assert re.fullmatch(r"a/b for [\d.]+m?s", cells[5])
    assert 'href="/topics/t/jobs/a%2Fb"' in row
    assert "late good" in row
    assert "gone" not in row
    goes_on.set()
    await serving
    assert "No worker" in await look(site)


async def test_one_that_gave_no_sign_is_shown_as_silent(
    site: Api, queue: Queue, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enqueue("t", 1)
    claim = queue.take("t", timeout=60)
    assert claim
    shard = NamespaceKeys(NAMESPACE).shard("t", 0)
    with redis_server.client() as client:
        (entry,) = client.xpending_range(shard.ready, "default", "-", "+", 1)
        client.xclaim(
            shard.ready, "default", "old-host-77-abcdef0123", 0, [entry["message_id"]], idle=60_000, justid=True
        )
    assert "silent" not in await look(site)
    monkeypatch.setattr("streamdq.http.pages.workers.SILENT_MS", -1)
    page = await look(site)
    assert "old-host" in page
    assert '<td class="num" data-label="process">77<' in page
    assert "silent: its claims are taken over" in page


async def test_a_token_sees_who_works_for_its_topics(open_api: Open, queue: Queue) -> None:
    claims = []
    for topic in ("mine", "theirs"):
        queue.enqueue(topic, 1, id=f"of-{topic}")
        claims.append(queue.take(topic, timeout=60))
    token, line = new_token("m", [Role.VIEWER], topics="mine")
    site = await open_api(tokens=Tokens.parse(line))
    site.client.headers["Origin"] = "http://localhost"
    await post(site, "/login", token=token)
    page = await look(site)
    assert "of-mine" in page
    assert "theirs" not in page


async def test_names_of_others_are_text(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue("t", 1)
    with redis_server.client() as client:
        for name in (EVIL, b"\xff\x00\x1b[31m-7-zzzzzz"):
            client.xgroup_createconsumer(NamespaceKeys(NAMESPACE).shard("t", 0).ready, "default", name)
    page = await look(site)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "2 workers" in page
    assert "No worker matches" in await see(site, "/workers?q=nobody")
