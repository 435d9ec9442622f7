"""A topic's events over HTTP, as server-sent events."""

from __future__ import annotations

import asyncio
import json
import os
from types import SimpleNamespace
from typing import Any

import pytest

from streamdq import Queue
from streamdq.errors import UnknownTopic
from streamdq.http import Tokens
from streamdq.http import followed as followed_pages
from streamdq.http.api import events
from streamdq.http.auth import Role, new_token
from streamdq.http.backend import Backend
from streamdq.http.followed import Pages
from streamdq.link.session import Op
from streamdq.operations.history.events import Following, following
from tests.http.conftest import Open
from tests.http.harness import Api, kind
from tests.http.live import Live
from tests.servers import Server
from tests.waiting import HANG_S, eventually, until


async def followed(api: Api, headers: dict[str, str] | None = None, **query: Any) -> list[dict[str, str]]:
    """What is there already: the fields of each event."""
    answer = await api.client.get("/v1/topics/t/events", params={"timeout": "0"} | query, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    parts = [part for part in answer.text.split("\n\n") if "\ndata: " in part]
    return [dict(line.split(": ", 1) for line in part.split("\n")) for part in parts]


async def cancelled(api: Api, *ids: str) -> None:
    for id in ids:
        await api.put(id, delay="1h")
        assert (await api.client.delete(api.job("t", id))).status_code == 204


async def test_rows_come_in_order_and_an_id_goes_on(api: Api) -> None:
    await cancelled(api, "a", "b", "c")
    assert await followed(api) == []
    found = await followed(api, since="-1h")
    assert [event["event"] for event in found] == ["cancelled"] * 3
    assert [json.loads(event["data"])["id"] for event in found] == ["a", "b", "c"]
    rest = await followed(api, since=found[0]["id"])
    assert rest == found[1:]
    assert await followed(api, {"Last-Event-ID": found[1]["id"]}, since=found[0]["id"]) == found[2:]


async def test_no_position_comes_before_its_event(api: Api) -> None:
    """A client that is cut off goes on there."""
    await cancelled(api, "a", "b")
    answer = await api.client.get("/v1/topics/t/events", params={"timeout": "0", "since": "-1h"})
    first = answer.text.partition("\n\n")[0]
    assert "\nevent: cancelled\n" in first
    assert '"id":"a"' in first


async def test_it_ends_though_there_are_more(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await cancelled(api, "a", "b")
    times = iter([0.0, 300.0])
    clock = SimpleNamespace(monotonic=lambda: next(times, 300.0))
    with monkeypatch.context() as patch:
        patch.setattr(events, "time", clock)
        found = await followed(api, since="-1h")
    assert [json.loads(event["data"])["id"] for event in found] == ["a"]
    (rest,) = await followed(api, since=found[0]["id"])
    assert json.loads(rest["data"])["id"] == "b"


async def test_a_page_is_read_once_for_all_who_wait_for_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.put("a", delay="1h")
    pages: Pages = api.app.state.streamdq.followed
    waits = 0

    def waited(found: Following, wait_s: float) -> Op[None]:
        nonlocal waits
        waits += 1
        return wait(found, wait_s)

    wait = Following._wait
    monkeypatch.setattr(Following, "_wait", waited)
    store = await api.app.state.streamdq.store()
    found = following(store, "t", None)
    await api.app.state.streamdq.do(found.begin())
    followers = [asyncio.create_task(pages.after("t", found.position, HANG_S)) for _ in range(20)]
    await cancelled(api, "b")
    first, *others = await asyncio.gather(*followers)
    assert [event.row.id for event in first] == ["b"]
    assert all(page is first for page in others)
    assert await pages.after("t", found.position, 0) is first, "also for those who come a little later"
    assert waits <= 1


async def test_of_the_pages_that_were_read_only_the_last_are_kept(api: Api) -> None:
    await api.put("a", delay="1h")
    pages: Pages = api.app.state.streamdq.followed
    store = await api.app.state.streamdq.store()
    found = following(store, "t", None)
    await api.app.state.streamdq.do(found.begin())
    position = found.position
    for n in range(30):
        await cancelled(api, f"b{n}")
        (event,) = await pages.after("t", position, HANG_S)
        position = event.position
    assert len(pages._pages) < 10


async def test_no_page_is_kept_for_long(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic may be deleted, and another one of its name begins at the same position."""
    monkeypatch.setattr(followed_pages, "_KEPT_S", 0)
    await cancelled(api, "a")
    pages: Pages = api.app.state.streamdq.followed
    (event,) = await pages.after("t", "0:0-0", HANG_S)
    assert event.row.id == "a"
    await eventually(lambda: not pages._pages, "it is forgotten")


async def test_nothing_is_kept_of_a_page_that_can_t_be_read(api: Api) -> None:
    pages: Pages = api.app.state.streamdq.followed
    for _ in range(2):
        with pytest.raises(UnknownTopic):
            await pages.after("nope", "0:0-0", HANG_S)
    assert pages._pages == {}


async def test_head_does_not_wait_for_events(api: Api) -> None:
    await api.put("a", delay="1h")
    answer = await api.client.head("/v1/topics/t/events")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert (await api.client.head("/v1/topics/nope/events")).status_code == 404
    assert api.app.state.streamdq.waits == 0


async def test_what_can_t_be_followed(api: Api) -> None:
    assert kind(await api.client.get("/v1/topics/nope/events")) == "unknown-topic"
    await api.put("a")
    for wrong in ({"since": "yesterday"}, {"timeout": "301s"}, {"timeout": "soon"}):
        assert kind(await api.client.get("/v1/topics/t/events", params=wrong)) == "invalid-input"
    api.app.state.streamdq.waits = api.app.state.streamdq.http.max_takes
    assert kind(await api.client.get("/v1/topics/t/events")) == "too-busy"
    assert api.app.state.streamdq.waits == api.app.state.streamdq.http.max_takes


async def test_no_more_follow_at_once_than_may_wait(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the first ones have no answer yet."""
    await api.put("a", delay="1h")
    backend, looks, goes_on = api.app.state.streamdq, asyncio.Event(), asyncio.Event()
    look = Backend.do

    async def held(self: Backend, operation: Any) -> Any:
        if not looks.is_set():
            looks.set()
            await goes_on.wait()
        return await look(self, operation)

    monkeypatch.setattr(Backend, "do", held)
    backend.waits = backend.http.max_takes - 1
    first = asyncio.create_task(followed(api))
    await looks.wait()
    assert kind(await api.client.get("/v1/topics/t/events", params={"timeout": "0"})) == "too-busy"
    goes_on.set()
    assert await first == []
    assert kind(await api.client.get("/v1/topics/nope/events")) == "unknown-topic"
    assert backend.waits == backend.http.max_takes - 1


async def test_a_token_of_a_group_sees_no_other_groups(open_api: Open, queue: Queue) -> None:
    queue.configure("t", groups=["default", "mail"], create=True)
    queue.enqueue("t", 1, id="a")
    for group in ("default", "mail"):
        claim = queue.take("t", group, timeout=HANG_S)
        assert claim
        claim.finish()
    token, line = new_token("clerk", [Role.VIEWER], groups="mail")
    api = await open_api(token, tokens=Tokens.parse(line), authentication="tokens")
    found = [json.loads(event["data"]) for event in await followed(api, since="-1h")]
    assert [(event["event"], event["group"]) for event in found] == [("done", "mail")]


def test_it_ends_with_the_server(redis_server: Server, queue: Queue) -> None:
    queue.enqueue("t", 1, id="a", delay="1h")
    follow = "/v1/topics/t/events"
    with Live(redis_server.url) as live, live.client() as client, client.stream("GET", follow) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("id: 0:")
        queue.cancel("t", "a")
        assert next(line for line in lines if line.startswith("event")) == "event: cancelled"
        assert live.stop() == 0
        assert not any(line.startswith("event") for line in lines)


def test_the_place_of_a_caller_that_has_left_is_free(redis_server: Server, queue: Queue) -> None:
    queue.configure("t", create=True)
    with Live(redis_server.url, env={**os.environ, "STREAMDQ_HTTP_MAX_TAKES": "1"}) as live, live.client() as client:
        with client.stream("GET", "/v1/topics/t/events") as stream:
            lines = stream.iter_lines()  # as long as it is there, the answer is read
            assert next(lines).startswith("id: 0:")
            assert client.get("/v1/topics/t/events", params={"timeout": "0"}).status_code == 503
        until(lambda: client.get("/v1/topics/t/events", params={"timeout": "0"}).status_code == 200, "it is free")
