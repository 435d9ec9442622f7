"""What ran lately, for the charts: from the history, as far back as it is read, or from a Prometheus."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from streamdq import NewJob, Queue
from streamdq.config import HttpSettings, Settings
from streamdq.http.activity import Activity, Recent
from streamdq.keys import NamespaceKeys
from streamdq.store import namespace
from tests.http.conftest import Open
from tests.http.harness import NAMESPACE, Api
from tests.http.site import see, work
from tests.servers import Server

SHARD = NamespaceKeys(NAMESPACE).shard("t", 0)


async def recent(site: Api, *, steps: int = 60, step_ms: int = 60_000, now_ms: int | None = None) -> Activity:
    """As the page has it, once the history was read."""
    backend = site.app.state.streamdq
    found: Recent = backend.recent
    store = await backend.store()
    await backend.do(store.topics.registry())
    now_ms = now_ms or await backend.do(namespace.now_ms(store.session))
    shards = store.topics.all_shards("t")
    await found.of(shards, lambda _: True, now_ms, step_ms, steps)
    while tasks := list(found._tasks.values()):
        await asyncio.wait(tasks)
    return await found.of(shards, lambda _: True, now_ms, step_ms, steps)


async def test_done_failed_and_how_late(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue_many("t", [NewJob(n) for n in range(7)])
    await work(redis_server)
    queue.enqueue_many("t", [NewJob(n) for n in range(3)])
    await work(redis_server, error="boom")
    found = await recent(site)
    assert (found.done, found.failed, found.since_ms) == (7, 3, None)
    assert len(found.rows) == 60
    assert found.rows[0].done == 0
    assert 0 <= max(row.p50_ms or 0 for row in found.rows) < 60_000
    queue.enqueue("t", 1)
    await work(redis_server)
    assert (await recent(site)).done == 8, "what is new is read, too"
    page = await see(site, "/")
    assert 'aria-label="8 attempts done, 3 failed"' in page
    assert re.search(r'<rect class="done"', page)
    assert re.search(r'<rect class="failed"', page)
    assert re.search(r'<path class="p99" d="M', page)
    assert 'aria-label="8 attempts done, 3 failed"' in await see(site, "/topics/t?past=1d")
    await see(site, "/?past=1y", 422)


async def test_the_percentiles_are_those_of_the_rows(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.configure("t", create=True)
    base = 1_900_000_000_000
    with redis_server.client() as client:
        for n in range(100):
            row = (
                "done",
                f"j{n}",
                "default",
                1,
                0,
                "c",
                base,
                base,
                base,
                base + 10 * (n + 1),
                "",
                "",
                1,
                "",
                base + 5000,
            )
            client.xadd(SHARD.history, {"e": "\x1f".join(map(str, row))}, id=f"{base + 5000}-{n}")
    found = await recent(site, now_ms=base + 60_000)
    (shown,) = [one for one in found.rows if one.done]
    assert shown.done == 100
    assert shown.p50_ms == pytest.approx(500, rel=0.05)
    assert shown.p99_ms == pytest.approx(990, rel=0.05)


async def test_it_goes_back_a_number_of_rows_and_says_from_when_on_it_knows(
    site: Api, queue: Queue, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.http.activity.MOST_ROWS", 1000)
    queue.configure("t", create=True)
    base = 1_900_000_000_000 // 60_000 * 60_000
    with redis_server.client() as client, client.pipeline() as pipe:
        for n in range(3000):
            at = base + n * 1000  # fifty minutes
            row = ("done", f"j{n}", "default", 1, 0, "c", at, at, at, at, "", "", 1, "", at)
            pipe.xadd(SHARD.history, {"e": "\x1f".join(map(str, row))}, id=f"{at}-0")
        pipe.hset(SHARD.settings, "history_since", f"{base}-0")
        pipe.execute()
    found = await recent(site, now_ms=base + 3_000_000)
    assert found.since_ms == base + 34 * 60_000, "the first whole minute of the last thousand seconds"
    assert all(row.done == 60 for row in found.rows if row.done and row.start_ms < base + 3_000_000)
    monkeypatch.setattr("streamdq.http.activity.MOST_ROWS", 10_000)
    assert (await recent(site, now_ms=base + 3_000_000)).since_ms is None
    assert (await recent(site, now_ms=base + 3_000_000)).done == 3000


async def test_so_many_minutes_are_remembered(
    site: Api, queue: Queue, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.http.activity._MINUTES", 20)
    queue.configure("t", create=True)
    base = 1_900_000_020_000  # a full minute
    with redis_server.client() as client:
        for n in range(30):
            at = base + n * 60_000
            row = ("done", f"j{n}", "default", 1, 0, "c", at, at, at, at, "", "", 1, "", at)
            client.xadd(SHARD.history, {"e": "\x1f".join(map(str, row))}, id=f"{at}-0")
    found = await recent(site, now_ms=base + 30 * 60_000)
    assert (found.done, found.since_ms) == (14, base + 16 * 60_000), "of 30 minutes, the older half went"
    again = await recent(site, now_ms=base + 30 * 60_000)
    assert (again.done, again.since_ms) == (14, base + 16 * 60_000), "and is not read again"


async def test_rows_that_were_trimmed_are_not_taken_for_none(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue_many("t", [NewJob(n) for n in range(3)])
    await work(redis_server)
    with redis_server.client() as client:
        oldest = client.xrange(SHARD.history)[0][0]
        client.xdel(SHARD.history, oldest)
    found = await recent(site)
    assert found.since_ms is not None
    assert found.rows[0].done is None
    assert 'class="unknown"' in await see(site, "/topics/t")


async def test_without_a_history_there_are_no_charts(open_api: Open, queue: Queue) -> None:
    site = await open_api(settings=Settings(url="memory://unused", history_length=0))
    queue.enqueue("t", 1)
    assert "past-title" not in await see(site, "/topics/t")


async def test_another_group_is_not_counted(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.configure("t", groups=["default", "audit"], create=True)
    queue.enqueue("t", 1)
    await work(redis_server)
    await recent(site)
    assert 'aria-label="1 attempts done, 0 failed"' in await see(site, "/topics/t?group=default")
    assert 'aria-label="0 attempts done, 0 failed"' in await see(site, "/topics/t?group=audit")


# -- Prometheus


class Fake:
    """Answers like a Prometheus. ``queries``: what it was asked."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.status = 200
        self.text = ""  # in place of an answer
        self.hangs = False  # only the first query is answered
        self.over = asyncio.Event()
        self.values: dict[str, str] = {'outcome=~"done"': "60", 'outcome=~"retry|dead"': "5", "reclaimed": "1",
                                       "(0.5,": "0.02", "(0.99,": "1.5"}  # fmt: skip

    async def answer(self, request: web.Request) -> web.Response:
        query = request.query["query"]
        self.queries.append(query)
        if self.hangs and len(self.queries) > 1:
            await self.over.wait()
        if self.text:
            return web.Response(text=self.text)
        start, end, step = (int(request.query[name]) for name in ("start", "end", "step"))
        value = next((value for part, value in self.values.items() if part in query), None)
        result = [] if value is None else [{"values": [[at, value] for at in range(start, end + 1, step)]}]
        return web.json_response(
            {"status": "success", "data": {"result": result}}, status=self.status, dumps=json.dumps
        )


@pytest.fixture
async def fake() -> AsyncIterator[tuple[Fake, str]]:
    one = Fake()
    app = web.Application()
    app.router.add_get("/prom/api/v1/query_range", one.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield one, f"http://127.0.0.1:{port}/prom/"
    one.over.set()
    await runner.cleanup()


async def reading_done(site: Api) -> None:
    while asking := list(site.app.state.streamdq.prometheus._asking.values()):
        await asyncio.wait(asking)


async def test_with_a_prometheus_the_figures_are_its(open_api: Open, fake: tuple[Fake, str], queue: Queue) -> None:
    site = await open_api(http=HttpSettings(prometheus_url=fake[1]))
    queue.enqueue('a"b', 1)
    await see(site, "/topics/a%22b")
    await reading_done(site)
    page = await see(site, "/topics/a%22b")
    assert "From Prometheus." in page
    assert 'aria-label="3,600 attempts done, 360 failed"' in page
    assert "p50 20ms, p99 1.5s" in page
    assert any('namespace="streamdq",topic="a\\"b",group="default"' in query for query in fake[0].queries)
    asked = len(fake[0].queries)
    await see(site, "/topics/a%22b")
    assert len(fake[0].queries) == asked, "it is not asked with each look"


@pytest.mark.parametrize("trouble", ["status", "unknown"])
async def test_without_its_answer_they_are_those_of_the_history(
    open_api: Open, fake: tuple[Fake, str], queue: Queue, redis_server: Server, trouble: str
) -> None:
    if trouble == "status":
        fake[0].status = 500
    else:
        fake[0].values.clear()
    site = await open_api(http=HttpSettings(prometheus_url=fake[1]))
    queue.enqueue("t", 1)
    await work(redis_server)
    await see(site, "/")
    await reading_done(site)
    await recent(site)
    page = await see(site, "/")
    assert "From the history" in page
    assert 'aria-label="1 attempts done, 0 failed"' in page


INFINITE = '{"data": {"result": [{"values": [[1e999, "1"]]}]}}'


@pytest.mark.parametrize("answer", ["", "[]", '"text"', INFINITE, '{"data": {"result": {"values": 1}}}', "[" * 100_000])
async def test_an_answer_that_makes_no_sense_is_none(
    open_api: Open, fake: tuple[Fake, str], queue: Queue, caplog: pytest.LogCaptureFixture, answer: str
) -> None:
    fake[0].text = answer or " "
    site = await open_api(http=HttpSettings(prometheus_url=fake[1]))
    queue.enqueue("t", 1)
    await see(site, "/")
    await reading_done(site)
    assert site.app.state.streamdq.prometheus.failed
    await recent(site)
    assert "From the history" in await see(site, "/")
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("value", ["1e308", "-1e308", "-5", "+Inf", "NaN"])
async def test_figures_that_nothing_can_have_are_left_out(
    open_api: Open, fake: tuple[Fake, str], queue: Queue, value: str
) -> None:
    fake[0].values = dict.fromkeys(fake[0].values, value)
    site = await open_api(http=HttpSettings(prometheus_url=fake[1]))
    queue.enqueue("t", 1)
    await see(site, "/topics/t")
    await reading_done(site)
    await recent(site)
    assert "From the history" in await see(site, "/topics/t")


async def test_when_a_query_fails_the_others_are_not_waited_for(
    open_api: Open, fake: tuple[Fake, str], queue: Queue
) -> None:
    fake[0].status = 500
    fake[0].hangs = True
    site = await open_api(http=HttpSettings(prometheus_url=fake[1]))
    queue.enqueue("t", 1)
    await see(site, "/")
    await reading_done(site)
    assert site.app.state.streamdq.prometheus.failed == "ClientResponseError"
    assert not [task for task in asyncio.all_tasks() if "Prometheus._range" in str(task.get_coro())]


def test_its_address_is_one() -> None:
    with pytest.raises(ValueError, match="begins neither"):
        HttpSettings(prometheus_url="localhost:9090")
