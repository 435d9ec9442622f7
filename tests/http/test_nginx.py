"""A real nginx in front of the server, with the configuration that the documentation shows."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest
import uvicorn

from streamdq import Queue
from streamdq.http.auth import Role, new_token
from tests.children import child
from tests.http.live import Live
from tests.servers import Server, free_port
from tests.waiting import until

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "examples" / "nginx" / "streamdq.conf"
CERTIFICATE = ROOT / "tests" / "callback" / "receiver.pem"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
NAME = "queue.example.com"
TOKEN, LINE = new_token("ops", [Role.ADMIN])

needs_nginx = pytest.mark.skipif(NGINX is None, reason="no nginx on this machine")


@pytest.fixture
def live(redis_server: Server, tmp_path: Path) -> Iterator[Live]:
    (tmp_path / "tokens").write_text(LINE)
    env = {**os.environ, "STREAMDQ_HTTP_TRUSTED_PROXIES": "127.0.0.1"}
    with Live(redis_server.url, "--tokens-file", str(tmp_path / "tokens"), env=env) as running:
        yield running


@pytest.fixture
def proxy(live: Live, tmp_path: Path) -> Iterator[str]:
    with nginx(live, tmp_path) as url:
        yield url


@pytest.fixture
def limited_to_3(live: Live, tmp_path: Path) -> Iterator[str]:
    with nginx(live, tmp_path, changed={"limit_conn streamdq 200": "limit_conn streamdq 3"}) as url:
        yield url


@contextmanager
def nginx(
    live: Live, tmp_path: Path, config: Path = CONFIG, changed: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """Its URL. The configuration is as it stands, but for its ports, its certificate, and what is ``changed``."""
    port, text = free_port(), re.sub(r"/etc/ssl/\S+\.(?:pem|key)", str(CERTIFICATE), config.read_text())
    for shown, here in {
        **changed,
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl", "server 127.0.0.1:8080": f"server 127.0.0.1:{live.port}",
    }.items():  # fmt: skip
        assert text.count(shown) == 1, shown
        text = text.replace(shown, here)
    temporary = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = tmp_path / "nginx.conf"
    file.write_text(
        f"pid {tmp_path}/nginx.pid;\nerror_log {tmp_path}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}{text}}}\n"
    )
    assert NGINX is not None
    command = [NGINX, "-c", str(file), "-p", str(tmp_path), "-g", "daemon off;"]
    with child(command, stderr=subprocess.DEVNULL) as process:
        url = f"https://127.0.0.1:{port}"
        until(lambda: process.poll() is not None or _answers(url), "nginx answers")
        assert process.poll() is None, (tmp_path / "error.log").read_text()
        yield url


def _from(address: str, url: str, token: str = TOKEN) -> httpx.Client:
    """A caller with this address, of those that all lead to this machine."""
    transport = httpx.HTTPTransport(verify=_context(), local_address=address)
    headers = {"Authorization": f"Bearer {token}", "Host": f"{NAME}:{url.rpartition(':')[2]}"}
    return httpx.Client(base_url=url, transport=transport, headers=headers, timeout=60)


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/alive", verify=_context()).status_code < 400
    except httpx.TransportError:
        return False


@pytest.fixture
def client(proxy: str) -> Iterator[httpx.Client]:
    """A caller from elsewhere, who knows the server by its name."""
    port = proxy.rpartition(":")[2]
    headers = {"Authorization": f"Bearer {TOKEN}", "Host": f"{NAME}:{port}"}
    with httpx.Client(base_url=proxy, verify=_context(), headers=headers, timeout=60) as opened:
        yield opened


@pytest.mark.thorough
@needs_nginx
def test_names_arrive_as_they_were_sent(client: httpx.Client) -> None:
    for id in ("a/b", "50%", "ä ö", "..%2F", "a?b#c", "%2F"):
        path = f"/v1/topics/x%2Fy/jobs/{httpx.QueryParams({'': id})!s}".replace("=", "").replace("+", "%20")
        assert client.put(path, json={"body": 1, "delay": "1h"}).json()["id"] == id
        assert client.get(path).json()["topic"] == "x/y"
        assert client.delete(path).status_code == 204


@pytest.mark.thorough
@needs_nginx
def test_long_polls(client: httpx.Client, queue: Queue) -> None:
    queue.configure("t", create=True)
    with ThreadPoolExecutor(40) as threads:
        waiting = [threads.submit(client.post, "/v1/topics/t/take", params={"timeout": "60s"}) for _ in range(40)]
        queue.enqueue_many("t", ({"body": n, "delay": "200ms"} for n in range(40)))
        taken = [answer.result() for answer in waiting]
    assert {answer.status_code for answer in taken} == {200}
    assert len({answer.json()["job"]["id"] for answer in taken}) == 40
    for answer in taken:
        assert client.post("/v1/claims/finish", json={"claim": answer.json()["claim"]}).status_code == 204
    assert client.post("/v1/topics/t/take", params={"timeout": "1s"}).status_code == 204


@pytest.mark.thorough
@needs_nginx
def test_a_bulk_upload_goes_in_as_it_comes(client: httpx.Client, queue: Queue) -> None:
    arrived = threading.Event()

    def lines() -> Iterator[bytes]:
        for n in range(1000):
            yield b'{"id": "j%d", "body": "%s", "delay": "1h"}\n' % (n, b"x" * 4000)
        until(lambda: queue.stats().delayed >= 500, "the first batches are in before the last is sent")
        arrived.set()
        for n in range(1000, 1200):
            yield b'{"id": "j%d", "body": 1, "delay": "1h"}\n' % n

    answer = client.post("/v1/topics/t/bulk", content=lines(), headers={"Content-Type": "application/x-ndjson"})

    assert arrived.is_set()
    assert (answer.status_code, answer.json()["created"]) == (200, 1200)


@pytest.mark.thorough
@needs_nginx
def test_the_page_and_its_news(client: httpx.Client, queue: Queue) -> None:
    del client.headers["Authorization"]
    origin = {"Origin": f"https://{client.headers['Host']}"}
    refused = client.post("/login", data={"token": TOKEN}, headers={"Origin": "https://other.example"})
    assert refused.status_code == 403
    signed_in = client.post("/login", data={"token": TOKEN}, headers=origin)
    assert signed_in.status_code == 303
    cookie = signed_in.headers["set-cookie"]
    assert "Secure" in cookie
    session = {"Cookie": cookie.partition(";")[0]}
    queue.enqueue_many("orders", ({"body": n, "delay": "10m"} for n in range(7)))
    page = client.get("/", headers={**session, "HX-Request": "true"})
    assert (page.status_code, "7</b> due within 1h" in page.text) == (200, True)
    paused = client.post("/topics/orders/pause", data={"x": "1"}, headers={**session, **origin})
    assert paused.status_code == 303
    assert client.get(paused.headers["location"], headers=session).status_code == 200
    assert queue.stats("orders").topics["orders"].paused


@pytest.mark.thorough
@needs_nginx
def test_an_address_has_only_so_many_requests(limited_to_3: str, queue: Queue) -> None:
    queue.configure("t", create=True)
    with _from("127.0.0.2", limited_to_3) as one, _from("127.0.0.3", limited_to_3) as other:

        def take() -> httpx.Response:
            while True:  # the request below may be the third for a moment
                answer = one.post("/v1/topics/t/take", params={"timeout": "60s"})
                if answer.status_code != 429:
                    return answer

        with ThreadPoolExecutor(3) as threads:
            waiting = [threads.submit(take) for _ in range(3)]
            until(lambda: one.get("/v1/topics").status_code == 429, "a fourth request is refused")
            assert other.get("/v1/topics").status_code == 200
            queue.enqueue_many("t", ({"body": n} for n in range(3)))
            assert {answer.result().status_code for answer in waiting} == {200}
        assert one.get("/v1/topics").status_code == 200


@pytest.mark.thorough
@needs_nginx
def test_the_server_knows_who_asks(proxy: str, live: Live) -> None:
    """Its own limits of an address depend on that. What a caller says of itself counts for nothing."""
    with _from("127.0.0.2", proxy, token="wrong") as client:
        assert client.get("/v1/topics", headers={"X-Forwarded-For": "192.0.2.7"}).status_code == 401
    until(lambda: any(line["event"] == "refused" for line in live.log), "it says so")
    assert {line["peer"] for line in live.log if line["event"] == "refused"} == {"127.0.0.2"}


def test_nginx_gives_up_idle_connections_before_the_server_does() -> None:
    """A request that meets the server's end of one is lost, and a POST is not sent again."""
    (seconds,) = re.findall(r"keepalive_timeout (\d+)s;", CONFIG.read_text())
    assert int(seconds) < uvicorn.Config("").timeout_keep_alive


def test_the_page_shows_the_configuration() -> None:
    assert CONFIG.read_text() in (ROOT / "docs" / "serve.md").read_text()
