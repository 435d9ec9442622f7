"""Users whom a proxy or the application around the page has signed in."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.routing import Mount

from streamdq import InvalidInput, Queue
from streamdq.config import HttpSettings
from streamdq.http import Role, SignedInUser, create_app
from streamdq.http.pages.signed_in import UserOf
from streamdq.http.proxy_users import KnowsPeer, ProxyUsers
from tests.http.harness import NAMESPACE
from tests.http.live import Live
from tests.http.site import FORM
from tests.http.test_nginx import ROOT, needs_nginx, nginx
from tests.servers import Server
from tests.waiting import HANG_S

ROLES = "ops admin; support viewer,producer topics=order.*; * viewer"
OWN = {"Origin": "http://localhost"}


def sso(**settings: str) -> ProxyUsers:
    given: dict[str, Any] = {
        "sso_proxies": "10.0.0.1, 192.168.0.0/24",
        "sso_roles": ROLES,
        "sso_sign_out": "/oauth2/sign_out",
    }
    found = ProxyUsers.of(HttpSettings(**(given | settings)))
    assert found is not None
    return found


def headers(user: str, groups: str = "") -> dict[str, str]:
    return {"X-Forwarded-User": user, "X-Forwarded-Groups": groups}


@asynccontextmanager
async def site(
    server: Server, *, peer: str = "10.0.0.1", user_of: UserOf | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """The page behind a proxy with this address."""
    app = create_app(server.url, NAMESPACE, user_of=user_of or sso())
    transport = httpx.ASGITransport(app=KnowsPeer(app), client=(peer, 1))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=HANG_S) as client,
    ):
        yield client


async def test_groups_decide_what_a_user_may_do(redis_server: Server, queue: Queue) -> None:
    for topic in ("order.close", "mail.send"):
        queue.enqueue(topic, 1, id="a", delay="1h")
    async with site(redis_server) as client:
        eve, ana, ops = headers("eve", "guests"), headers("ana", "staff, support"), headers("bo", "ops")
        seen = await client.get("/", headers=eve)
        assert "(viewer)" in seen.text
        assert '<a href="/oauth2/sign_out">Sign out</a>' in seen.text
        refused = await client.post("/topics/order.close/jobs/a/cancel", headers=eve | FORM)
        assert refused.status_code == 403

        assert (await client.get("/topics/mail.send", headers=ana)).status_code == 403
        done = await client.post("/topics/order.close/jobs/a/cancel", headers=ana | FORM)
        assert done.status_code == 303
        assert (await client.post("/topics/order.close/pause", headers=ana | FORM)).status_code == 403
        assert (await client.post("/topics/order.close/pause", headers=ops | FORM)).status_code == 303
    assert queue.get("order.close", "a") is None


async def test_a_user_in_no_group_sees_nothing(redis_server: Server) -> None:
    async with site(redis_server, user_of=sso(sso_roles="ops admin")) as client:
        answer = await client.get("/", headers=headers("eve", "guests"))
    assert answer.status_code == 403


@pytest.mark.parametrize("peer", ["10.0.0.2", "127.0.0.1", "", "::ffff:10.0.0.2"])
async def test_headers_from_elsewhere_are_refused(redis_server: Server, peer: str) -> None:
    async with site(redis_server, peer=peer) as client:
        spoofed = headers("bo", "ops") | {"X-Forwarded-For": "10.0.0.1"}
        assert (await client.get("/", headers=spoofed)).status_code == 403
        assert (await client.post("/topics/t/pause", headers=spoofed | FORM)).status_code == 403
        plain = await client.get("/")
    assert (plain.status_code, plain.headers["location"]) == (303, "/login?next=/")


@pytest.mark.parametrize("peer", ["10.0.0.1", "192.168.0.77", "::ffff:10.0.0.1"])
async def test_each_address_of_the_proxy_counts(redis_server: Server, peer: str) -> None:
    async with site(redis_server, peer=peer) as client:
        assert (await client.get("/", headers=headers("bo", "ops"))).status_code == 200


async def test_a_proxy_that_only_adds_a_header_is_refused(redis_server: Server) -> None:
    async with site(redis_server) as client:
        twice = [("X-Forwarded-User", "bo"), ("X-Forwarded-User", "eve"), ("X-Forwarded-Groups", "ops")]
        assert (await client.get("/", headers=twice)).status_code == 403
        twice = [("X-Forwarded-User", "eve"), ("X-Forwarded-Groups", "ops"), ("X-Forwarded-Groups", "guests")]
        assert (await client.get("/", headers=twice)).status_code == 403
        assert (await client.get("/", headers=headers("x" * 201, "ops"))).status_code == 403


async def test_names_and_groups_are_utf_8(redis_server: Server) -> None:
    def sent(user: bytes, groups: bytes) -> list[tuple[bytes, bytes]]:
        return [(b"X-Forwarded-User", user), (b"X-Forwarded-Groups", groups)]

    async with site(redis_server, user_of=sso(sso_roles='"Büro Ümit" admin; * viewer')) as client:
        for name in ("Ümit Şahin", "Jürgen", "李雷"):
            seen = await client.get("/", headers=sent(name.encode(), "staff, Büro Ümit".encode()))
            assert name in seen.text
            assert "(viewer)" not in seen.text
        seen = await client.get("/", headers=sent(b"eve", b"B\xfcro \xdcmit"))
        assert "(viewer)" in seen.text, "no UTF-8, so no group of the settings"
        for refused in (b"J\xfcrgen", b"a\tb", b"a\x7fb", "bo\u202eeve".encode(), "bo\u2028".encode(), b" "):
            assert (await client.get("/", headers=sent(refused, b"ops"))).status_code == 403, refused


async def test_a_proxy_can_name_its_headers_as_authelia_does(redis_server: Server) -> None:
    names = sso(sso_user_header="Remote-User", sso_groups_header="Remote-Groups")
    async with site(redis_server, user_of=names) as client:
        for groups, is_viewer in {"staff,ops": False, "guests": True}.items():
            seen = await client.get("/", headers={"Remote-User": "bo", "Remote-Groups": groups})
            assert seen.status_code == 200
            assert ("(viewer)" in seen.text) == is_viewer
        assert (await client.get("/", headers=headers("bo", "ops"))).status_code == 303, "other names do not count"


async def test_forms_of_other_sites_are_refused(redis_server: Server, queue: Queue) -> None:
    queue.configure("t", create=True)
    form = {"Content-Type": FORM["Content-Type"]}
    async with site(redis_server) as client:
        for origin in ({}, {"Origin": "http://evil.example"}, OWN | {"Sec-Fetch-Site": "cross-site"}):
            answer = await client.post("/topics/t/pause", headers=headers("bo", "ops") | form | origin)
            assert answer.status_code == 403
    assert not queue.stats("t").topics["t"].paused


async def test_the_api_takes_tokens_alone(redis_server: Server) -> None:
    async with site(redis_server) as client:
        assert (await client.get("/v1/stats", headers=headers("bo", "ops"))).status_code == 401


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sso_roles": ""}, "which group has which roles"),
        ({"sso_roles": "ops"}, "'ops' is not GROUP ROLE"),
        ({"sso_roles": '"field ops admin'}, "is not GROUP ROLE"),
        ({"sso_roles": "ops boss"}, "there is no role 'boss'"),
        ({"sso_roles": "ops admin expires=2030-01-01T00:00:00Z"}, "expires is for tokens"),
    ],
)
def test_roles_that_can_not_be_read(settings: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        sso(**settings)


def test_without_a_proxy_no_header_counts() -> None:
    assert ProxyUsers.of(HttpSettings(sso_roles=ROLES)) is None
    with pytest.raises((InvalidInput, ValidationError)):
        HttpSettings(sso_proxies="everyone")


# -- the server


@contextlib.contextmanager
def live(server: Server, proxies: str) -> Iterator[Live]:
    env = {
        **os.environ, "STREAMDQ_HTTP_SSO_PROXIES": proxies, "STREAMDQ_HTTP_SSO_ROLES": ROLES,
        "STREAMDQ_HTTP_TRUSTED_PROXIES": "127.0.0.1", "STREAMDQ_HTTP_SSO_SIGN_OUT": "/oauth2/sign_out",
    }  # fmt: skip
    with Live(server.url, env=env) as running:
        yield running


def test_the_connection_counts_not_what_x_forwarded_for_says(redis_server: Server) -> None:
    with live(redis_server, "10.0.0.1") as running, running.client() as client:
        spoofed = headers("bo", "ops") | {"X-Forwarded-For": "10.0.0.1"}
        assert client.get("/", headers=spoofed).status_code == 403
        assert client.get("/v1/stats").status_code == 401
    refused = next(line for line in running.log if line["event"] == "refused")
    assert refused["detail"] == "X-Forwarded-User is believed of the proxy alone, not of 127.0.0.1"


class _OAuth2Proxy(BaseHTTPRequestHandler):
    """Answers like oauth2-proxy: its session is the cookie, which names the user and a group."""

    def do_GET(self) -> None:
        if self.path.startswith("/oauth2/auth"):
            self._say_who()
        elif self.path.startswith("/oauth2/sign_in"):
            self._send_to_provider()
        else:
            self.send_error(404)

    def _send_to_provider(self) -> None:
        """It takes no absolute address to go on to, unless options allow its host."""
        wanted = self.headers.get("X-Auth-Request-Redirect", "")
        state = wanted if wanted.startswith("/") and not wanted.startswith("//") else "/"
        back = f"{self.headers['X-Forwarded-Proto']}://{self.headers['Host']}/oauth2/callback"
        self.send_response(302)
        self.send_header(
            "Location", str(httpx.URL("https://idp.example", params={"redirect_uri": back, "state": state}))
        )
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _say_who(self) -> None:
        user, _, group = self.headers.get("Cookie", "").removeprefix("_oauth2_proxy=").partition("|")
        self.send_response(202 if user else 401)
        if user:
            self.send_header("X-Auth-Request-Email", user)
            self.send_header("X-Auth-Request-Groups", group)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def oauth2_proxy() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _OAuth2Proxy) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@needs_nginx
def test_oauth2_proxy_and_nginx_as_the_documentation_shows(
    redis_server: Server, queue: Queue, oauth2_proxy: int, tmp_path: Path
) -> None:
    queue.enqueue("order.close", 1, id="a/b", delay="1h")
    config = ROOT / "examples" / "nginx" / "sso.conf"
    ports = {"server 127.0.0.1:4180": f"server 127.0.0.1:{oauth2_proxy}"}
    with (
        live(redis_server, "127.0.0.1") as running,
        nginx(running, tmp_path, config, ports) as url,
        httpx.Client(base_url=url, verify=False, timeout=HANG_S) as client,
    ):
        wanted = "/topics/order.close?state=delayed&after=a%2Fb"
        for stranger in (client.get(wanted, headers=headers("bo", "ops")), client.post(wanted, content=b"x")):
            assert stranger.status_code == 302
            asked = httpx.URL(stranger.headers["location"]).params
            assert asked == httpx.QueryParams({"redirect_uri": f"{url}/oauth2/callback", "state": wanted})
        assert httpx.URL(client.get("//evil.example/").headers["location"]).params["state"] == "/"
        assert client.get("/_sign_in").status_code == client.get("/oauth2/auth").status_code == 404
        direct = httpx.URL(client.get("/oauth2/sign_in").headers["location"]).params
        assert direct["redirect_uri"] == f"{url}/oauth2/callback"

        as_eve = {"Cookie": "_oauth2_proxy=eve@example.com|guests"}
        seen = client.get("/", headers=as_eve | headers("bo", "ops"))
        assert "eve@example.com" in seen.text
        assert "(viewer)" in seen.text

        as_ops = {"Cookie": "_oauth2_proxy=bo|ops", "Content-Type": FORM["Content-Type"]}
        path = "/topics/order.close/jobs/a%2Fb/cancel"
        assert client.post(path, headers=as_ops | {"Origin": "https://evil.example"}).status_code == 403
        assert client.post(path, headers=as_ops | {"Origin": url}).status_code == 303
    assert queue.get("order.close", "a/b") is None


# -- in an application of one's own


def user_of_session(request: Request) -> SignedInUser | None:
    """The application's own check: here, a cookie with the user's name."""
    name = request.cookies.get("session")
    roles = {"bo": frozenset({Role.ADMIN}), "eve": frozenset({Role.VIEWER})}
    return SignedInUser(name, roles[name], "/", "Shop") if name in roles else None


async def later(request: Request) -> SignedInUser | None:
    return user_of_session(request)


@pytest.mark.parametrize("user_of", [user_of_session, later])
@pytest.mark.parametrize("framework", [FastAPI, Starlette])
async def test_the_page_in_an_application_with_its_own_login(
    redis_server: Server, queue: Queue, framework: Any, user_of: UserOf
) -> None:
    queue.configure("t", create=True)
    page = create_app(redis_server.url, NAMESPACE, user_of=user_of)
    shop = framework(routes=[Mount("/ops", page)])
    transport = httpx.ASGITransport(app=shop)
    async with (
        page.router.lifespan_context(page),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=HANG_S) as client,
    ):
        eve, ops = {"Cookie": "session=eve"}, {"Cookie": "session=bo"}
        stranger = await client.get("/ops/")
        seen = await client.get("/ops/", headers=eve)
        refused = await client.post("/ops/topics/t/pause", headers=eve | FORM)
        foreign = await client.post("/ops/topics/t/pause", headers=ops | FORM | {"Origin": "http://evil.example"})
        assert not queue.stats("t").topics["t"].paused
        done = await client.post("/ops/topics/t/pause", headers=ops | FORM)
        api = await client.get("/ops/v1/stats", headers=ops)

    assert (stranger.status_code, stranger.headers["location"]) == (303, "/ops/login?next=/ops/")
    assert '<a href="/">Shop</a>' in seen.text
    assert (refused.status_code, foreign.status_code, done.status_code, api.status_code) == (403, 403, 303, 401)
    assert queue.stats("t").topics["t"].paused


@pytest.mark.parametrize("roles", ["no admin", {"admin": False}, [Role.ADMIN], None])
def test_roles_that_are_no_set(roles: Any) -> None:
    with pytest.raises(InvalidInput, match="roles is a set of Role"):
        SignedInUser("eve", roles)


async def test_changes_are_logged_with_the_name_of_the_user(redis_server: Server, queue: Queue, tmp_path: Path) -> None:
    queue.configure("t", create=True)
    app = create_app(redis_server.url, NAMESPACE, user_of=sso(), audit_log=tmp_path / "audit")
    transport = httpx.ASGITransport(app=KnowsPeer(app), client=("10.0.0.1", 1))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=HANG_S) as client,
    ):
        await client.post("/topics/t/pause", headers=headers("bo", "ops") | FORM)
    (line,) = (tmp_path / "audit").read_text().splitlines()
    assert json.loads(line)["who"] == "bo"
