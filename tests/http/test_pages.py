"""The web page: what it shows, to whom, and that looking at many jobs costs as little as looking at few."""

from __future__ import annotations

import asyncio
import html
import re
from typing import Any

import httpx
import pytest

from streamdq import NewJob, Queue, Snooze, Worker
from streamdq.config import Settings
from streamdq.http.pages.overview import MAX_SHARDS
from streamdq.keys import NamespaceKeys
from streamdq.link.session import run
from tests.http.conftest import Open
from tests.http.harness import NAMESPACE, Api
from tests.http.site import EVIL, FORM, post, see, work
from tests.servers import Server, script_calls
from tests.turns import others_later
from tests.waiting import HANG_S, eventually


async def test_the_topics_in_short(site: Api, queue: Queue, redis_server: Server) -> None:
    assert "No topics yet" in await see(site, "/")
    queue.enqueue_many("order.close", (NewJob(n, delay=60 * n + 30) for n in range(12)))
    queue.enqueue("notify", 1)
    await work(redis_server, topic="notify", error="boom")
    page = await see(site, "/")
    assert '<a href="/topics/order.close">order.close</a>' in page
    assert re.search(r'data-label="delayed">12<', page)
    assert re.search(r'tile dead some"[^>]*>\s*<span class="tile-value">1<', page)
    assert re.search(r"p50 \d", page)  # on a busy machine it may be seconds
    assert "<b>12</b> due within 1h" in page
    assert page.count('class="bar"') == 6  # two a bar
    assert "<b>10</b> due within 10m" in await see(site, "/?horizon=10m")
    assert "order.close" not in await see(site, "/?q=NOTI")
    assert "No topic matches" in await see(site, "/?q=none")
    await see(site, "/?horizon=2y", 422)


def due_and_planned(page: str) -> tuple[str, ...]:
    return tuple(re.findall(r"(?:at least )?<b>[\d,]+</b> (?:due within \w+|planned by schedules)", page))


async def test_the_coming_load_has_what_schedules_will_add(site: Api, queue: Queue) -> None:
    queue.configure("plain", create=True)
    assert "Nothing comes due within 1h." in await see(site, "/")
    queue.schedule("report.send", id="often", every="10m")
    queue.schedule("report.send", id="paused", every="1m")
    queue.pause_schedule("report.send", "paused")
    for path in ("/", "/topics/report.send"):
        page = await see(site, path)
        assert due_and_planned(page) == ("<b>0</b> due within 1h", "<b>6</b> planned by schedules")
        assert page.count('class="planned"') == 1 + 6  # beside the number, and in the chart
        assert 'class="bar"' not in page
        assert "0, and 1 planned</title>" in page
    assert "planned" not in await see(site, "/topics/plain")
    assert due_and_planned(await see(site, "/?horizon=1d"))[1] == "<b>144</b> planned by schedules"

    queue.enqueue("report.send", 1, delay="65s", id="alone")
    page = await see(site, "/")
    assert due_and_planned(page) == ("<b>1</b> due within 1h", "<b>6</b> planned by schedules")
    assert page.count('class="bar"') == 1


async def test_a_job_of_a_schedule_is_planned_until_it_is_enqueued(
    site: Api, queue: Queue, redis_server: Server
) -> None:
    queue.schedule("t", every="10m")
    scripts, first = queue._store.scripts, queue._store.session.keys.shard("t", 0)
    with redis_server.client() as client:
        client.zadd(first.ticks, {"default": 0})  # a mover looks at it now, instead of ten seconds before it is due
    fired = run(queue._link, scripts.fire(first, 1, 10, late_ms=30_000, again_ms=1_000, ahead_ms=900_000))
    assert len(fired.jobs) == 1
    page = await see(site, "/")
    assert due_and_planned(page) == ("<b>1</b> due within 1h", "<b>5</b> planned by schedules")


async def test_a_schedule_in_a_time_zone_that_only_other_hosts_know_is_left_out(
    site: Api, queue: Queue, redis_server: Server
) -> None:
    queue.schedule("t", id="known", every="10m")
    queue.schedule("t", id="unknown", cron="* * * * *", tz="Europe/Paris")
    key = queue._store.session.keys.shard("t", 0).schedules
    with redis_server.client() as client:
        record = client.hget(key, "unknown")
        assert isinstance(record, bytes)
        client.hset(key, "unknown", record.replace(b"Europe/Paris", b"Europe/Newer"))
    for path in ("/", "/topics/t"):
        assert due_and_planned(await see(site, path))[1] == "at least <b>6</b> planned by schedules"


async def test_without_a_mover_it_says_so(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue("t", 1, delay="10ms")
    with redis_server.client() as client:
        await eventually(lambda: overdue(queue), "the job is due")
        for path in ("/", "/topics/t"):
            assert "No mover is active" in await see(site, path)
        client.set(NamespaceKeys(NAMESPACE).mover, "someone", px=600_000)
        assert "No mover is active" not in await see(site, "/")


def overdue(queue: Queue) -> bool:
    return queue.stats("t").topics["t"].overdue_ms > 0


def listed_topics(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="/topics/([^"]*)"', page)


async def all_topics(site: Api) -> list[str]:
    """The topics of the page and all that follow."""
    names: list[str] = []
    path = "/"
    while path:
        page = await see(site, path)
        names += listed_topics(page)
        more = re.search(r'href="([^"]*)">More topics', page)
        path = html.unescape(more[1]) if more else ""
    return names


async def test_topics_in_trouble_come_first_and_no_page_shows_one_twice(site: Api, queue: Queue) -> None:
    for n in range(5):
        queue.configure(f"t{n}", shards=MAX_SHARDS // 2)
    queue.enqueue("t1", 1, delay="1h")
    queue.enqueue("t3", 1)
    claim = queue.take("t3", timeout=60)
    assert claim
    claim.bury("no")
    queue.enqueue("t4", 1)
    claim = queue.take("t4", timeout=60)  # it has a consumer
    page = await see(site, "/")
    assert listed_topics(page) == ["t3", "t0"]
    assert await all_topics(site) == ["t3", "t0", "t1", "t2", "t4"]
    assert re.search(r'tile delayed some"[^>]*>\s*<span class="tile-value">1<', page), "of all topics, also not shown"
    assert re.search(r"Of all 5 topics, as of \d+ s ago", page)
    assert "Of all 5 topics" in await see(site, "/?q=t2")
    assert claim
    claim.finish()


@pytest.mark.thorough
async def test_all_topics_are_read_once_for_all_who_look(
    site: Api, queue: Queue, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every ten seconds, not with each look. And without figures that are recent enough, there is no order by them."""
    for n in range(MAX_SHARDS + 100):
        queue.configure(f"t{n}", create=True)
    await see(site, "/")
    with redis_server.client() as client:
        client.config_resetstat()
        for _ in range(3):
            assert "Of all" in await see(site, "/")
        scripts = script_calls(client)
    assert scripts == 3 * MAX_SHARDS
    monkeypatch.setattr("streamdq.http.topic_cache.OLDEST_S", 0.0)
    assert "Of the topics shown" in await see(site, "/")


def shown(page: str, topic: str = "t") -> list[str]:
    return re.findall(rf'<a href="/topics/{topic}/jobs/([^"]*)"', page)


async def walk(site: Api, path: str) -> list[str]:
    """The ids on the page and all that follow."""
    ids: list[str] = []
    while True:
        page = await see(site, path)
        ids += shown(page)
        more = re.search(r'href="([^"]*)" rel="next"', page)
        if more is None:
            return ids
        path = html.unescape(more[1])


@pytest.mark.parametrize("shards", others_later([1, 3], 3))
async def test_jobs_by_state_a_page_at_a_time(site: Api, queue: Queue, shards: int) -> None:
    queue.configure("t", shards=shards, ttr="1h")
    # Many are due in one millisecond: a page may end anywhere among them.
    delayed = [f"d{n:03}" for n in range(130)]
    queue.enqueue_many("t", (NewJob(1, id=id, at=1_900_000_000_000 + int(id[1:]) // 60) for id in delayed))
    found = await walk(site, "/topics/t")
    assert sorted(found) == delayed
    assert [int(id[1:]) // 60 for id in found] == sorted(int(id[1:]) // 60 for id in found)
    queue.enqueue_many("t", (NewJob(1, id=f"r{n:03}") for n in range(120)))
    assert sorted(await walk(site, "/topics/t?state=ready")) == [f"r{n:03}" for n in range(120)]
    claims = [queue.take("t", timeout=60) for _ in range(60)]
    taken = sorted(claim.job.id for claim in claims if claim)
    assert sorted(await walk(site, "/topics/t?state=running")) == taken
    assert len(taken) == 60
    left = await walk(site, "/topics/t?state=ready")
    assert sorted(left + taken) == [f"r{n:03}" for n in range(120)]
    for claim in claims:
        assert claim
        claim.bury("why not")
    assert sorted(await walk(site, "/topics/t?state=dead")) == taken
    assert await walk(site, "/topics/t?state=running") == []
    queue.kick("t", taken[0])
    assert sorted(await walk(site, "/topics/t?state=ready")) == sorted([*left, taken[0]])


async def test_jobs_that_were_snoozed_are_listed_in_every_state(site: Api, queue: Queue) -> None:
    queue.enqueue("t", 1, id="j")
    snoozed = queue.take("t", timeout=60)
    assert snoozed
    snoozed.fail(Snooze("1h"))
    assert await walk(site, "/topics/t?state=delayed") == ["j"]
    queue.reschedule("t", "j", delay=0)
    claim = queue.take("t", timeout=60)
    assert claim
    assert await walk(site, "/topics/t?state=running") == ["j"]
    claim.bury("why not")
    assert await walk(site, "/topics/t?state=dead") == ["j"]


async def test_a_group_s_own_retries(site: Api, queue: Queue) -> None:
    queue.configure("t", groups=["default", "audit"])
    queue.enqueue("t", 1, id="a", retry="1h")
    claim = queue.take("t", "audit", timeout=60)
    assert claim
    claim.fail(f"ValueError: {EVIL}")
    page = await see(site, "/topics/t?group=audit")
    assert "attempt 2 of audit" in page
    assert "ValueError: &lt;script&gt;" in page
    assert shown(await see(site, "/topics/t?state=ready")) == ["a"]
    assert shown(await see(site, "/topics/t?state=ready&group=audit")) == []


@pytest.mark.parametrize(
    ("query", "status"),
    [("state=done", 422), ("state=x", 422), ("group=none", 404), ("from=1.2.3", 422), ("from=x", 422),
     ("state=ready&from=x", 422), ("state=ready&from=1-1.x", 422), ("state=ready&from=1-٣.0", 422),
     ("state=running&from=1_0-1.0", 422), ("state=running&from=1-1.٣", 422), ("state=ready&from=-1-1.0", 422),
     ("from=99999999", 200), ("horizon=x", 422)],
)  # fmt: skip
async def test_addresses_that_no_page_has(site: Api, queue: Queue, query: str, status: int) -> None:
    queue.enqueue("t", 1)
    await see(site, f"/topics/t?{query}", status)


async def test_what_is_not_there(site: Api, queue: Queue) -> None:
    queue.enqueue("t", 1)
    assert "No such topic" in await see(site, "/topics/none", 404)
    assert "No such job" in await see(site, "/topics/t/jobs/none", 404)
    await see(site, "/topics/t/jobs/%0a", 422)
    assert (await site.client.get("/topics/t/find?id=a%2Fb")).headers["location"] == "/topics/t/jobs/a%2Fb"
    assert (await site.client.get("/topics/t/find?id=")).headers["location"] == "/topics/t"


async def test_one_job_s_story(site: Api, queue: Queue, redis_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.http.pages.timeline.ON_TIME_MS", 60_000)  # however busy the machine
    queue.enqueue("t", {"order": 7}, id="a/b", retry="0", url="https://m.example/p")
    first = queue.take("t", timeout=60)
    assert first
    first.fail(KeyError("gone"))
    page = await see(site, "/topics/t/jobs/a%2Fb")
    assert "On time: it started" in page
    assert "failed, another follows" in page
    assert "KeyError" in page
    assert "Attempt 2 to come" in page
    second = queue.take("t", timeout=60)
    assert second
    page = await see(site, "/topics/t/jobs/a%2Fb")
    assert re.search(r"Attempt 2</b>.*?running", page, re.DOTALL)
    assert "&#34;order&#34;: 7" in page
    second.bury("never")
    assert queue.kick("t", "a/b") == 1
    page = await see(site, "/topics/t/jobs/a%2Fb")
    assert ("Kicked" in page, "buried" in page) == (True, True)
    await work(redis_server)
    page = await see(site, "/topics/t/jobs/a%2Fb")
    assert "The job has ended" in page
    assert page.count('class="gantt"') == 3
    assert "Reschedule" not in page


async def test_what_became_of_a_job_with_a_key_is_found_after_its_end(site: Api, queue: Queue) -> None:
    """Its shard is that of its key, which nobody knows any more; and the topic may have fewer shards now."""
    queue.configure("t", shards=4, key_concurrency=1)
    ids = [f"j{n}" for n in range(8)]
    for id in ids:
        queue.enqueue("t", id=id, key=f"key of {id}")
    for _ in ids:
        with queue.take("t", timeout="60s") as claim:
            assert claim
    for shards in (4, 1):
        queue.configure("t", shards=shards)
        for id in ids:
            assert "No such job" not in await see(site, f"/topics/t/jobs/{id}")
            found = (await site.client.get(site.job("t", id) + "/history")).json()
            assert ([event["event"] for event in found["events"]], found["complete"]) == (["done"], True)


async def test_what_others_wrote_is_text(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue(EVIL.replace(" ", ""), {"a": EVIL}, id=EVIL)
    await work(redis_server, topic=EVIL, error=EVIL)
    topic = "%3Cscript%3Ealert('x')%3C%2Fscript%3E"
    for path in (
        "/",
        f"/topics/{topic}?state=dead",
        f"/topics/{topic}/jobs/{topic}",
        f"/topics/{topic}/search?where=",
        f"/?q={topic}",
    ):
        page = await see(site, path)
        assert "<script>alert" not in page, path
        assert "&lt;script&gt;alert" in page, path
    queue.enqueue("t", 1, delay="1h")
    assert "alert" not in await see(site, f"/topics/t?did=kicked&n={topic}")
    assert "alert" not in await see(site, f"/topics/t?did={topic}&n=1")


async def test_without_redis_the_page_says_so(open_api: Open, redis_server: Server) -> None:
    site = await open_api(settings=Settings(call_timeout_s=0.2, url="memory://unused"))
    await site.client.get("/")
    redis_server.stop()
    page = await see(site, "/", 503)
    assert "Redis does not answer" in page
    assert "data-reload" in page
    sent = await post(site, "/topics/t/pause")
    assert sent.status_code == 503
    assert "data-reload" not in sent.text, "a form is not sent again by itself"
    redis_server.start()
    for _ in range(int(HANG_S / 0.05)):  # a busy machine may need longer than the page waits, for all or a part of it
        if "No topics yet" in (response := await site.client.get("/")).text:
            break
        await asyncio.sleep(0.05)
    assert "No topics yet" in response.text


async def test_mounted_its_links_stay_inside(redis_server: Server, queue: Queue) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from streamdq.http import create_app

    queue.enqueue("t", 1, id="a", delay="1h")
    app = create_app(redis_server.url, NAMESPACE, authentication="mine")
    host = Starlette(routes=[Mount("/queue", app=app)])
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=host), base_url="http://localhost") as client,
    ):
        for path in ("/queue/", "/queue/topics/t", "/queue/topics/t/jobs/a"):
            page = (await client.get(path)).text
            links = re.findall(r'(?:href|src|action)="(/[^"]*)"', page)
            assert len(links) > 4
            assert all(link.startswith("/queue/") for link in links), links
        assert (await client.get("/queue/static/app.css")).status_code == 200
        done = await client.post("/queue/topics/t/jobs/a/cancel", headers=FORM)
        assert done.headers["location"].startswith("/queue/topics/t?did=cancelled")


async def test_a_job_has_the_ttr_and_retries_of_its_groups(site: Api, queue: Queue, redis_server: Server) -> None:
    worker = Worker(redis_server.url, NAMESPACE, group="audit", settings=Settings(url="memory://unused"))
    worker.handler("t", ttr="5m", retry="7s")(print)
    await worker.serve(burst=True)
    queue.configure("t", ttr="30s", retry="1s 2s")
    queue.enqueue("t", 1, id="plain", delay="1h")
    queue.enqueue("t", 1, id="own", delay="1h", ttr="3s", retry="none")

    plain, own = await see(site, "/topics/t/jobs/plain"), await see(site, "/topics/t/jobs/own")

    for name, value in {"TTR": "5m audit; 30s default", "retry": "7s audit; 1s 2s default"}.items():
        assert fact(plain, name) == value
    assert (fact(own, "TTR"), fact(own, "retry")) == ("3s", "none")


def fact(page: str, name: str) -> str:
    (cell,) = re.findall(rf"<dt>{name}</dt><dd>(.*?)</dd>", page)
    return re.sub(r"<[^>]*>", "", cell)


# -- what it costs


@pytest.mark.thorough
async def test_no_page_asks_for_more_with_more_jobs(
    site: Api, queue: Queue, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands and the size of their replies, with 150 jobs in every state and with seven times as many."""
    monkeypatch.setattr(
        "streamdq.operations.history.job_history.LOOKBACK_ROWS", 100
    )  # so much is looked through anyway
    monkeypatch.setattr("streamdq.operations.history.job_history._PAGE", 50)
    paths = [f"/topics/t?state={state}" for state in ("delayed", "ready", "running", "dead")]
    paths += ["/", "/?horizon=1w", "/topics/t/jobs/r1", "/topics/t/jobs/d1"]
    queue.configure("t", ttr="1h")
    seen: list[dict[str, tuple[int, int]]] = []
    with redis_server.client() as client:
        for start, count in ((0, 150), (150, 900)):
            fill(queue, start, count)
            seen.append({path: await cost(site, path, client) for path in paths})
    for path in paths:
        few, many = seen[0][path], seen[1][path]
        # The queue's own mover works on beside it.
        assert many[0] <= few[0] * 1.2 + 60, (path, few, many)
        assert many[1] <= few[1] * 1.2 + 20_000, (path, few, many)
    assert len(paths) == len(seen[0])


async def cost(site: Api, path: str, client: Any) -> tuple[int, int]:
    """How many commands a page takes, and how many bytes Redis sends for it. None of them walks through all keys."""
    await see(site, path)  # scripts are loaded, topics known, and new rows of the history read, which is done once
    while reading := list(site.app.state.streamdq.recent._tasks.values()):
        await asyncio.wait(reading)
    client.config_resetstat()
    before = client.info("stats")["total_net_output_bytes"]
    await see(site, path)
    sent = client.info("stats")["total_net_output_bytes"] - before
    used = client.info("commandstats")
    assert used.keys().isdisjoint({f"cmdstat_{name}" for name in ("keys", "hkeys", "hvals", "scan", "hscan", "zscan")})
    return sum(one["calls"] for one in used.values()), sent


def fill(queue: Queue, start: int, count: int) -> None:
    """So many more jobs in each state; the dead and the running ones by claims."""
    ids = range(start, start + count)
    queue.enqueue_many("t", (NewJob(1, id=f"x{n}") for n in ids))
    for n in ids:
        claim = queue.take("t", timeout=60)
        assert claim
        if n % 2:
            claim.bury("boom")
    queue.enqueue_many("t", (NewJob(1, id=f"r{n}") for n in ids))
    queue.enqueue_many("t", (NewJob(1, id=f"d{n}", delay="1h") for n in ids))


async def test_jobs_that_wait_for_others(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue("t", 1, id="p")
    await work(redis_server, error="boom")
    queue.enqueue("t", 1, id="q", delay="1h")
    queue.enqueue("t", 2, id="waits", after=("t", "q"))
    page = await see(site, "/topics/t/jobs/waits")
    assert re.search(r"Waits for 1 job\s*</h2>", page)
    assert "Reschedule" not in page
    assert '<a href="/topics/t/search?state=waiting">1 waits for other jobs</a>' in await see(site, "/topics/t")
    queue.enqueue("t", 3, id="blocked", after=("t", "p"))
    topic = await see(site, "/topics/t")
    assert '<a href="/topics/t/search?state=waiting">2 wait for other jobs</a>' in topic
    assert 'href="/topics/t/search?state=blocked"' in topic
    assert '<span class="badge waiting">other jobs</span>' in topic
    assert "2286" not in topic
    found = await see(site, "/topics/t/search?state=blocked")
    assert 'href="/topics/t/jobs/blocked"' in found
    assert "2286" not in found
    page = await see(site, "/topics/t/jobs/blocked")
    assert '<span class="badge dead">blocked</span>' in page
    assert 'href="/topics/t/jobs/p"' in page
    assert 'href="/topics/t/jobs/blocked"' in await see(site, "/topics/t/jobs/p")


async def test_the_keys_that_jobs_wait_for(site: Api, queue: Queue) -> None:
    queue.configure("t", key_order=True)
    queue.enqueue("t", 1, key="<b>")
    assert "1 of a key at once, in order" in await see(site, "/topics/t")
    assert "keys-title" not in await see(site, "/topics/t")
    queue.enqueue_many("t", [NewJob(1, key="<b>") for _ in range(3)])
    shown = await see(site, "/topics/t")
    assert "&lt;b&gt;" in shown
    assert "3 jobs wait for a place of their keys" in shown


async def test_what_another_client_put_into_the_streams_breaks_no_page(
    site: Api, queue: Queue, redis_server: Server
) -> None:
    queue.enqueue("notify", 1, id="j")
    await work(redis_server, topic="notify", error="boom")
    queue.enqueue("notify", 1, id="k")
    shard = NamespaceKeys(NAMESPACE).shard("notify", 0)
    with redis_server.client() as client:
        for stream in (shard.ready, shard.ready_of("default"), shard.history):
            for junk in (b"", b"\x1f", b"\xff\x00", b"\x1fj\x1f\xff"):
                client.xadd(stream, {"j": junk})
    assert "notify" in await see(site, "/")
    assert "/jobs/k" in await see(site, "/topics/notify?state=ready")
    assert "boom" in await see(site, "/topics/notify/jobs/j")
