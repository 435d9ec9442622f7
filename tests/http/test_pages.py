"""The web page: what it shows, to whom, and that looking at many jobs costs as little as looking at few."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from structlog.testing import capture_logs

from streamdq import Bury, NewJob, Queue, Snooze, Worker
from streamdq.config import Settings
from streamdq.http import Tokens
from streamdq.http.api.route import needs_of
from streamdq.http.auth import Role, new_token
from streamdq.http.pages import actions, pages
from streamdq.http.pages.overview import MAX_SHARDS
from streamdq.keys import NamespaceKeys
from tests.http.conftest import Open
from tests.http.harness import NAMESPACE, Api
from tests.redis.harness import eventually
from tests.servers import Server

EVIL = "<script>alert('x')</script>"
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://localhost"}
PRODUCER, VIEWER, ADMIN = (new_token(role.value, [role]) for role in (Role.PRODUCER, Role.VIEWER, Role.ADMIN))
TOKENS = Tokens.parse(";".join(line for _, line in (PRODUCER, VIEWER, ADMIN)))


@pytest.fixture
def queue(redis_server: Server) -> Iterator[Queue]:
    with Queue(redis_server.url, NAMESPACE) as opened:
        yield opened


@pytest.fixture
async def site(open_api: Open) -> Api:
    """Without tokens; a browser's client."""
    opened: Api = await open_api()
    opened.client.headers["Origin"] = "http://localhost"
    return opened


async def work(server: Server, *, error: str = "", topic: str = "t") -> None:
    """Runs all that is due; fails for good with ``error``, where there is one."""
    worker = Worker(server.url, NAMESPACE, settings=Settings(url="memory://unused"))

    @worker.handler(topic)
    async def handler(_: object) -> None:
        if error:
            raise Bury(error)

    await worker.serve(burst=True)


async def see(site: Api, path: str, status: int = 200) -> str:
    """The page as text; with all that keeps what it shows from becoming more than text."""
    response = await site.client.get(path)
    assert response.status_code == status, response.text
    check_headers(response)
    return response.text


def check_headers(response: httpx.Response) -> None:
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["x-frame-options"] == "DENY"
    if response.headers.get("content-type", "").startswith("text/html"):
        assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=|javascript:", response.text)


async def post(site: Api, path: str, headers: dict[str, str] | None = None, **form: Any) -> httpx.Response:
    return await site.client.post(path, data=form, headers=headers if headers is not None else FORM)


async def test_the_topics_at_a_glance(site: Api, queue: Queue, redis_server: Server) -> None:
    assert "No topics yet" in await see(site, "/")
    queue.enqueue_many("order.close", (NewJob(n, delay=60 * n + 30) for n in range(12)))
    queue.enqueue("notify", 1)
    await work(redis_server, topic="notify", error="boom")
    page = await see(site, "/")
    assert '<a href="/topics/order.close">order.close</a>' in page
    assert re.search(r'data-label="delayed">12<', page)
    assert re.search(r'tile dead some"[^>]*>\s*<span class="tile-value">1<', page)
    assert re.search(r"p50 \d+ms", page)
    assert "<b>12</b> due within 1h" in page
    assert page.count('class="bar"') == 6  # two a bar
    assert "<b>10</b> due within 10m" in await see(site, "/?horizon=10m")
    assert "order.close" not in await see(site, "/?q=NOTI")
    assert "No topic matches" in await see(site, "/?q=none")
    await see(site, "/?horizon=2y", 422)


async def test_without_a_mover_it_says_so(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue("t", 1, delay="10ms")
    with redis_server.client() as client:
        await eventually(lambda: overdue(queue), "the job is due")
        for path in ("/", "/topics/t"):
            assert "No mover is at work" in await see(site, path)
        client.set(NamespaceKeys(NAMESPACE).mover, "someone", px=5000)
        assert "No mover is at work" not in await see(site, "/")


def overdue(queue: Queue) -> bool:
    return queue.stats("t").topics["t"].overdue_ms > 0


async def test_many_topics_come_in_pages(site: Api, queue: Queue) -> None:
    for n in range(4):
        queue.configure(f"t{n}", shards=MAX_SHARDS // 2)
    first = await see(site, "/")
    assert ("/topics/t1" in first, "/topics/t2" in first) == (True, False)
    following = html.unescape(re.findall(r'href="([^"]*)">More topics', first)[0])
    second = await see(site, following)
    assert ("/topics/t1" in second, "/topics/t3" in second) == (False, True)
    assert "More topics" not in second


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


@pytest.mark.parametrize("shards", [1, 3])
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
    claims = [queue.take("t", timeout=5) for _ in range(60)]
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
    snoozed = queue.take("t", timeout=5)
    assert snoozed
    snoozed.fail(Snooze("1h"))
    assert await walk(site, "/topics/t?state=delayed") == ["j"]
    queue.reschedule("t", "j", delay=0)
    claim = queue.take("t", timeout=5)
    assert claim
    assert await walk(site, "/topics/t?state=running") == ["j"]
    claim.bury("why not")
    assert await walk(site, "/topics/t?state=dead") == ["j"]


async def test_a_group_s_own_retries(site: Api, queue: Queue) -> None:
    queue.configure("t", groups=["default", "audit"])
    queue.enqueue("t", 1, id="a", retry="1h")
    claim = queue.take("t", "audit", timeout=5)
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
     ("state=ready&from=x", 422), ("state=ready&from=1-1.x", 422), ("from=99999999", 200), ("horizon=x", 422)],
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


async def test_one_job_s_story(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue("t", {"order": 7}, id="a/b", retry="0", url="https://m.example/p")
    first = queue.take("t", timeout=5)
    assert first
    first.fail(KeyError("gone"))
    page = await see(site, "/topics/t/jobs/a%2Fb")
    assert "On time: it started" in page
    assert "failed, will be retried" in page
    assert "KeyError" in page
    assert "Attempt 2 to come" in page
    second = queue.take("t", timeout=5)
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
    assert "only the history has it" in page
    assert page.count('class="gantt"') == 3
    assert "Reschedule" not in page


async def test_what_others_wrote_is_text(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue(EVIL.replace(" ", ""), {"a": EVIL}, id=EVIL)
    await work(redis_server, topic=EVIL, error=EVIL)
    topic = "%3Cscript%3Ealert('x')%3C%2Fscript%3E"
    for path in ("/", f"/topics/{topic}?state=dead", f"/topics/{topic}/jobs/{topic}", f"/?q={topic}"):
        page = await see(site, path)
        assert "<script>alert" not in page, path
        assert "&lt;script&gt;alert" in page, path
    queue.enqueue("t", 1, delay="1h")
    assert "alert" not in await see(site, f"/topics/t?did=kicked&n={topic}")
    assert "alert" not in await see(site, f"/topics/t?did={topic}&n=1")


# -- what the buttons do


async def test_pause_and_resume(site: Api, queue: Queue) -> None:
    queue.enqueue("t", 1)
    done = await post(site, "/topics/t/pause")
    assert done.status_code == 303
    page = await see(site, done.headers["location"])
    assert "The topic is paused." in page
    assert 'action="/topics/t/resume"' in page
    assert queue.stats("t").topics["t"].paused
    await post(site, "/topics/t/resume")
    assert not queue.stats("t").topics["t"].paused


async def test_reschedule_and_cancel(site: Api, queue: Queue) -> None:
    before = queue.enqueue("t", 1, id="a", delay="1h").due_ms
    moved = await post(site, "/topics/t/jobs/a/reschedule", delay=" 3h ")
    assert "new due time" in await see(site, moved.headers["location"])
    job = queue.get("t", "a")
    assert job
    assert job.due_ms > before
    for delay in ("", "soon", "-1"):
        assert (await post(site, "/topics/t/jobs/a/reschedule", delay=delay)).status_code == 422
    done = await post(site, "/topics/t/jobs/a/cancel")
    assert "The job is cancelled." in await see(site, done.headers["location"])
    assert queue.get("t", "a") is None
    assert "Cancelled" in await see(site, "/topics/t/jobs/a")
    assert (await post(site, "/topics/t/jobs/a/cancel")).status_code == 409
    assert (await post(site, "/topics/t/jobs/a/reschedule", delay="1h")).status_code == 409


async def test_dead_letters_are_kicked_and_purged(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue_many("t", (NewJob(n, id=f"j{n}") for n in range(8)))
    await work(redis_server, error="boom")
    page = await see(site, "/topics/t?state=dead")
    assert page.count('name="id" value="j') == 8
    done = await post(site, "/topics/t/dead", do="kick", id=["j0", "j1"], group="default")
    assert "Sent back: 2." in await see(site, done.headers["location"])
    again = await post(site, "/topics/t/dead", do="kick", id=["j0", "j1"], group="default")
    assert "Nothing was changed" in await see(site, again.headers["location"])
    assert "Deleted for good: 1." in await see(
        site, (await post(site, "/topics/t/dead", do="purge", id="j2")).headers["location"]
    )
    assert "Sent back: 1." in await see(site, (await post(site, "/topics/t/jobs/j3/kick")).headers["location"])
    assert "Deleted for good: 1." in await see(site, (await post(site, "/topics/t/jobs/j4/purge")).headers["location"])
    assert "Sent back: 3." in await see(
        site, (await post(site, "/topics/t/dead", do="kick", all="1")).headers["location"]
    )
    assert (await post(site, "/topics/t/dead", do="burn", id="j5")).status_code == 422
    assert (await post(site, "/topics/t/dead", do="kick", all="1", group="x")).status_code == 404
    assert queue.audit().balanced
    assert queue.stats("t").ready == 6


async def test_a_dead_letter_that_goes_while_it_is_listed(site: Api, queue: Queue, redis_server: Server) -> None:
    """Its id was read, and another operator purged it before its progress was."""
    queue.enqueue("t", 1, id="order-42")
    await work(redis_server, error="no such order")
    with redis_server.client() as client:
        client.delete(NamespaceKeys(NAMESPACE).shard("t", 0).progress)
    assert "order-42" in await see(site, "/topics/t?state=dead")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://localhost", "Sec-Fetch-Site": "same-site"},
    ],
)
async def test_forms_of_other_sites_are_refused(open_api: Open, queue: Queue, headers: dict[str, str]) -> None:
    site = await open_api()
    queue.enqueue("t", 1)
    refused = await post(site, "/topics/t/pause", {**headers, "Content-Type": FORM["Content-Type"]})
    assert refused.status_code == 403
    check_headers(refused)
    assert not queue.stats("t").topics["t"].paused


# -- who is there


async def signed_in(open_api: Open, token: str) -> Api:
    site: Api = await open_api(tokens=TOKENS)
    site.client.headers["Origin"] = "http://localhost"
    done = await post(site, "/login", token=token, next="/topics/t")
    assert (done.status_code, done.headers["location"]) == (303, "/topics/t")
    cookie = done.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert token not in cookie
    return site


async def test_without_a_session_every_page_leads_to_the_sign_in(open_api: Open) -> None:
    site = await open_api(tokens=TOKENS)
    routes = [route for part in (pages, actions) for route in part.router.routes if isinstance(route, APIRoute)]
    assert len(routes) > 10
    for route in routes:
        if needs_of(route).roles is None:
            continue
        path = route.path_format.format(topic="t", id="i")
        method = next(iter(route.methods or ()))
        response = await site.client.request(method, path, headers=FORM if method == "POST" else {})
        assert response.status_code == 303, path
        assert response.headers["location"].startswith("/login?next="), path
        check_headers(response)
    news = await site.client.get("/", headers={"HX-Request": "true"})
    assert (news.status_code, news.headers["hx-redirect"]) == (401, "/login?next=/")


async def test_a_viewer_looks_and_does_not_touch(open_api: Open, queue: Queue, redis_server: Server) -> None:
    queue.enqueue("t", 1, id="d")
    await work(redis_server, error="boom")
    queue.enqueue("t", 1, id="a", delay="1h")
    site = await signed_in(open_api, VIEWER[0])
    for path in ("/", "/topics/t", "/topics/t?state=dead", "/topics/t/jobs/a", "/topics/t/jobs/d"):
        page = await see(site, path)
        assert "viewer" in page
        posts = set(re.findall(r'method="post" action="([^"]*)"', page))
        assert posts <= {"/logout"}, path
    refused: dict[str, dict[str, Any]] = {
        "/topics/t/pause": {}, "/topics/t/jobs/a/cancel": {}, "/topics/t/jobs/a/reschedule": {"delay": "1s"},
        "/topics/t/dead": {"do": "kick", "all": "1"}, "/topics/t/jobs/d/kick": {}, "/topics/t/jobs/d/purge": {},
        "/topics/t/resume": {},
    }  # fmt: skip
    for path, form in refused.items():
        assert (await post(site, path, **form)).status_code == 403, path
    assert (await site.client.get("/v1/stats")).status_code == 401  # the cookie is for pages alone


async def test_an_admin_acts_and_is_named_in_the_log(open_api: Open, queue: Queue) -> None:
    queue.enqueue("t", 1, id="a", delay="1h")
    site = await signed_in(open_api, ADMIN[0])
    with capture_logs() as logs:
        assert (await post(site, "/topics/t/jobs/a/cancel")).status_code == 303
    (line,) = logs
    assert (line["who"], line["action"], line["topic"], line["id"], line["log_level"]) == (
        "admin", "cancel", "t", "a", "info",
    )  # fmt: skip
    with capture_logs() as logs:
        assert (await post(site, "/topics/t/jobs/a/cancel")).status_code == 409
    assert (logs[0]["who"], logs[0]["failed"]) == ("admin", "job-busy")
    out = await post(site, "/logout")
    assert out.headers["location"] == "/login"
    assert (await site.client.get("/")).status_code == 303


async def test_behind_tls_the_cookie_stays_there(open_api: Open) -> None:
    site = await open_api(tokens=TOKENS)
    for proto, secure in (("https", True), ("http", False)):
        done = await post(site, "/login", {**FORM, "X-Forwarded-Proto": proto}, token=ADMIN[0])
        assert ("Secure" in done.headers["set-cookie"]) is secure


async def test_without_tokens_there_is_nothing_to_sign_in_to(site: Api) -> None:
    assert (await site.client.get("/login")).headers["location"] == "/"
    assert (await post(site, "/login", token=ADMIN[0])).status_code == 403


@pytest.mark.parametrize("token", ["", "sdq_wrong", PRODUCER[0], "é" * 300], ids=["none", "unknown", "producer", "odd"])
async def test_tokens_that_do_not_sign_in(open_api: Open, token: str) -> None:
    site = await open_api(tokens=TOKENS)
    response = await post(site, "/login", token=token)
    assert response.status_code == 403
    assert "set-cookie" not in response.headers
    check_headers(response)


@pytest.mark.parametrize("next", ["//evil.example", "https://evil.example", "/\\evil.example", "\r\nX: y", ""])
async def test_signing_in_leads_to_no_other_site(open_api: Open, next: str) -> None:
    site = await open_api(tokens=TOKENS)
    assert (await post(site, "/login", token=ADMIN[0], next=next)).headers["location"] == "/"


async def test_a_session_ends_with_its_token(open_api: Open) -> None:
    site = await signed_in(open_api, VIEWER[0])
    cookie = "; ".join(f"{name}={value}" for name, value in site.client.cookies.items())
    assert (await site.client.get("/")).status_code == 200
    revoked = await open_api(tokens=Tokens.parse(ADMIN[1]))
    assert (await revoked.client.get("/", headers={"Cookie": cookie})).status_code == 303
    other = await open_api(tokens=TOKENS)
    assert (await other.client.get("/", headers={"Cookie": cookie})).status_code == 200
    assert (await other.client.get("/", headers={"Cookie": cookie[:-2] + "AA"})).status_code == 303


async def test_signing_out_ends_the_session_everywhere(open_api: Open, redis_server: Server) -> None:
    site, other = await signed_in(open_api, VIEWER[0]), await open_api(tokens=TOKENS)
    cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in site.client.cookies.items())}
    for api in (site, other):
        assert (await api.client.get("/", headers=cookie)).status_code == 200
    with redis_server.client() as client:
        (key,) = client.keys("{streamdq}:session:*")
        assert 0 < client.ttl(key) <= 12 * 3600
        for kept in (key, client.get(key)):
            assert kept.decode() not in str(cookie)
            assert VIEWER[0] not in kept.decode()
    await post(site, "/logout")
    for api in (site, other):
        assert (await api.client.get("/", headers=cookie)).status_code == 303
    with redis_server.client() as client:
        assert client.keys("{streamdq}:session:*") == []


async def test_signing_in_again_ends_the_session_before(open_api: Open) -> None:
    site = await signed_in(open_api, VIEWER[0])
    cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in site.client.cookies.items())}
    await post(site, "/login", token=ADMIN[0])
    assert (await site.client.get("/")).status_code == 200
    assert (await (await open_api(tokens=TOKENS)).client.get("/", headers=cookie)).status_code == 303


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
    assert "No topics yet" in await see(site, "/")


async def test_mounted_its_links_stay_inside(redis_server: Server, queue: Queue) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from streamdq.http import create_app

    queue.enqueue("t", 1, id="a", delay="1h")
    app = create_app(redis_server.url, NAMESPACE)
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


# -- what it costs


async def test_no_page_asks_for_more_with_more_jobs(
    site: Api, queue: Queue, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands and the size of their replies, with 300 jobs in every state and with ten times as many."""
    monkeypatch.setattr("streamdq.http.pages.timeline.LOOKBACK_ROWS", 100)  # so much is looked through anyway
    monkeypatch.setattr("streamdq.http.pages.timeline._PAGE", 50)
    paths = [f"/topics/t?state={state}" for state in ("delayed", "ready", "running", "dead")]
    paths += ["/", "/?horizon=1w", "/topics/t/jobs/r1", "/topics/t/jobs/d1"]
    queue.configure("t", ttr="1h")
    seen: list[dict[str, tuple[int, int]]] = []
    with redis_server.client() as client:
        for start, count in ((0, 300), (300, 3000)):
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
    await see(site, path)  # scripts are loaded, topics known
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
        claim = queue.take("t", timeout=5)
        assert claim
        if n % 2:
            claim.bury("boom")
    queue.enqueue_many("t", (NewJob(1, id=f"r{n}") for n in ids))
    queue.enqueue_many("t", (NewJob(1, id=f"d{n}", delay="1h") for n in ids))


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
