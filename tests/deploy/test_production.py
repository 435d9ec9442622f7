"""examples/production: the commands of its README, with a server that gets what the Compose file gives it."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from streamdq import Queue
from streamdq.cli import app as cli
from tests.servers import Server, binaries, free_port

HERE = Path(__file__).parents[2] / "examples" / "production"
README = (HERE / "README.md").read_text()
SERVICES: dict[str, Any] = yaml.safe_load((HERE / "compose.yaml").read_text())["services"]
SPEAKING_TLS = [binary for binary in binaries() if binary.speaks_tls]
# Docker prints what the container would, and files keep their owner.
SHIMS = """
set -eu
docker() { case "$*" in *"doctor --acl") cat rights ;; esac; }
sudo() { [ "$1" = chown ] || "$@"; }
"""


def run(folder: Path, *commands: str) -> str:
    script = SHIMS + "\n".join(commands)
    done = subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown(heading: str) -> list[str]:
    """The blocks of commands under it."""
    part = README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [textwrap.dedent(block) for block in re.findall(r"^ *```sh\n(.*?)^ *```", part, re.DOTALL | re.MULTILINE)]


def changing(start: str) -> str:
    """The command of *Change the password* that starts so."""
    part = README.partition("\n## Change the password\n")[2].replace("\n   ", " ")
    return next(text for text in re.findall(r"`([^`]+)`", part) if text.startswith(start))


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """As it is after the section *Before the first start*."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine")
    assert cli.run(["doctor", "--acl"]) == 0
    (tmp_path / "rights").write_text(capsys.readouterr().out)
    for name in ("oauth2-proxy.env", "grafana.env"):
        (tmp_path / name).touch()
    run(tmp_path, "umask 022", *shown("Before the first start"), 'echo "$admin" > admin')
    return tmp_path


def test_nobody_else_reads_the_secrets(folder: Path) -> None:
    passwords = [(folder / name).read_text().strip() for name in ("admin", "secrets/redis")]
    assert all(len(password) == 32 for password in passwords)
    users = (folder / "acl" / "users.acl").read_text()
    assert not [password for password in passwords if password in users]
    for name in ("secrets", "acl", "tls/valkey", "tls/nginx"):
        assert (folder / name).stat().st_mode & 0o777 == 0o700, name
    for name in ("oauth2-proxy.env", "grafana.env", "ca.key"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600, name
    ignored = (HERE / "Dockerfile.dockerignore").read_text().splitlines()
    assert [line for line in ignored if line[:1] != "#"] == ["*", "!shop.py", "!login.py"]


def test_what_is_replaced_on_the_host_is_replaced_in_the_containers() -> None:
    """A mounted file stays the old one."""
    secret = [
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if volume.startswith(("./tls", "./acl", "./secrets"))
    ]
    assert len(secret) > 10
    assert not [path for path in secret if Path(path).suffix]


def provider_of(folder: Path) -> Any:
    names: dict[str, Any] = {}
    source = (HERE / "login.py").read_text()
    assert source.count("/run/secrets/") == 1
    exec(source.replace("/run/secrets/", f"{folder}/secrets/"), names)
    return names["provider"]


@pytest.mark.skipif(not SPEAKING_TLS, reason="no Redis with TLS on this machine")
def test_the_password_and_the_certificate_change_while_jobs_come(folder: Path) -> None:
    _, *words = shlex.split(SERVICES["valkey"]["command"])
    mounts = dict(reversed(volume.split(":")[:2]) for volume in SERVICES["valkey"]["volumes"] if volume[:1] == ".")
    options = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}
    for name, value in options.items():
        if (outside := mounts.get(str(Path(value).parent))) is not None:
            options[name] = str(folder / outside / Path(value).name)
    port, users = free_port(), folder / "acl" / "users.acl"
    ready = users.read_text()
    users.write_text("user default on nopass ~* &* +@all\n")  # so that the harness sees the server start
    del options["port"]
    admin = (folder / "admin").read_text().strip()
    authority, old = folder / "tls" / "ca" / "ca.pem", (folder / "secrets" / "redis").read_text().strip()
    with (
        Server(SPEAKING_TLS[-1], options={**options, "tls-port": str(port)}) as server,
        server.client() as client,
        Queue(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority}&ssl_check_hostname=no",
              credential_provider=provider_of(folder)) as queue,
    ):  # fmt: skip

        def load(text: str) -> None:
            users.write_text(text)
            assert client.execute_command("ACL", "LOAD")

        load(ready)
        client.execute_command("AUTH", "default", admin)
        queue.enqueue("order.close", {"order_id": 1}, id="1", delay="1h")

        printed, new = (word.strip() for word in run(folder, changing("new="), "echo $new").split("-"))
        assert printed == hashlib.sha256(new.encode()).hexdigest()
        hashed_old = f"#{hashlib.sha256(old.encode()).hexdigest()}"
        assert ready.count(hashed_old) == 1
        load(ready.replace(hashed_old, f"{hashed_old} #{printed}"))
        queue.enqueue("order.close", {"order_id": 2}, id="2", delay="1h")
        run(folder, f"new={new}", changing("echo $new"))
        queue.enqueue("order.close", {"order_id": 3}, id="3", delay="1h")
        load(ready.replace(hashed_old, f"#{printed}"))
        client.client_kill_filter(_type="normal", skipme=True)
        queue.enqueue("order.close", {"order_id": 4}, id="4", delay="1h")
        with server.client() as other, pytest.raises(redis.AuthenticationError):
            other.execute_command("AUTH", "streamdq", old)

        _, _, certificate = shown("Before the first start")[0].partition("openssl req -newkey")
        run(folder, f"openssl req -newkey{certificate}")
        assert client.config_set("tls-cert-file", str(folder / mounts["/tls"] / "valkey.pem"))
        client.client_kill_filter(_type="normal", skipme=True)
        queue.enqueue("order.close", {"order_id": 5}, id="5", delay="1h")
        assert queue.audit().balanced
