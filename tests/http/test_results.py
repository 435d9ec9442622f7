"""Results over HTTP: how a job has ended, and waiting for that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streamdq import Queue
from streamdq.http import Tokens
from streamdq.http.auth import Role, new_token
from tests.http.conftest import Open
from tests.http.harness import NAMESPACE, Api, kind
from tests.servers import Server
from tests.waiting import HANG_S, eventually


@pytest.fixture
def queue(redis_server: Server) -> Any:
    with Queue(redis_server.url, NAMESPACE) as queue:
        queue.configure("t", result="1d", create=True)
        yield queue


async def result_of(api: Api, id: str, **query: Any) -> Any:
    return await api.client.get(f"{api.job('t', id)}/result", params=query)


async def finished(api: Api, **given: Any) -> None:
    claim = (await api.take()).json()["claim"]
    assert (await api.end("finish", claim, **given)).status_code == 204


async def test_a_result_is_given_and_got(api: Api, queue: Queue) -> None:
    await api.put("a")
    waiting = await result_of(api, "a")
    assert (waiting.status_code, waiting.json()["outcome"], waiting.json()["group"]) == (202, "waiting", "default")
    await finished(api, result={"pages": 12})
    got = (await result_of(api, "a")).json()
    assert got.pop("ended_ms") > 0
    assert got == {
        "topic": "t", "id": "a", "group": "default", "outcome": "done", "reason": None, "error": None,
        "result": {"pages": 12},
    }  # fmt: skip
    assert queue.result("t", "a") == {"pages": 12}


@pytest.mark.usefixtures("queue")
async def test_it_waits(api: Api) -> None:
    await api.put("a")
    waiting = asyncio.create_task(result_of(api, "a", wait_s=60))
    await eventually(lambda: api.app.state.streamdq.waits == 1, "it waits")
    await finished(api, result=[1])
    answer = await asyncio.wait_for(waiting, HANG_S)
    assert (answer.status_code, answer.json()["result"], api.app.state.streamdq.waits) == (200, [1], 0)
    assert (await result_of(api, "a", wait_s=61)).status_code == 422


async def test_other_ends(api: Api, queue: Queue) -> None:
    await api.put("dead")
    claim = (await api.take()).json()["claim"]
    await api.end("bury", claim, reason="no such order")
    got = (await result_of(api, "dead")).json()
    assert (got["outcome"], got["reason"], got["error"]) == ("dead", "buried", "no such order")
    await api.put("cancelled", delay="1h")
    queue.cancel("t", "cancelled")
    assert (await result_of(api, "cancelled")).json()["outcome"] == "cancelled"
    assert kind(await result_of(api, "never")) == "no-result"
    await api.put("none")
    await finished(api)
    assert (await result_of(api, "none")).json()["result"] is None


@pytest.mark.usefixtures("queue")
async def test_a_result_that_can_not_be_kept_leaves_the_claim(api: Api) -> None:
    await api.put("a")
    claim = (await api.take()).json()["claim"]
    assert kind(await api.end("finish", claim, result="x" * 70_000)) == "invalid-input"
    assert (await api.end("finish", claim)).status_code == 204
    await api.put("b", topic="u")
    claim = (await api.take("u")).json()["claim"]
    refused = await api.end("finish", claim, result=1)
    assert (kind(refused), "keeps no results" in refused.json()["detail"]) == ("invalid-input", True)
    assert (await api.end("finish", claim)).status_code == 204
    assert kind(await api.client.get(f"{api.job('u', 'b')}/result")) == "invalid-input"


async def test_a_token_sees_its_own_groups(open_api: Open, queue: Queue) -> None:
    queue.configure("t", groups=["a", "b"], result={"a": "1d", "b": "1d"})
    token, line = new_token("clerk", [Role.VIEWER], groups="a")
    other, other_line = new_token("other", [Role.VIEWER], groups="c")
    queue.enqueue("t", 1, id="j")
    for group in "ab":
        claim = queue.take("t", group)
        assert claim
        claim.finish(result=group)
    api = await open_api(tokens=Tokens.parse(f"{line}\n{other_line}"))
    as_clerk = {"Authorization": f"Bearer {token}"}
    url = f"{api.job('t', 'j')}/result"
    assert (await api.client.get(url, headers=as_clerk)).json()["result"] == "a"
    assert kind(await api.client.get(url, params={"group": "b"}, headers=as_clerk)) == "forbidden"
    assert kind(await api.client.get(url, headers={"Authorization": f"Bearer {other}"})) == "forbidden"


async def test_the_page_of_a_job_shows_it(site: Api, queue: Queue) -> None:
    queue.enqueue("t", 1, id="j")
    claim = queue.take("t")
    assert claim
    claim.finish(result={"pages": "<12>"})
    shown = (await site.client.get("/topics/t/jobs/j")).text
    assert "Result</h2>" in shown
    assert "&#34;pages&#34;: &#34;&lt;12&gt;&#34;" in shown
