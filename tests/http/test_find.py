"""Searching over HTTP, and acting on what was shown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streamdq import NewJob, Queue
from streamdq.config import HttpSettings
from streamdq.http.api import find
from streamdq.http.backend import Backend
from tests.http.conftest import Open
from tests.http.harness import Api, kind
from tests.http.site import work
from tests.servers import Server
from tests.waiting import HANG_S, eventually

FIND = "/v1/topics/t/find"


async def found(api: Api, **query: Any) -> dict[str, Any]:
    response = await api.client.get(FIND, params=query)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def act(api: Api, how: str, jobs: list[dict[str, Any]], **more: Any) -> Any:
    shown = [{"id": job["id"], "as_shown": job["as_shown"]} for job in jobs]
    return await api.client.post(f"{FIND}/{how}", json={"jobs": shown, **more})


async def test_a_search_has_the_words_of_the_command_line(api: Api, queue: Queue) -> None:
    queue.enqueue_many("t", (NewJob({"user": n % 3, "n": n}, id=f"j{n}", delay=60 * (n + 1)) for n in range(9)))

    async def ids(**query: Any) -> set[str]:
        answer = await found(api, **query)
        assert answer["next"] is None
        return {job["id"] for job in answer["jobs"]}

    assert await ids() == {f"j{n}" for n in range(9)}
    assert await ids(where=["body.user=1", "body.n>1"]) == {"j4", "j7"}
    assert await ids(state="delayed", due_until="150s") == {"j0", "j1"}
    assert await ids(due_from="8m30s") == {"j8"}
    assert await ids(id_prefix="j3") == {"j3"}
    assert await ids(state="dead", group="default") == set()
    (job,) = (await found(api, id_prefix="j3"))["jobs"]
    plain = (await api.get("j3")).json()
    assert {name: value for name, value in job.items() if name != "as_shown"} == plain


async def test_what_is_refused(api: Api) -> None:
    await api.put("a", delay="1h")
    ends = ("x", "0.1", "0.1.", "1.1.0", "0.2.0", "0.1.5m", "0.1.-1", "0.1.0+", "0.1.5m0g", "0" * 5000, "\u0660.1.0")
    queries: list[dict[str, Any]] = [
        {"state": "gone"}, {"where": "user=1"}, {"where": ["body=1"] * 21}, {"due_from": "soon"}, {"limit": 501},
        {"group": "a b"}, {"where": "body=" + "x" * 2000}, {"id_prefix": "\n"}, *({"after": end} for end in ends),
    ]  # fmt: skip
    for query in queries:
        assert kind(await api.client.get(FIND, params=query)) == "invalid-input", query
    for as_shown in (
        "",
        "x",
        "0.short",
        "9.0123456789abcdef",
        "0.0123456789abcdef\n",
        "1" * 9001,
        "\u0660.0123456789abcdef",
    ):
        assert kind(await act(api, "cancel", [{"id": "a", "as_shown": as_shown}])) == "invalid-input", as_shown


async def test_what_is_not_there(api: Api) -> None:
    assert kind(await api.client.get(FIND)) == "unknown-topic"
    await api.put("a", delay="1h")
    assert kind(await api.client.get(FIND, params={"group": "none"})) == "unknown-group"
    (job,) = (await found(api))["jobs"]
    assert kind(await act(api, "kick", [job], group="none")) == "unknown-group"
    assert kind(await api.client.post("/v1/topics/none/find/cancel", json={"jobs": [job_in(job)]})) == "unknown-topic"


def job_in(job: dict[str, Any]) -> dict[str, Any]:
    return {"id": job["id"], "as_shown": job["as_shown"]}


async def test_large_bodies_end_an_answer(api: Api, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "_MOST_BYTES", 3000)
    queue.enqueue_many("t", (NewJob("x" * 1000, id=f"j{n}", delay="1h") for n in range(6)))
    answer = await found(api)
    bodies = [job["body"] for job in answer["jobs"]]
    assert 0 < bodies.count(None) < len(bodies) <= 6
    assert all("large" in job["body_unreadable"] for job in answer["jobs"] if job["body"] is None)


async def test_a_search_ends_in_time_and_goes_on(api: Api, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "_LONGEST_S", -1.0)
    queue.enqueue("t", 1, id="a", delay="1h")
    answer = await found(api)
    assert (answer["jobs"], answer["looked"]) == ([], 0)
    assert answer["next"] is not None


async def test_only_what_is_as_it_was_shown_is_cancelled(api: Api, queue: Queue) -> None:
    queue.enqueue_many("t", (NewJob(n, id=f"j{n}", delay="1h") for n in range(4)))
    jobs = (await found(api))["jobs"]
    queue.reschedule("t", "j1", delay="2h")
    queue.cancel("t", "j2")
    answer = (await act(api, "cancel", jobs)).json()
    assert {name: answer[name] for name in ("done", "changed", "gone", "refused")} == {
        "done": 2, "changed": 1, "gone": 1, "refused": 0,
    }  # fmt: skip
    assert {one["id"]: one["outcome"] for one in answer["jobs"]} == {
        "j0": "done", "j1": "changed", "j2": "gone", "j3": "done",
    }  # fmt: skip
    assert [one["id"] for one in answer["jobs"]] == [job["id"] for job in jobs]
    assert [job["id"] for job in (await found(api))["jobs"]] == ["j1"]


async def test_rescheduling(api: Api, queue: Queue) -> None:
    before = queue.enqueue("t", 1, id="a", delay="1h")
    jobs = (await found(api))["jobs"]
    for when in ({}, {"delay": "2h", "at": 1900000000000}, {"at": "soon"}):
        assert kind(await act(api, "reschedule", jobs, **when)) == "invalid-input"
    assert (await act(api, "reschedule", jobs, delay="3h")).json()["done"] == 1
    after = queue.get("t", "a")
    assert after is not None
    assert after.due_ms > before.due_ms
    assert (await act(api, "reschedule", jobs, at=1900000000000)).json()["changed"] == 1


async def test_dead_jobs_are_kicked_and_purged(api: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue_many("t", (NewJob(n, id=f"j{n}") for n in range(4)))
    await work(redis_server, error="boom")
    queue.enqueue("t", 1, id="waits", delay="1h")
    jobs = {job["id"]: job for job in (await found(api))["jobs"]}
    kicked = (await act(api, "kick", [jobs["j0"], jobs["waits"]], group="default")).json()
    assert (kicked["done"], kicked["refused"]) == (1, 1)
    purged = (await act(api, "purge", [jobs["j0"], jobs["j1"]])).json()
    assert [one["outcome"] for one in purged["jobs"]] == ["changed", "done"]
    assert (await act(api, "purge", [jobs["j1"]])).json()["gone"] == 1
    assert queue.audit().balanced


async def test_what_is_made_up_is_left_alone(api: Api) -> None:
    await api.put("a", delay="1h")
    made_up = [{"id": "a", "as_shown": "0.0123456789abcdef"}, {"id": "b", "as_shown": "0.0123456789abcdef"}]
    answer = (await act(api, "cancel", made_up)).json()
    assert (answer["changed"], answer["gone"], answer["done"]) == (1, 1, 0)
    assert kind(await act(api, "cancel", [made_up[0], made_up[0]])) == "invalid-input"
    assert kind(await act(api, "cancel", [])) == "invalid-input"


async def test_a_search_ends_with_its_caller(open_api: Open, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that runs, and the one that waits for its turn."""
    queue.enqueue("t", 1, id="a", delay="1h")
    api = await open_api(http=HttpSettings(max_searches=1))
    do, gone, begun, asked = api.app.state.streamdq.do, asyncio.Event(), 0, 0

    async def hanging(_: object, operation: Any) -> Any:
        nonlocal begun
        if operation.__name__ == "next_page" and not gone.is_set():
            begun += 1
            await asyncio.Event().wait()
        return await do(operation)

    async def receive() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        pass

    scope = {
        "type": "http", "method": "GET", "path": FIND, "query_string": b"", "headers": [(b"host", b"localhost")],
        "root_path": "", "scheme": "http", "http_version": "1.1", "server": ("localhost", 80),
        "client": ("localhost", 1), "asgi": {"version": "3.0"},
    }  # fmt: skip
    monkeypatch.setattr(Backend, "do", hanging)
    leaving = [asyncio.create_task(api.app(scope, receive, send)) for _ in range(2)]
    await eventually(lambda: (begun, asked) == (1, 2), "one searches, one waits")
    gone.set()
    await asyncio.wait_for(asyncio.gather(*leaving), HANG_S)
    assert begun == 1
    assert (await api.client.get(FIND)).status_code == 200


async def test_only_a_few_search_at_a_time(open_api: Open, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for their turn, and not for ever."""
    queue.enqueue("t", 1, id="a", delay="1h")
    api = await open_api(http=HttpSettings(max_searches=2))
    under_way = most = 0
    goes_on = asyncio.Event()

    async def held() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await goes_on.wait()
        under_way -= 1

    do = api.app.state.streamdq.do

    async def slow(_: object, operation: Any) -> Any:
        found = await do(operation)
        if getattr(operation, "__name__", "") == "next_page":
            await held()
        return found

    monkeypatch.setattr(Backend, "do", slow)
    searches = [asyncio.create_task(api.client.get(FIND)) for _ in range(6)]
    await eventually(lambda: under_way == 2, "two search")
    monkeypatch.setattr("streamdq.http.backend._LONGEST_TURN_S", 0.0)
    for path in (FIND, "/v1/audit"):
        refused = await api.client.get(path)
        assert (refused.status_code, kind(refused)) == (503, "too-busy")
        assert int(refused.headers["retry-after"]) >= 1
    assert (await api.client.get("/v1/stats")).status_code == 200
    goes_on.set()
    assert [answer.status_code for answer in await asyncio.gather(*searches)] == [200] * 6
    assert most == 2
