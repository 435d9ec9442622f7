"""Operators' operations over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq import AsyncQueue, Bury, NewJob, Worker
from streamdq.config import Settings
from streamdq.http.api import dead_letters
from tests.http.conftest import Open
from tests.http.harness import NAMESPACE, Api, kind
from tests.servers import Server


async def test_a_topic_is_made_and_changed(api: Api) -> None:
    made = await api.client.patch(
        "/v1/topics/t", json={"ttr": "30s", "retry": "1s 2s", "groups": ["default", "audit"], "rate": 5, "shards": 2}
    )
    assert made.status_code == 200
    topic = made.json()
    assert (topic["ttr_ms"], topic["retry"], topic["rate"], topic["shards"]) == (30_000, "1s 2s", 5, 2)
    assert set(topic["groups"]) == {"default", "audit"}
    await api.client.patch("/v1/topics/a", json={})
    assert [one["topic"] for one in (await api.client.get("/v1/topics")).json()["topics"]] == ["a", "t"]
    await api.put("x", delay="1h")
    assert (await api.client.patch("/v1/topics/t", json={"shards": 3})).json()["shards"] == 3
    await api.client.patch("/v1/topics/k", json={"key_concurrency": 1})
    await api.put("x", topic="k", key="a", delay="1h")
    assert kind(await api.client.patch("/v1/topics/k", json={"shards": 3})) == "topic-not-empty"
    assert kind(await api.client.patch("/v1/topics/t", json={"shards": "3"})) == "invalid-input"
    assert kind(await api.client.patch("/v1/topics/t", json={"groups": ["a b"]})) == "invalid-input"


async def test_pause_and_resume(api: Api) -> None:
    await api.put("a")
    paused = await api.client.post("/v1/topics/t/pause")
    assert (paused.status_code, paused.json()["paused"]) == (200, True)
    assert (await api.take()).status_code == 204
    assert (await api.client.get("/v1/stats", params={"topic": "t"})).json()["topics"]["t"]["paused"] is True
    going = await api.client.post("/v1/topics/t/resume")
    assert (going.status_code, going.json()["paused"]) == (200, False)
    assert (await api.take(timeout="60s")).status_code == 200
    assert kind(await api.client.post("/v1/topics/none/pause")) == "unknown-topic"


async def test_figures(api: Api) -> None:
    for n in range(3):
        await api.put(f"j{n}", delay=60 * (n + 1))
    stats = (await api.client.get("/v1/stats")).json()
    assert (stats["delayed"], stats["topics"]["t"]["enqueued"]) == (3, 3)
    upcoming = (await api.client.get("/v1/upcoming", params={"windows": "90s,1h"})).json()
    assert upcoming == {"windows": {"90s": 1, "1h": 3}}
    assert kind(await api.client.get("/v1/upcoming", params={"windows": "soon"})) == "invalid-input"
    assert kind(await api.client.get("/v1/upcoming", params={"windows": ",".join(["1m"] * 21)})) == "invalid-input"
    assert kind(await api.client.get("/v1/stats", params={"topic": "none"})) == "unknown-topic"
    audit = (await api.client.get("/v1/audit")).json()
    assert (audit["balanced"], audit["left"]) == (True, 3)


async def test_scale(api: Api) -> None:
    for n in range(3):
        await api.put(f"j{n}", delay=60 * (n + 1))
    scale = (await api.client.get("/v1/scale/t?within=2m30s&slo=1s&attempt=1m&concurrency=1")).json()
    assert (scale["replicas"], scale["replicas_now"], scale["due"]) == (2, 0, 2)
    assert (await api.client.get("/v1/scale/t")).json()["replicas"] == 1
    assert kind(await api.client.get("/v1/scale/none")) == "unknown-topic"
    assert kind(await api.client.get("/v1/scale/t", params={"group": "none"})) == "unknown-group"
    for wrong in ("within=2d", "slo=soon", "slo=0s", "concurrency=0", f"attempt={'x' * 100}"):
        assert kind(await api.client.get(f"/v1/scale/t?{wrong}")) == "invalid-input"


async def test_keys(api: Api) -> None:
    limits = {"key_concurrency": 1, "key_rate": "5/s"}
    changed = (await api.client.patch("/v1/topics/t", json=limits)).json()
    assert limits.items() <= changed.items()
    assert kind(await api.client.patch("/v1/topics/t", json={"key_rate": "often"})) == "invalid-input"
    assert (await api.client.patch("/v1/topics/t", json={"key_rate": "0"})).json()["key_rate"] is None
    for n in range(3):
        await api.put(f"j{n}", key="k")
    found = (await api.client.get("/v1/topics/t/keys")).json()
    assert found == {"keys": [{"key": "k", "waiting": 2, "running": 0, "paused": False}]}
    assert (await api.client.post("/v1/topics/t/pause", params={"key": "k"})).status_code == 200
    assert (await api.client.get("/v1/topics/t/keys?by=paused")).json()["keys"][0]["paused"] is True
    assert (await api.client.post("/v1/topics/t/resume", params={"key": "k"})).status_code == 200
    assert (await api.client.get("/v1/topics/t/keys?by=paused")).json() == {"keys": []}
    assert kind(await api.client.post("/v1/topics/t/pause", params={"key": ""})) == "invalid-input"
    assert (await api.client.get("/v1/topics/t/keys?by=running")).json() == {"keys": []}
    assert kind(await api.client.get("/v1/topics/t/keys?by=both")) == "invalid-input"
    assert kind(await api.client.get("/v1/topics/t/keys?group=none")) == "unknown-group"


async def test_dead_letters(api: Api) -> None:
    for n in range(4):
        await api.put(f"j{n}")
        await api.end("bury", (await api.take()).json()["claim"], reason=f"why {n}")
    listed = (await api.client.get("/v1/topics/t/dead", params={"limit": 3})).json()["jobs"]
    assert [(job["id"], job["groups"]["default"]["error"]) for job in listed] == [
        (f"j{n}", f"why {n}") for n in range(3)
    ]

    async def tell(what: str, **body: object) -> object:
        return (await api.client.post(f"/v1/topics/t/dead/{what}", json=body)).json()

    assert await tell("kick", ids=["j0", "none"]) == {"count": 1}
    assert await tell("kick", ids=["j0"]) == {"count": 0}
    assert await tell("purge", ids=["j1"]) == {"count": 1}
    assert await tell("kick", all=True) == {"count": 2}
    assert await tell("purge", all=True) == {"count": 0}
    bad: list[dict[str, object]] = [{}, {"ids": []}, {"ids": ["a"], "all": True}, {"all": "yes"}, {"ids": ["\n"]}]
    for body in bad:
        assert kind(await api.client.post("/v1/topics/t/dead/kick", json=body)) == "invalid-input", body
    assert kind(await api.client.post("/v1/topics/t/dead/kick", json={"all": True, "group": "x"})) == "unknown-group"
    assert kind(await api.client.get("/v1/topics/none/dead")) == "unknown-topic"
    assert (await api.client.get("/v1/audit")).json()["balanced"] is True


async def bury(server: Server, topic: str, bodies: dict[str, Any], shards: int = 1) -> None:
    """All of them, many in the same millisecond."""
    worker = Worker(server.url, NAMESPACE, settings=Settings(max_body_bytes=1024 * 1024, url="memory://unused"))

    @worker.handler(topic, batch=100)
    async def give_up(_: list[Any]) -> None:
        raise Bury("no use")

    async with AsyncQueue(server.url, NAMESPACE, settings=Settings(max_body_bytes=1024 * 1024)) as queue:
        await queue.configure(topic, shards=shards)
        await queue.enqueue_many(topic, (NewJob(body, id=id) for id, body in bodies.items()))
        await worker.serve(burst=True)


async def pages(api: Api, **query: Any) -> list[Any]:
    found: list[Any] = []
    after: str | None = ""
    while after is not None:
        answer = await api.client.get("/v1/topics/t/dead", params={**query, "after": after})
        assert answer.status_code == 200, answer.text
        found.append(answer.json() | {"bytes": len(answer.content)})
        after = found[-1]["next"]
    return found


@pytest.mark.parametrize(("shards", "limit"), [pytest.param(1, 500, marks=pytest.mark.thorough), (16, 7)])
async def test_all_dead_letters_page_by_page(api: Api, redis_server: Server, shards: int, limit: int) -> None:
    ids = [f"ä.{n:03}" for n in range(300)]
    await bury(redis_server, "t", dict.fromkeys(ids, 1), shards)

    found = await pages(api, limit=limit)

    assert sorted(job["id"] for page in found for job in page["jobs"]) == ids
    assert max(len(page["jobs"]) for page in found) <= limit
    assert len(found) <= 300 // min(limit, 300) * 3  # short pages are few


async def test_a_page_of_dead_letters_ends_by_bytes(api: Api, redis_server: Server) -> None:
    bodies = {f"j{n:02}": "x" * 250_000 for n in range(20)} | {"huge": "y" * 1_000_000}
    await bury(redis_server, "t", bodies)

    found = await pages(api, limit=500)

    assert sorted(job["id"] for page in found for job in page["jobs"]) == sorted(bodies)
    assert all(page["bytes"] < dead_letters.PAGE_BYTES + 1_100_000 for page in found)
    assert len(found) >= 5
    for after in ("x", ".a", "-1.a", "1", "9" * 20 + ".a"):
        assert kind(await api.client.get("/v1/topics/t/dead", params={"after": after})) == "invalid-input"


async def test_a_topic_is_deleted(api: Api) -> None:
    await api.client.patch("/v1/topics/t", json={})
    assert (await api.client.delete("/v1/topics/t")).status_code == 204
    assert kind(await api.client.delete("/v1/topics/t")) == "unknown-topic"
    await api.put("a", delay="1h")
    assert kind(await api.client.delete("/v1/topics/t")) == "topic-not-empty"
    assert (await api.get("a")).status_code == 200
    assert (await api.client.delete("/v1/topics/t", params={"force": "true"})).status_code == 204
    assert (await api.client.get("/v1/topics")).json() == {"topics": []}
    assert kind(await api.get("a")) == "no-job"
    assert (await api.put("a", delay="1h")).status_code == 201


async def test_there_are_only_so_many_topics(open_api: Open) -> None:
    api = await open_api(settings=Settings(max_topics=2, url="memory://unused"))
    assert (await api.put("a", topic="one")).status_code == 201
    assert (await api.put("a", topic="two")).status_code == 201
    lines: dict[str, Any] = {"content": b'{"body": 1}\n', "headers": {"Content-Type": "application/x-ndjson"}}
    for refused in (
        await api.put("a", topic="three"),
        await api.client.post("/v1/topics/three/jobs", json={"body": 1}),
        await api.client.post("/v1/topics/three/bulk", **lines),
        await api.client.patch("/v1/topics/three", json={}),
    ):
        assert (refused.status_code, kind(refused)) == (409, "too-many-topics")
    assert (await api.put("b", topic="two")).status_code == 201
    assert (await api.client.patch("/v1/topics/two", json={"ttr": "5s"})).status_code == 200
    assert (await api.client.delete("/v1/topics/one", params={"force": "true"})).status_code == 204
    assert (await api.put("a", topic="three")).status_code == 201
