"""Who sees the web page: sessions, what each role may do there, and where a sign-in leads."""

from __future__ import annotations

import html
import re
from itertools import count
from typing import Any

import pytest
from fastapi.routing import APIRoute
from structlog.testing import capture_logs

from streamdq import Queue
from streamdq.http import Tokens
from streamdq.http.api.route import needs_of
from streamdq.http.pages import actions, failed, find, pages, schedules, topic_settings, workers
from tests.http.conftest import Open
from tests.http.harness import Api, altered
from tests.http.site import ADMIN, FORM, PRODUCER, TOKENS, VIEWER, check_headers, post, see, work
from tests.servers import Server


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
    routes = [
        route
        for part in (pages, find, schedules, workers, failed, topic_settings, actions)
        for route in part.router.routes
        if isinstance(route, APIRoute)
    ]
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


async def test_signing_in_leads_back_to_the_full_address(open_api: Open, queue: Queue) -> None:
    site: Api = await open_api(tokens=TOKENS)
    site.client.headers["Origin"] = "http://localhost"
    queue.enqueue("a/b&c", 1, delay="1h")
    asked = "/topics/a%2Fb%26c?state=delayed&group=default&horizon=1d"
    sent = await site.client.get(asked)
    assert sent.status_code == 303
    login = (await site.client.get(sent.headers["location"])).text
    (following,) = re.findall(r'name="next" value="([^"]*)"', login)
    done = await post(site, "/login", token=VIEWER[0], next=html.unescape(following))
    assert done.headers["location"] == asked
    assert "delayed jobs of a/b&amp;c" in await see(site, asked)


@pytest.mark.parametrize(
    "next",
    [
        "//evil.example", "https://evil.example", "/\\evil.example", "\r\nX: y", "", "/a/../../evil", "/%2e%2E/evil",
        "/..?x", "/.#x",
    ],
)  # fmt: skip
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
    assert (await other.client.get("/", headers={"Cookie": altered(cookie)})).status_code == 303


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


async def test_a_token_has_so_many_sessions_and_the_oldest_ends(
    open_api: Open, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.http.pages.sessions.MOST", 2)
    now = (1_900_000_000 + n / 100 for n in count())  # also within one second
    monkeypatch.setattr("streamdq.store.namespace.wall_s", lambda: next(now))
    other, *sites = [await signed_in(open_api, token) for token in (ADMIN[0], VIEWER[0], VIEWER[0], VIEWER[0])]
    assert [(await site.client.get("/")).status_code for site in sites] == [303, 200, 200]
    assert (await other.client.get("/")).status_code == 200
    with redis_server.client() as client:
        assert len(client.keys("{streamdq}:session:*")) == 3
        counted = client.keys("{streamdq}:sessions:*")
        assert sorted(len({at for _, at in client.zrange(key, 0, -1, withscores=True)}) for key in counted) == [1, 2]
        assert all(0 < client.ttl(key) <= 12 * 3600 for key in counted)


async def test_sessions_that_have_ended_take_no_place_of_others(
    open_api: Open, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One user signs in and out again and again, or signs in without signing out; another stays."""
    monkeypatch.setattr("streamdq.http.pages.sessions.MOST", 2)
    now = iter(range(1_900_000_000, 2_000_000_000))
    monkeypatch.setattr("streamdq.store.namespace.wall_s", lambda: next(now))
    stays, comes = [await signed_in(open_api, VIEWER[0]) for _ in range(2)]
    for _ in range(2):
        assert (await post(comes, "/logout")).status_code == 303
        for _ in range(2):
            assert (await post(comes, "/login", token=VIEWER[0], next="/")).status_code == 303
    assert [(await site.client.get("/")).status_code for site in (stays, comes)] == [200, 200]
    with redis_server.client() as client:
        assert [client.zcard(key) for key in client.keys("{streamdq}:sessions:*")] == [2]
