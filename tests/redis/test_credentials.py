"""A Redis user whose password changes while producers and workers are busy."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import unquote

import pytest
import redis
from redis.credentials import CredentialProvider, StreamingCredentialProvider

from streamdq import AsyncQueue, Queue, Worker
from streamdq.cli import app as cli
from streamdq.codec.offload import Offload
from streamdq.errors import AuthenticationFailed, InvalidInput, ServerUnavailable
from streamdq.link import connection, credentials
from tests.conftest import BINARIES
from tests.docs.reader import blocks
from tests.redis.harness import NAMESPACE, SETTINGS, Seen, Space, recorder
from tests.sentinels import Sentinels
from tests.servers import Cluster, Server
from tests.waiting import HANG_S

USER = "rotating"


class Vault(CredentialProvider):
    """``servers``: where the user is."""

    def __init__(self, servers: Sequence[redis.Redis]) -> None:
        self.password = ""
        self.asked = 0
        self.failure: Exception | None = None
        self._servers = servers
        self.change("first")

    def get_credentials(self) -> tuple[str, str]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return USER, self.password

    def change(self, password: str) -> None:
        """All connections end, and for a moment this vault has the old password."""
        for server in self._servers:
            server.execute_command("ACL", "SETUSER", USER, "on", "resetpass", f">{password}", "allkeys", "+@all", "&*")
            server.execute_command("CLIENT", "KILL", "USER", USER)
        self.password = password

    def close(self) -> None:
        for server in self._servers:
            server.execute_command("ACL", "DELUSER", USER)


class Streaming(Vault, StreamingCredentialProvider):
    def on_next(self, callback: credentials.InThread) -> None:  # type: ignore[override]
        self.tell = callback

    def on_error(self, callback: credentials.InThread) -> None:  # type: ignore[override]
        self.tell_error = callback

    def is_streaming(self) -> bool:
        return True


@contextmanager
def vault_of(*servers: Server, of: type[Vault] = Vault) -> Iterator[Vault]:
    with ExitStack() as stack:
        vault = of([stack.enter_context(server.client()) for server in servers])
        try:
            yield vault
        finally:
            vault.close()


@pytest.fixture
def vault(redis_server: Server) -> Iterator[Vault]:
    with vault_of(redis_server) as found:
        yield found


async def works_on_while_the_password_changes(url: str, vault: Vault, seen: Seen) -> None:
    worker = Worker(url, NAMESPACE, credential_provider=vault, settings=SETTINGS)
    worker.handler("t")(recorder(seen))
    count, rounds = 30, 3
    async with (
        Space(url).serving(worker),
        AsyncQueue(url, NAMESPACE, credential_provider=vault, settings=SETTINGS) as queue,
    ):
        with Queue(url, NAMESPACE, credential_provider=vault, settings=SETTINGS) as blocking:
            for n in range(rounds):
                jobs = [f"{n}-{i}" for i in range(count)]
                calls = [asyncio.create_task(queue.enqueue("t", job, id=job, on_conflict="keep")) for job in jobs]
                await asyncio.to_thread(vault.change, f"password {n}")
                await asyncio.to_thread(blocking.enqueue, "t", n, id=str(n), on_conflict="keep")
                await asyncio.gather(*calls)
        async with asyncio.timeout(HANG_S):
            while len(set(seen.all)) < rounds * (count + 1):
                await seen.count(len(seen) + 1)


async def test_one_server(redis_server: Server, vault: Vault, seen: Seen) -> None:
    await works_on_while_the_password_changes(redis_server.url, vault, seen)


@pytest.mark.thorough
async def test_a_cluster(redis_cluster: Cluster, seen: Seen) -> None:
    with vault_of(*redis_cluster.nodes) as vault:
        await works_on_while_the_password_changes(redis_cluster.url, vault, seen)


@pytest.mark.thorough
async def test_behind_sentinel(seen: Seen) -> None:
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    with Sentinels() as sentinels, vault_of(*sentinels.servers) as vault:
        await works_on_while_the_password_changes(sentinels.url, vault, seen)


def test_a_password_that_stays_wrong(redis_server: Server, vault: Vault) -> None:
    with Queue(redis_server.url, credential_provider=vault, settings=Space.quick()) as queue:
        vault.password = "s3cret"
        with pytest.raises(AuthenticationFailed, match="with what the credential provider gave") as caught:
            queue.stats()
    assert vault.asked > 1, "it is asked again: the next password may be right"
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("failure", [LookupError("the vault is closed"), FileNotFoundError("no such file")])
def test_a_provider_that_fails_from_the_start(redis_server: Server, vault: Vault, failure: Exception) -> None:
    with Queue(redis_server.url, credential_provider=vault, settings=Space.quick()) as queue:
        vault.failure = failure
        with pytest.raises(ServerUnavailable) as caught:
            queue.stats()
    said = f"the credential provider failed: {type(failure).__name__}: {failure}; nothing was sent to Redis at redis://"
    assert str(caught.value).startswith(said)
    assert vault.asked > 1, "it is asked again: the secret may be mounted a moment later"


def test_connections_log_in_again_and_with_the_last_password_while_the_provider_fails(
    redis_server: Server, vault: Vault, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(credentials, "_RENEW_S", 0.0)
    with Queue(redis_server.url, NAMESPACE, credential_provider=vault) as queue:
        queue.stats()
        asked = vault.asked
        vault.failure = LookupError("the vault is closed")
        queue.stats()
        queue.stats()
        assert vault.asked > asked + 1
    assert caplog.text.count("credential provider failed; the last credentials are used") == 1


async def test_a_storage_that_hangs_keeps_nobody_from_logging_in(
    redis_server: Server, vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_WORK_THREADS", 1)
    loop, hangs, goes_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def hang(*_: object) -> None:
        loop.call_soon_threadsafe(hangs.set)
        goes_on.wait()

    monkeypatch.setattr(Offload, "encode", hang)
    settings = SETTINGS.model_copy(
        update={"codec": "offload", "offload": f"file://{tmp_path}", "offload_over_bytes": 1000}
    )
    async with AsyncQueue(redis_server.url, NAMESPACE, credential_provider=vault, settings=settings) as queue:
        hanging = asyncio.ensure_future(queue.enqueue("t", "x" * 2000))
        try:
            await hangs.wait()
            vault.change("second")
            await queue.stats()
            hanging.cancel()
            await asyncio.wait([hanging])
        finally:
            goes_on.set()


async def test_news_of_a_provider_replace_all_connections(redis_server: Server) -> None:
    with vault_of(redis_server, of=Streaming) as vault:
        assert isinstance(vault, Streaming)
        with Queue(redis_server.url, NAMESPACE, credential_provider=vault) as queue:
            async with AsyncQueue(redis_server.url, NAMESPACE, credential_provider=vault) as awaited:
                for queues in (1, 2):
                    queue.stats()
                    await awaited.stats()
                    assert vault.asked == 2 * queues
                    queue.stats()
                    await awaited.stats()
                    assert vault.asked == 2 * queues, "the connections stay"
                    vault.tell(None)


def test_a_login_in_the_url_as_well(vault: Vault) -> None:
    for url in (
        "redis://user@h",
        "redis://:x@h",
        "redis://h?password=x",
        "redis+cluster://:x@h:1",
        "unix:///x?username=u",
    ):
        with pytest.raises(InvalidInput, match="there is a credential provider as well"):
            Queue(url, credential_provider=vault)


def test_servers_without_users_need_no_provider(vault: Vault) -> None:
    with Queue("memory://of-credentials", credential_provider=vault) as queue:
        queue.stats()
    assert vault.asked == 0


def files_of_the_page(folder: Path) -> None:
    for block in blocks(Path(__file__).parents[2] / "docs/managed.md"):
        if block.file:
            (folder / block.file).write_text(
                block.text.replace("/run/secrets", str(folder)).replace('"streamdq", P', f'"{USER}", P')
            )


def test_a_command_logs_in_with_the_provider_of_the_page(
    redis_server: Server, vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files_of_the_page(tmp_path)
    (tmp_path / "redis").write_text(f"{vault.password}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMDQ_CREDENTIAL_PROVIDER", "login:provider")
    assert cli.run(["--url", redis_server.url, "--namespace", NAMESPACE, "stats"]) == 0
    with redis_server.client() as admin:
        assert any(USER in str(one) for one in admin.execute_command("ACL", "LIST"))
        admin.execute_command("ACL", "SETUSER", USER, "off")
    assert cli.run(["--url", redis_server.url, "--namespace", NAMESPACE, "stats"]) != 0, "it used that user"


def test_the_page_s_token_for_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files_of_the_page(tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.syspath_prepend(str(tmp_path))
    user, token = importlib.import_module("aws").provider().get_credentials()
    assert user == "streamdq"
    assert token.startswith("shop-cache/?Action=connect&User=streamdq&X-Amz-Algorithm=AWS4-HMAC-SHA256&")
    assert "X-Amz-Expires=900" in token
    assert "/eu-central-1/elasticache/aws4_request" in unquote(token)
