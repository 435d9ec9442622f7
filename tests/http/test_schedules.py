"""Schedules over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq import Queue
from streamdq.http.api import schedules
from tests.http.harness import Api, kind

ACME = "/v1/topics/report.send/schedules/acme"
DAILY = {
    "body": {"for": "{due}"},
    "cron": "0 9 * * 1-5",
    "tz": "Europe/Paris",
    "overlap": "skip",
    "ttr": "5s",
    "version": 2,
}


async def test_put_is_idempotent(api: Api, queue: Queue) -> None:
    made, again = await api.client.put(ACME, json=DAILY), await api.client.put(ACME, json=DAILY)

    assert (made.status_code, again.status_code) == (201, 200)
    schedule = made.json()
    assert schedule == again.json() == (await api.client.get(ACME)).json()
    assert (schedule["topic"], schedule["id"], schedule["state"]) == ("report.send", "acme", "active")
    assert (schedule["words"], schedule["tz"]) == ("At 09:00 on Monday through Friday", "Europe/Paris")
    assert (schedule["body"], schedule["ttr_ms"], schedule["overlap"]) == ({"for": "{due}"}, 5000, "skip")
    assert schedule["version"] == 2
    kept = queue.get_schedule("report.send", "acme")
    assert schedule["next_ms"] == kept.next_ms
    assert len(kept.next_ms) == 5

    changed = await api.client.put(ACME, json={"every": "10m", "catch_up": "1h", "until": "2036-01-01T00:00:00Z"})
    assert changed.status_code == 200
    found = changed.json()
    assert (found["every_ms"], found["catch_up"], found["until_ms"]) == (600_000, "3600000ms", 2_082_758_400_000)
    assert (found["body"], found["ttr_ms"], found["overlap"]) == ({}, None, "allow"), (
        "what is left out is as by default"
    )


async def test_a_dry_run_writes_nothing(api: Api, queue: Queue) -> None:
    answer = await api.client.put(ACME, json=DAILY, params={"dry_run": "true"})
    assert answer.status_code == 200
    assert len(answer.json()["next_ms"]) == 5
    assert queue.stats().topics == {}


async def test_pause_resume_trigger_backfill_and_remove(api: Api, queue: Queue) -> None:
    await api.client.put(ACME, json={"cron": "0 */6 * * *"})
    paused = (await api.client.post(f"{ACME}/pause")).json()
    assert (paused["state"], paused["next_ms"]) == ("paused", [])
    resumed = (await api.client.post(f"{ACME}/resume")).json()
    assert (resumed["state"], len(resumed["next_ms"])) == ("active", 5)
    job = await api.client.post(f"{ACME}/trigger")
    assert job.status_code == 201
    assert queue.get("report.send", job.json()["id"]) is not None
    span = {"start": "2026-01-13T00:00:00Z", "end": 1_768_348_800_000}
    assert [(await api.client.post(f"{ACME}/backfill", json=span)).json() for _ in "12"] == [
        {"enqueued": 4}, {"enqueued": 0}
    ]  # fmt: skip
    assert (await api.client.delete(ACME)).status_code == 204
    assert kind(await api.client.delete(ACME)) == "no-schedule"


async def test_what_is_not_there_is_named(api: Api, queue: Queue) -> None:
    queue.configure("t", create=True)
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/trigger")):
        assert kind(await api.client.request(method, f"/v1/topics/t/schedules/x{path}")) == "no-schedule"
        assert kind(await api.client.request(method, f"/v1/topics/none/schedules/x{path}")) == "unknown-topic"


async def test_bad_input_writes_nothing(api: Api, queue: Queue) -> None:
    wrong: list[dict[str, Any]] = [
        {}, {"cron": "x"}, {"every": 0.1}, {"every": "1h", "cron": "* * * * *"}, {"every": "1h", "tz": "Mars"},
        {"every": "1h", "start": "soon"}, {"every": "1h", "overlap": "never"}, {"every": "1h", "moon": "full"},
        {"every": "1h", "catch_up": "all"}, {"cron": "0 0 31 2 *"}, {"every": "1h", "body": ""},
    ]  # fmt: skip
    for bad in wrong:
        assert kind(await api.client.put(ACME, json=bad)) == "invalid-input", bad
    assert kind(await api.client.put(f"/v1/topics/t/schedules/{'x' * 201}", json={"every": 60})) == "invalid-input"
    assert queue.stats().topics == {}


async def pages(api: Api, **query: Any) -> list[list[str]]:
    found = list[list[str]]()
    after: str | None = ""
    while after is not None:
        answer = (await api.client.get("/v1/schedules", params={**query, "after": after})).json()
        found.append([f"{one['topic']}/{one['id']}" for one in answer["schedules"]])
        after = answer["next"]
    return found


async def test_all_schedules_page_by_page(api: Api, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await pages(api) == [[]]
    for topic, ids in (("a", ("x", "y", "z")), ("b", ("a b", "c"))):
        for id in ids:
            queue.schedule(topic, {}, id=id, every="1h")
    queue.configure("without", create=True)
    every = ["a/x", "a/y", "a/z", "b/a b", "b/c"]
    assert await pages(api) == [every]
    assert await pages(api, limit=3) == [every[:3], every[3:]]
    assert await pages(api, limit=2, topic="b") == [every[3:]]
    assert await pages(api, limit=1, topic="b") == [["b/a b"], ["b/c"]]
    assert await pages(api, topic="without") == [[]]
    assert kind(await api.client.get("/v1/schedules", params={"topic": "none"})) == "unknown-topic"
    monkeypatch.setattr(schedules, "PAGE_BYTES", 700)
    assert await pages(api) == [every[:2], every[2:4], every[4:]], "a page of large bodies is short"
