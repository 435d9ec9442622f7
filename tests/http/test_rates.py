"""How often somebody may ask."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from streamdq.config import HttpSettings
from streamdq.http import Tokens
from streamdq.http.auth import Role, new_token
from streamdq.http.problems import ProblemError
from streamdq.http.rate_limits import MAX_BUCKETS, Buckets, Rates, _network
from streamdq.http.refusals import unmapped
from tests.http.conftest import Open
from tests.http.harness import kind
from tests.http.live import Live
from tests.servers import Server
from tests.waiting import until

GOOD, LINE = new_token("good", [Role.VIEWER])
OTHER, OTHER_LINE = new_token("other", [Role.VIEWER])
TOKENS = Tokens.parse(f"{LINE}\n{OTHER_LINE}")


def test_a_bucket() -> None:
    """Two a second, of which five seconds' worth may come at once."""
    buckets = Buckets(2, burst_s=5)
    assert [buckets.wait_s("a", 100.0) for _ in range(10)] == [0.0] * 10
    assert buckets.wait_s("a", 100.0) == pytest.approx(0.5)
    assert buckets.wait_s("b", 100.0) == 0.0
    assert buckets.wait_s("a", 100.5) == 0.0
    assert buckets.wait_s("a", 100.5) > 0
    assert [buckets.wait_s("a", 200.0) for _ in range(11)].count(0.0) == 10
    assert all(Buckets(0).wait_s("a", 1.0) == 0.0 for _ in range(1000))
    assert Buckets(0.01).wait_s("a", 1.0) == 0.0  # one may always come


def test_there_are_no_more_buckets_than_fit() -> None:
    buckets = Buckets(1, burst_s=1)
    for number in range(MAX_BUCKETS + 500):
        buckets.wait_s(str(number), 100.0)
        buckets.wait_s("0", 100.0 + number * 10)  # asks again and again
    assert len(buckets._full_at) == MAX_BUCKETS
    assert "0" in buckets._full_at


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("192.0.2.7", "192.0.2.7"),
        ("", ""),
        ("x", "x"),
    ],
)
def test_an_ipv4_address_that_a_socket_for_both_families_tells(given: str, address: str) -> None:
    assert unmapped(given) == address


@pytest.mark.thorough
def test_callers_at_a_socket_for_both_families_are_told_apart(redis_server: Server, tmp_path: Path) -> None:
    """And a proxy that calls there is trusted by its own address."""
    (tmp_path / "tokens").write_text("")
    environment = {**os.environ, "STREAMDQ_HTTP_TRUSTED_PROXIES": "127.0.0.1"}
    files = ["--host", "::", "--tokens-file", str(tmp_path / "tokens")]
    with Live(redis_server.url, *files, env=environment) as live:
        for source, forwarded in (("127.0.0.1", "192.0.2.7"), ("127.0.0.2", None)):
            transport = httpx.HTTPTransport(local_address=source)
            with httpx.Client(transport=transport) as client:
                headers = {"X-Forwarded-For": forwarded} if forwarded else {}
                client.post(f"http://127.0.0.1:{live.port}/v1/topics/t/pause", headers=headers)
        until(lambda: sum(line["event"] == "refused" for line in live.log) == 2, "both are refused")
        assert [line["peer"] for line in live.log if line["event"] == "refused"] == ["192.0.2.7", "127.0.0.2"]


def test_who_has_an_ipv6_address_has_many() -> None:
    assert _network("2001:db8::1") == _network("2001:db8::ffff:1") != _network("2001:db8:0:1::1")
    assert _network("fe80::1%eth0") == "fe80::/64"
    assert [_network(text) for text in ("192.0.2.1", "", "::x")] == ["192.0.2.1", "", "::x"]


async def test_who_has_no_valid_token_too_often(open_api: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("streamdq.http.rate_limits.time", SimpleNamespace(monotonic=lambda: now))
    api = await open_api(tokens=TOKENS, http=HttpSettings(failures_per_minute=3))
    wrong = {"Authorization": "Bearer sdq_wrong"}
    statuses = [(await api.client.get("/v1/topics", headers=wrong)).status_code for _ in range(4)]
    assert statuses == [401, 401, 401, 429]
    limited = await api.client.get("/v1/topics")
    assert (kind(limited), limited.headers["retry-after"]) == ("rate-limited", "20")
    form = {"Origin": "http://localhost"}
    assert (await api.client.post("/login", data={"token": "sdq_wrong"}, headers=form)).status_code == 429
    good = {"Authorization": f"Bearer {GOOD}"}
    assert (await api.client.get("/v1/topics", headers=good)).status_code == 200  # from the same address
    assert (await api.client.get("/")).status_code == 303
    assert (await api.client.post("/login", data={"token": GOOD}, headers=form)).status_code == 303
    now += 20
    assert kind(await api.client.get("/v1/topics", headers=wrong)) == "unauthenticated"


async def test_cookies_of_no_session_are_counted(open_api: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what costs nothing is not: the way to the sign-in page, and that page."""
    monkeypatch.setattr("streamdq.http.rate_limits.time", SimpleNamespace(monotonic=lambda: 1000.0))
    api = await open_api(tokens=TOKENS, http=HttpSettings(failures_per_minute=3))
    form = {"Origin": "http://localhost"}
    done = await api.client.post("/login", data={"token": GOOD}, headers=form)
    session = {"Cookie": done.headers["set-cookie"].partition(";")[0]}
    api.client.cookies.clear()
    assert [(await api.client.get("/topics/t")).status_code for _ in range(5)] == [303] * 5
    made_up = {"Cookie": "streamdq_session=made-up"}
    assert (await api.client.post("/logout", data={"x": "1"}, headers=form | made_up)).status_code == 303
    statuses = [(await api.client.get("/topics/t", headers=made_up)).status_code for _ in range(3)]
    assert statuses == [303, 303, 429]
    assert (await api.client.post("/logout", data={"x": "1"}, headers=form | made_up)).status_code == 429
    assert (await api.client.get("/topics/t")).status_code == 303
    assert (await api.client.get("/failed", headers=session)).status_code == 200
    asked: list[object] = []
    monkeypatch.setattr("streamdq.http.backend.Backend.do", asked.append)
    assert (await api.client.get("/login", headers=made_up)).status_code == 200
    assert asked == []


async def test_signing_in_counts_for_the_token(open_api: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.http.rate_limits.time", SimpleNamespace(monotonic=lambda: 1000.0))
    api = await open_api(tokens=TOKENS, http=HttpSettings(token_rate=0.1))
    form = {"Origin": "http://localhost"}
    assert [
        (await api.client.post("/login", data={"token": token}, headers=form)).status_code
        for token in (GOOD, GOOD, OTHER)
    ] == [303, 429, 303]


async def test_a_token_that_comes_too_often(open_api: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.http.rate_limits.time", SimpleNamespace(monotonic=lambda: 1000.0))
    api = await open_api(tokens=TOKENS, http=HttpSettings(token_rate=1))
    statuses = [
        (await api.client.get("/v1/topics", headers={"Authorization": f"Bearer {token}"})).status_code
        for token in [GOOD] * 11 + [OTHER]
    ]
    assert statuses == [200] * 10 + [429, 200]


async def test_an_address_that_asks_too_often(open_api: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.http.rate_limits.time", SimpleNamespace(monotonic=lambda: 1000.0))
    api = await open_api(http=HttpSettings(address_rate=1))
    assert [(await api.client.get("/v1/topics")).status_code for _ in range(11)] == [200] * 10 + [429]
    assert (await api.client.get("/health/alive")).status_code == 200
    page = await api.client.get("/")
    assert (page.status_code, page.headers["content-type"]) == (429, "text/html; charset=utf-8")
    assert int(page.headers["retry-after"]) >= 1


def test_by_default_a_token_may_ask_a_thousand_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("streamdq.http.rate_limits.time", SimpleNamespace(monotonic=lambda: now))
    rates = Rates(HttpSettings())
    for _ in range(10_000):
        rates.asked("192.0.2.1")
        rates.came("good")
    rates.asked("192.0.2.1")
    with pytest.raises(ProblemError) as limited:
        rates.came("good")
    assert limited.value.headers == {"Retry-After": "1"}
    rates.came("another")
    now += 1
    for _ in range(1000):
        rates.came("good")
    unlimited = Rates(HttpSettings(token_rate=0))
    for _ in range(20_000):
        unlimited.came("good")
