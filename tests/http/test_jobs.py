"""Producers' operations over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streamdq.http.request_body import is_same_json
from streamdq.link.command import Waiting
from tests.http.harness import JSON, Api, kind

HOUR_MS = 3_600_000


async def test_a_job_goes_in_and_is_found(api: Api) -> None:
    made = await api.put("order-42", {"order_id": 42}, delay="1h", ttr=7, retry="1s 2s", url="https://m.example/p")
    assert made.status_code == 201
    job = made.json()
    assert (job["id"], job["topic"], job["state"], job["body"]) == ("order-42", "t", "delayed", {"order_id": 42})
    assert job["due_ms"] - job["created_ms"] == HOUR_MS
    assert (job["ttr_ms"], job["retry"], job["url"]) == (7000, "1000ms 2000ms", "https://m.example/p")
    found = (await api.get("order-42")).json()
    assert found.pop("groups")["default"]["state"] == "delayed"
    job.pop("groups")
    assert found == job


async def test_a_put_may_be_repeated(api: Api) -> None:
    at = (datetime.now(UTC) + timedelta(hours=3)).isoformat()
    whens: list[dict[str, Any]] = [{"delay": "1h"}, {"at": at}, {"at": 1_900_000_000_000}, {}]
    for when in whens:
        id = f"job-{when}"
        first = await api.put(id, {"a": [1, 2]}, **when, retry="1s")
        again = await api.put(id, {"a": [1, 2]}, **when, retry="1000ms")
        assert (first.status_code, again.status_code) == (201, 200), when
        assert again.json()["due_ms"] == first.json()["due_ms"]


@pytest.mark.parametrize(
    "other", [{"body": 2}, {"delay": "2h"}, {"ttr": 1}, {"retry": "5s"}, {"url": "https://x.example"}, {"expire": 1}]
)
async def test_a_put_of_other_content_is_refused(api: Api, other: dict[str, Any]) -> None:
    await api.put("a", delay="1h")
    content: dict[str, Any] = {"body": 1, "delay": "1h"}
    response = await api.put("a", **(content | other))
    assert (response.status_code, kind(response)) == (409, "job-exists")
    assert (await api.get("a")).json()["body"] == 1


async def test_a_put_with_another_order_of_members_is_the_same(api: Api) -> None:
    bodies = [
        b'{"a": 1, "b": {"c": [1, {"d": true, "e": null}], "f": "\\u00e9"}}',
        b'{ "b":{"f":"\xc3\xa9","c":[1,{"e":null,"d":true}]}, "a":1 }',
    ]  # fmt: skip
    first, again = [
        await api.client.put(api.job("t", "a"), content=b'{"delay": "1h", "body": ' + body + b"}", headers=JSON)
        for body in bodies
    ]
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["body"] == first.json()["body"]


def test_what_only_python_takes_for_the_same_is_not() -> None:
    for body, other in (
        ([1], [1.0]), ([True], [1]), ([0], [False]), ([1, 2], [2, 1]), ({"a": None}, {}), ({"a": 1}, {"b": 1}),
        (["1"], [1]), ([[]], [{}]), ([1], [1, 1]),
    ):  # fmt: skip
        assert is_same_json(body, body)
        assert not is_same_json(body, other), (body, other)


async def test_a_job_that_waits_for_others(api: Api) -> None:
    after = [{"topic": "t", "id": "p"}]
    refused = await api.put("d", 2, after=after)
    assert (refused.status_code, kind(refused)) == (409, "parent-unknown")
    await api.put("p", delay="1h")
    made = await api.put("d", 2, after=after, delay="5m", on_failure="run")
    assert (made.status_code, made.json()["state"], made.json()["due_ms"]) == (201, "waiting", None)
    again = await api.put("d", 2, after=after, delay="5m", on_failure="run")
    assert again.status_code == 200
    assert again.json()["waits_for"] == {
        "total": 1, "done": 0, "failed": 0, "on_failure": "run", "delay_ms": 300_000, "blocked": False,
        "jobs": [{"topic": "t", "id": "p", "outcome": None}],
    }  # fmt: skip
    assert kind(await api.put("d", 3, after=after, delay="5m", on_failure="run")) == "job-exists"
    assert kind(await api.put("x", 3, after=after, on_conflict="postpone")) == "invalid-input"
    assert kind(await api.put("x", 3, after=[{"topic": "t", "id": "x"}])) == "invalid-input"
    for state, found in (("waiting", ["d"]), ("blocked", []), ("delayed", ["p"])):
        answer = (await api.client.get("/v1/topics/t/find", params={"state": state})).json()
        assert [job["id"] for job in answer["jobs"]] == found


async def test_on_conflict(api: Api) -> None:
    await api.put("a", 1, delay="1h")
    kept = await api.put("a", 2, delay="1h", on_conflict="keep")
    assert (kept.status_code, kept.json()["body"]) == (200, 1)
    replaced = await api.put("a", 2, delay="1h", on_conflict="replace")
    assert (replaced.status_code, replaced.json()["body"]) == (201, 2)
    await api.put("b", 1)
    assert (await api.take()).status_code == 200
    assert kind(await api.put("b", 2, on_conflict="replace")) == "job-exists"
    assert kind(await api.put("b", 2, on_conflict="sometimes")) == "invalid-input"


async def test_a_job_is_postponed(api: Api) -> None:
    first = await api.put("a", 1, delay="1s", on_conflict="postpone", at_most="1m")
    again = await api.put("a", 2, delay="1h", on_conflict="postpone", at_most="1m")
    assert (again.status_code, again.json()["body"]) == (201, 2)
    assert again.json()["due_ms"] == first.json()["due_ms"] + 60_000
    assert kind(await api.put("b", 1, at_most="1m")) == "invalid-input"
    assert kind(await api.put("b", 1, rate_of_id="often")) == "invalid-input"
    assert kind(await api.client.post("/v1/topics/t/jobs", json={"body": 1, "unique_for": "1m"})) == "invalid-input"


async def test_a_post_makes_the_id(api: Api) -> None:
    made = await api.client.post("/v1/topics/t/jobs", json={"body": "x"})
    assert made.status_code == 201
    assert made.headers["location"] == api.job("t", made.json()["id"])
    assert (await api.client.get(made.headers["location"])).json()["body"] == "x"


async def test_names_that_need_encoding(api: Api) -> None:
    for name in ("a/b", "50%", "%2F", "ä ö", "支付", "a?b#c", "q&r=s", "'\"<b>", "a%2Fb", "+"):
        topic = name.replace(" ", "_")
        assert (await api.put(name, 1, topic)).status_code == 201
        found = (await api.get(name, topic)).json()
        assert (found["topic"], found["id"]) == (topic, name)


async def test_cancel(api: Api) -> None:
    await api.put("a", delay="1h")
    assert (await api.client.delete(api.job("t", "a"))).status_code == 204
    assert kind(await api.client.delete(api.job("t", "a"))) == "no-job"
    assert kind(await api.client.delete(api.job("none", "a"))) == "unknown-topic"
    await api.put("b")
    await api.take()
    assert kind(await api.client.delete(api.job("t", "b"))) == "job-busy"


async def test_reschedule(api: Api) -> None:
    made = (await api.put("a", delay="1h")).json()
    moved = await api.client.post(api.job("t", "a") + "/reschedule", json={"delay": "3h"})
    assert moved.status_code == 200
    assert moved.json()["due_ms"] - made["due_ms"] >= 2 * HOUR_MS
    assert kind(await api.client.post(api.job("t", "a") + "/reschedule", json={})) == "invalid-input"
    assert kind(await api.client.post(api.job("t", "b") + "/reschedule", json={"delay": 1})) == "no-job"


async def test_what_is_not_there(api: Api) -> None:
    assert kind(await api.get("a")) == "no-job"
    assert kind(await api.client.get("/v1/nothing")) == "not-found"
    for method, path, allowed in (
        ("PATCH", api.job("t", "a"), "DELETE, GET, HEAD, PUT"), ("GET", "/v1/topics/t/jobs", "POST"),
        ("OPTIONS", "/v1/topics", "GET, HEAD"), ("PUT", "/topics/t", "GET, HEAD"), ("GET", "/logout", "POST"),
        ("POST", "/openapi.json", "GET, HEAD"), ("DELETE", "/static/app.css", "GET, HEAD"),
        ("PUT", "/login", "GET, HEAD, POST"),
    ):  # fmt: skip
        wrong = await api.client.request(method, path)
        assert kind(wrong) == "method-not-allowed"
        assert wrong.json()["detail"] == f"this path has {wrong.headers['allow']}"
        assert wrong.headers["allow"] == allowed, (method, path)


@pytest.mark.thorough
async def test_a_head_is_a_get_without_its_body(api: Api) -> None:
    await api.put("a", "x" * 100)
    for path in (api.job("t", "a"), "/v1/topics", "/health/alive", "/topics/t", "/static/app.css", "/openapi.json"):
        got, head = await api.client.get(path), await api.client.head(path)
        assert (head.status_code, head.content) == (200, b""), path
        again = await api.client.get(path)  # a page tells times: how long something waits, in more digits by now
        assert head.headers["content-length"] in {str(len(got.content)), str(len(again.content))}
        assert head.headers["content-type"] == got.headers["content-type"]
    wrong = await api.client.head("/v1/topics/t/take")
    assert (wrong.status_code, wrong.headers["allow"], wrong.content) == (405, "POST", b"")
    assert (await api.client.head(api.job("t", "none"))).status_code == 404


REFUSED = [
    (b"{", "malformed"),
    (b"[" * 100_000, "malformed"),
    (b'{"body": 1' + b"0" * 5000 + b"}", "malformed"),
    (b"\xff", "malformed"),
    (b"", "invalid-input"),
    (b"{}", "invalid-input"),
    (b'{"body": null}', "invalid-input"),
    (b'{"body": NaN}', "invalid-input"),
    (b'{"body": "\\ud800"}', "invalid-input"),
    (b'{"body": ' + b"[" * 210 + b"]" * 210 + b"}", "invalid-input"),
    (b'{"body": 1, "dealy": 1}', "invalid-input"),
    (b'{"body": 1, "\\ud800": 1}', "invalid-input"),
    (b'{"body": 1, "delay": true}', "invalid-input"),
    (b'{"body": 1, "delay": "soon"}', "invalid-input"),
    (b'{"body": 1, "delay": "\\ud800"}', "invalid-input"),
    (b'{"body": 1, "delay": 1, "at": 1900000000000}', "invalid-input"),
    (b'{"body": 1, "at": "2030-01-31T09:00:00"}', "invalid-input"),
    (b'{"body": 1, "at": "tomorrow"}', "invalid-input"),
    (b'{"body": 1, "retry": [1, null]}', "invalid-input"),
    (b'{"body": 1, "url": "ftp://x"}', "invalid-input"),
]


async def test_bodies_that_are_refused(api: Api) -> None:
    for content, expected in REFUSED:
        response = await api.client.put(api.job("t", "a"), content=content, headers=JSON)
        assert kind(response) == expected, content[:80]
        assert kind(await api.get("a")) == "no-job", content[:80]


async def test_errors_say_where(api: Api) -> None:
    problem = (await api.put("a", delay=[])).json()
    assert problem["errors"][0]["at"].startswith("body.delay")
    assert "body.delay" in problem["detail"]


@pytest.mark.parametrize("id", ["", " ", "a\nb", "x" * 256])
async def test_ids_that_are_refused(api: Api, id: str) -> None:
    response = await api.put(id)
    assert kind(response) == ("not-found" if id == "" else "invalid-input")


async def test_names_that_are_not_utf8(api: Api) -> None:
    response = await api.client.put("/v1/topics/t/jobs/%ff", json={"body": 1})
    assert kind(response) == "invalid-input"


async def test_another_content_type(api: Api) -> None:
    for headers in ({"Content-Type": "text/plain"}, {}):
        assert kind(await api.client.put(api.job("t", "a"), content=b"{}", headers=headers)) == "unsupported-media-type"
    fine = await api.client.put(
        api.job("t", "a"), content=b'{"body":1}', headers={"Content-Type": "Application/JSON; charset=utf-8"}
    )
    assert fine.status_code == 201


async def test_what_redis_can_not_confirm(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    # Redis waits for replicas no longer than this; the call has its usual time.
    monkeypatch.setattr(Waiting, "args", property(lambda self: (*self[1][:-1], 50)))
    await api.put("a", delay="1h")
    job, jobs = api.job("t", "a"), "/v1/topics/t/jobs"
    lines: dict[str, Any] = {"content": b'{"body": 1}\n' * 3, "headers": {"Content-Type": "application/x-ndjson"}}
    for durable, expected in (("replicas:1", (503, "not-durable")), ("disk", (501, "durability-unsupported"))):
        asked = {"durable": durable}
        for response in (
            await api.client.put(api.job("t", "b"), json={"body": 1}, params=asked),
            await api.client.post(jobs, json={"body": 1}, params=asked),
            await api.client.post("/v1/topics/t/bulk", params=asked, **lines),
            await api.client.post(f"{job}/reschedule", json={"delay": "1h"}, params=asked),
            await api.client.delete(job, params=asked),
        ):
            assert (response.status_code, kind(response)) == expected
        await api.put("a", delay="1h")
    again = await api.client.put(api.job("t", "b"), json={"body": 1}, params={"durable": "memory"})
    assert again.status_code == 200  # the first one has enqueued it
    wrong = await api.client.put(api.job("t", "c"), json={"body": 1}, params={"durable": "ram"})
    assert (wrong.status_code, kind(wrong)) == (422, "invalid-input")
