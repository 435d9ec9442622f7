"""TLS with certificates made here, and proxies that are trusted."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import httpx
import pytest

from streamdq.cli import app as cli
from streamdq.config import HttpSettings
from streamdq.http.auth import Role, new_token
from tests.certificates import certificate
from tests.http.live import Live
from tests.servers import Server
from tests.waiting import until


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ssl-certfile", "/nowhere/cert.pem"], "'/nowhere/cert.pem' does not exist"),
        (["--ssl-certfile", "CERT", "--ssl-keyfile", "/nowhere/key.pem"], "'/nowhere/key.pem' does not exist"),
        (["--ssl-certfile", "CERT", "--ssl-keyfile", "OTHER"], "or --ssl-keyfile not its key"),
        (["--ssl-certfile", "CERT"], "or --ssl-keyfile not its key"),
        (["--ssl-keyfile", "OTHER"], "name the certificate with --ssl-certfile"),
    ],
)
def test_files_that_are_refused(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cert, _ = certificate(tmp_path, "server")
    _, other = certificate(tmp_path, "other")
    words = [{"CERT": str(cert), "OTHER": str(other)}.get(word, word) for word in arguments]
    assert cli.run(["--url", "redis://unused", "serve", "--port", "0", *words]) == 2
    assert message in capsys.readouterr().err


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
    assert cli.run(["--url", "redis://unused", "serve", "--port", "0"]) == 2
    message = capsys.readouterr().err
    assert "STREAMDQ_HTTP_TRUSTED_PROXIES: " in message
    assert "Value error" not in message
