"""TLS with certificates made here, and proxies that are trusted."""

from __future__ import annotations

import os
import signal
import ssl
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from streamdq.cli import app as cli
from streamdq.config import HttpSettings
from streamdq.http.auth import Role, new_token
from tests.certificates import certificate
from tests.http.live import Live
from tests.http.test_limits import connect, open_files
from tests.servers import Server
from tests.waiting import until


def shown(live: Live) -> str:
    return ssl.get_server_certificate(("127.0.0.1", live.port))


def test_it_speaks_tls(redis_server: Server, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "first", "locked")
    token, line = new_token("boss", [Role.ADMIN])
    (tmp_path / "tokens").write_text(line)
    files = ["--ssl-certfile", str(cert), "--ssl-keyfile", str(key), "--tokens-file", str(tmp_path / "tokens")]
    environment = {**os.environ, "STREAMDQ_HTTP_SSL_KEYFILE_PASSWORD": "locked"}
    with Live(redis_server.url, *files, env=environment) as live:
        assert live.url.startswith("https://")
        live.verify = ssl.create_default_context(cafile=str(cert))
        with live.client(token) as client:
            assert client.put("/v1/topics/t/jobs/a", json={"body": "x" * 100_000}).status_code == 201
            claim = client.post("/v1/topics/t/take", params={"timeout": "60s"}).json()["claim"]
            assert client.post("/v1/claims/finish", json={"claim": claim}).status_code == 204
            form = {"Origin": live.url}
            assert "Secure" in client.post("/login", data={"token": token}, headers=form).headers["set-cookie"]
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"http://127.0.0.1:{live.port}/health/alive")
        assert shown(live).strip() == cert.read_text().strip()
        renewed, renewed_key = certificate(tmp_path, "second", "locked")
        renewed.rename(cert)
        renewed_key.rename(key)
        live.process.send_signal(signal.SIGHUP)
        until(lambda: shown(live).strip() == cert.read_text().strip(), "the renewed certificate is shown")
        before = shown(live)
        key.write_text("no key")
        live.process.send_signal(signal.SIGHUP)
        until(lambda: any(line["event"] == "certificate not reloaded" for line in live.log), "it says so")
        assert shown(live) == before
        assert live.stop() == 0


def test_callers_must_have_a_certificate_where_that_is_asked(redis_server: Server, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "server")
    own, own_key = certificate(tmp_path, "caller")
    files = ["--ssl-certfile", str(cert), "--ssl-keyfile", str(key), "--ssl-ca-certs", str(own)]
    with Live(redis_server.url, *files) as live:
        live.verify = context = ssl.create_default_context(cafile=str(cert))
        with live.client() as client, pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            client.get("/health/alive")
        context.load_cert_chain(own, own_key)
        with live.client() as client:
            assert client.get("/health/alive").status_code == 200


@pytest.mark.thorough
@pytest.mark.parametrize("loop", ["uvloop", pytest.param("asyncio", marks=pytest.mark.thorough)])
def test_callers_that_never_shake_hands_keep_nobody_out(redis_server: Server, tmp_path: Path, loop: str) -> None:
    cert, key = certificate(tmp_path, "server")
    files = ["--ssl-certfile", str(cert), "--ssl-keyfile", str(key)]
    environment = {**os.environ, "STREAMDQ_HTTP_HEADER_TIMEOUT_S": "5"}
    with Live(redis_server.url, *files, files=256, loop=loop, env=environment) as live, ExitStack() as opened:
        live.verify = ssl.create_default_context(cafile=str(cert))
        silent = [opened.enter_context(connect(live)) for _ in range(300)]
        until(lambda: answers(live), "another caller is served")
        assert open_files(live) < 200
        assert silent[-1].recv(1) == b""  # it was given up
        until(lambda: open_files(live) < 50, "no file is left open for them")
        assert answers(live)
        begun = opened.enter_context(connect(live))
        begun.sendall(b"\x16\x03\x01")
        assert live.stop() == 0


def answers(live: Live) -> bool:
    try:
        with live.client() as client:
            return client.get("/health/alive").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--ssl-certfile", "/nowhere/cert.pem"], "tls: can't read /nowhere/cert.pem"),
        (["--ssl-certfile", "CERT", "--ssl-keyfile", "/nowhere/key.pem"], "tls: can't read /nowhere/key.pem"),
        (["--ssl-certfile", "CERT", "--ssl-keyfile", "LOCKED"], "no certificate and its key"),
        (["--ssl-certfile", "CERT"], "is --ssl-keyfile missing?"),
        (["--ssl-keyfile", "LOCKED"], "name the certificate with --ssl-certfile"),
    ],
)
def test_files_that_are_refused(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cert, _ = certificate(tmp_path, "server")
    _, locked = certificate(tmp_path, "other", "secret")
    words = [{"CERT": str(cert), "LOCKED": str(locked)}.get(word, word) for word in arguments]
    assert cli.run(["--url", "memory://unused", "serve", "--port", "0", *words]) == 2
    assert told in capsys.readouterr().err


def refused_peer(live: Live, forwarded: str) -> str:
    """Whose request it says that it refused."""
    live.log.clear()
    with live.client() as client:
        client.get("/v1/topics", headers={"X-Forwarded-For": forwarded})
    until(lambda: any(line["event"] == "refused" for line in live.log), "it says so")
    return str(next(line["peer"] for line in live.log if line["event"] == "refused"))


@pytest.mark.parametrize(
    ("trusted", "peer"),
    [
        ("10.0.0.0/8, 127.0.0.1", "192.0.2.7"),
        *(pytest.param(other, "127.0.0.1", marks=pytest.mark.thorough) for other in ("", "10.0.0.0/8")),
    ],
)
def test_who_asks_is_what_a_trusted_proxy_says(redis_server: Server, tmp_path: Path, trusted: str, peer: str) -> None:
    (tmp_path / "tokens").write_text("")
    environment = {**os.environ, "STREAMDQ_HTTP_TRUSTED_PROXIES": trusted}
    with Live(redis_server.url, "--tokens-file", str(tmp_path / "tokens"), env=environment) as live:
        assert refused_peer(live, "203.0.113.9, 192.0.2.7, 10.1.2.3") == peer


@pytest.mark.parametrize("text", ["*", "proxy.example", "10.0.0.0/99"])
def test_proxies_are_addresses(text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="trusted_proxies"):
        HttpSettings(trusted_proxies=text)
    monkeypatch.setenv("STREAMDQ_HTTP_TRUSTED_PROXIES", text)
    assert cli.run(["--url", "memory://unused", "serve", "--port", "0"]) == 2
    told = capsys.readouterr().err
    assert "STREAMDQ_HTTP_TRUSTED_PROXIES: " in told
    assert "Value error" not in told
