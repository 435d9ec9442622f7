"""A user with the least rights can do all there is to do: a command that is new anywhere is missing here."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from sqlalchemy import create_engine

from streamdq import AsyncQueue, Bury, NewJob, Queue, Worker, outbox
from streamdq.cli import app as cli
from streamdq.config import HttpSettings, Settings
from streamdq.errors import AuthenticationFailed, NotDurable
from streamdq.http import Tokens, create_app
from streamdq.http.auth import Role, new_token
from streamdq.link.connection import AsyncLink
from streamdq.link.opening import open_session
from streamdq.mover.mover import Mover
from streamdq.operations.checks.acl import (
    CLUSTER_COMMANDS,
    FUNCTION_COMMANDS,
    TRACKING_COMMANDS,
    more_rights,
    rights,
)
from streamdq.store.redis_store import RedisStore
from streamdq.store.rights import COMMANDS
from tests.conftest import BINARIES
from tests.redis.harness import taken
from tests.sentinels import Sentinels
from tests.servers import Binary, Cluster, ClusterClient, Server
from tests.waiting import HANG_S, until

ROOT = Path(__file__).parents[2]
DISK_COMMANDS = ("config|get", "waitaof")  # of durable="disk"; a server has the one or the other
NAMESPACE, USER, PASSWORD = "shop", "streamdq", "s3cret"
LOGIN = f"{USER}:{PASSWORD}@"


def has_functions(client: redis.Redis) -> bool:
    return int(client.info("server")["redis_version"].split(".")[0]) >= 7


class Limited:
    """Servers on which the user has what ``rights`` says, and what was denied them."""

    def __init__(self, url: str, clients: Sequence[redis.Redis], cluster: bool = False) -> None:
        self.url = url.replace("://", f"://{LOGIN}")
        self._clients = clients
        for client in clients:
            client.execute_command(
                "ACL", "SETUSER", USER, "reset", "on", f">{PASSWORD}", *rights(NAMESPACE, cluster).split()
            )
            if has_functions(client):
                client.execute_command("ACL", "SETUSER", USER, *more_rights().split())
            client.execute_command("ACL", "LOG", "RESET")

    def denied(self) -> list[dict[str, Any]]:
        """But for the settings of a Redis without an append-only file, for which a worker asks at its start."""
        entries = [entry for client in self._clients for entry in client.acl_log()]
        return [entry for entry in entries if entry["object"] not in ("config", "config|get")]

    def change(self, right: str) -> None:
        for client in self._clients:
            client.execute_command("ACL", "SETUSER", USER, right)

    def client(self) -> ClusterClient:
        """With all rights."""
        first = self.url.replace(LOGIN, "").replace("redis+cluster", "redis").split(",")[0]
        client = ClusterClient.from_url(first)
        assert isinstance(client, ClusterClient)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.execute_command("ACL", "DELUSER", USER)


@pytest.fixture
def limited(redis_server: Server) -> Iterator[Limited]:
    with redis_server.client(decode_responses=True) as client:
        opened = Limited(redis_server.url, [client])
        yield opened
        opened.close()


@pytest.fixture
def limited_cluster(redis_cluster: Cluster) -> Iterator[Limited]:
    with ExitStack() as stack:
        clients = [stack.enter_context(node.client(decode_responses=True)) for node in redis_cluster.nodes]
        opened = Limited(redis_cluster.url, clients, cluster=True)
        yield opened
        opened.close()


def life(url: str) -> None:
    """All that can become of a job, and of a topic."""
    with Queue(url, NAMESPACE) as queue:
        queue.configure("t", shards=3, groups=["default", "audit"], ttr="30s", retry="0 0", rate=500)
        queue.enqueue_many("t", (NewJob(n, id=f"j{n}", delay="1h") for n in range(30)))
        queue.enqueue("t", 1, id="j0", on_conflict="replace", delay="1h")
        queue.enqueue("t", 1, id="j0", on_conflict="keep")
        queue.enqueue("t", 1, id="late", delay="1h", expire="1ms")
        assert queue.get("t", "j0") is not None
        assert queue.cancel("t", "j1")
        assert queue.reschedule("t", "j0", delay=0)
        for n in range(2, 12):
            assert queue.reschedule("t", f"j{n}", delay=0)
        assert queue.cancel("t", "late")
        ends: list[Callable[[Any], None]] = [
            lambda claim: claim.finish(), lambda claim: claim.fail("no"), lambda claim: claim.bury("no"),
            lambda claim: claim.touch("1ms"), lambda claim: claim.finish(), lambda claim: claim.finish(),
        ]  # fmt: skip
        for end in ends:
            claim = taken(queue, "t", timeout=HANG_S)
            end(claim)
        until(
            lambda: any(topic.groups["default"].reclaimed for topic in queue.stats("t").topics.values()), "taken over"
        )
        queue.pause("t")
        queue.resume("t")
        (dead, *_) = queue.dead("t")
        assert queue.kick("t", dead.id) == 1
        queue.configure("t", groups=["default"])
        queue.purge("t", all=True)
        for n in range(12, 30):
            assert queue.cancel("t", f"j{n}")
        queue.stats()
        queue.upcoming()
        queue.history("t")
        assert queue.job_history("t", dead.id)
        assert queue.audit().balanced
        queue.doctor()
        queue.configure("gone", shards=2)
        queue.delete_topic("gone")
        queue.enqueue("gone", 1)
        queue.delete_topic("gone", force=True)


async def work(url: str) -> None:
    worker = Worker(url, NAMESPACE)

    @worker.handler("t", ttr="20s")
    def give_up(body: int) -> None:
        raise Bury(f"no use for {body}")

    @worker.every_topic
    def other(body: object) -> None:
        pass

    async with AsyncQueue(url, NAMESPACE) as queue:
        await queue.enqueue_many("t", (NewJob(n, id=f"w{n}") for n in range(5)))
        await queue.enqueue("u", 1, id="u", delay="50ms")
        await worker.serve(burst=True)
        assert await queue.get("u", "u") is None
        assert len(await queue.dead("t")) >= 5


async def over_http(url: str) -> None:
    token, line = new_token("admin", [Role.ADMIN])
    app = create_app(
        url, NAMESPACE, tokens=Tokens.parse(line), http=HttpSettings(), settings=Settings(url="memory://x")
    )
    async with app.router.lifespan_context(app), httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://localhost", timeout=HANG_S,
        headers={"Authorization": f"Bearer {token}"},
    ) as client:  # fmt: skip
        lines: dict[str, Any] = {"content": b'{"body": 1}\n' * 20, "headers": {"Content-Type": "application/x-ndjson"}}
        claims = []
        for how in (
            await client.put("/v1/topics/h/jobs/a", json={"body": 1}),
            await client.post("/v1/topics/h/bulk", **lines),
            *[await client.post("/v1/topics/h/take?timeout=5s") for _ in range(3)],
            await client.get("/health/ready"), await client.get("/metrics"), await client.get("/v1/topics/t/dead"),
            await client.get("/v1/stats"), await client.get("/v1/topics"), await client.get("/v1/audit"),
        ):  # fmt: skip
            assert how.is_success, how.text
            claims += [how.json()["claim"]] if how.text.startswith('{"claim"') else []
        for claim, end in zip(claims, ("finish", "release", "bury"), strict=True):
            ended = await client.post(
                f"/v1/claims/{end}", json={"claim": claim, "reason": "no"} if end == "bury" else {"claim": claim}
            )
            assert ended.is_success, ended.text
        signed_in = await client.post("/login", data={"token": token}, headers={"Origin": "http://localhost"})
        assert signed_in.status_code == 303
        for state in ("delayed", "ready", "running", "dead"):
            assert (await client.get(f"/topics/h?state={state}")).status_code == 200
        for path in ("/", "/topics/h/jobs/a"):
            assert (await client.get(path)).status_code == 200
        assert (
            await client.post("/logout", data={"bye": "1"}, headers={"Origin": "http://localhost"})
        ).status_code == 303


def by_commands(url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = f"sqlite:///{folder / 'dead.db'}"
    for words, code in {
        ("enqueue", "c", "1", "--id", "a"): 0, ("dead", "list", "t"): 0, ("stats",): 0, ("upcoming",): 0,
        ("audit",): 0, ("dump", "--out", str(folder / "dump")): 0, ("archive", "--to", archive): 0,
        ("archive", "kick", "--from", archive, "--all"): 0, ("dead", "purge", "t", "--all"): 1,
        ("callback", "--topic", "c", "--burst", "--allow", "127.0.0.1"): 0, ("doctor",): 1,
    }.items():  # fmt: skip
        assert cli.run(["--url", url, "--namespace", NAMESPACE, *words]) == code, (words, capsys.readouterr())
    by_outbox(url, f"sqlite:///{folder / 'shop.db'}")
    (manifest,) = re.findall(r'"id": ?"([^"]+)"', (folder / "dump" / "manifest.json").read_text())[:1]
    assert cli.run(["--url", url, "--namespace", NAMESPACE, "forget-dump", manifest]) == 0


def by_outbox(url: str, source: str) -> None:
    words = ["--url", url, "--namespace", NAMESPACE, "outbox"]
    assert cli.run([*words, "create", "--from", source]) == 0
    engine = create_engine(source)
    with engine.begin() as db:
        outbox.enqueue(db, "o", 1, id="a", namespace=NAMESPACE)
        outbox.enqueue(db, "o", 1, id="a", namespace=NAMESPACE, on_conflict="replace")
    engine.dispose()
    for command in (["relay", "--burst", "--keep"], ["reconcile"]):
        assert cli.run([*words, *command, "--from", source]) == 0


async def everything(limited: Limited, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:

    await asyncio.to_thread(life, limited.url)
    await work(limited.url)
    await over_http(limited.url)
    await asyncio.to_thread(by_commands, limited.url, folder, capsys)
    assert limited.denied() == []


@pytest.mark.thorough
async def test_alone(limited: Limited, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await everything(limited, tmp_path, capsys)


@pytest.mark.thorough
async def test_in_a_cluster(limited_cluster: Limited, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await everything(limited_cluster, tmp_path, capsys)


@pytest.mark.thorough
async def test_behind_sentinels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    with Sentinels() as sentinels, sentinels.primary.client(decode_responses=True) as client:
        await everything(Limited(sentinels.url, [client]), tmp_path, capsys)


def test_other_keys_and_channels_and_rights_are_not_theirs(limited: Limited, redis_server: Server) -> None:
    with redis.Redis.from_url(limited.url) as client:
        for words in (
            ("GET", "other"), ("HGETALL", "{shop2}:topics"), ("HGETALL", "shop:2:{t:0}:jobs"), ("FLUSHALL",),
            ("KEYS", "*"), ("CONFIG", "GET", "*"), ("ACL", "WHOAMI"), ("PUBLISH", "x", "y"), ("CLIENT", "LIST"),
        ):  # fmt: skip
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*words)
    with Queue(limited.url, "shop2") as queue, pytest.raises(AuthenticationFailed, match="doctor --acl"):
        queue.enqueue("t", 1)
    del redis_server


def test_replicas_may_be_waited_for(limited: Limited, soon: Settings) -> None:
    with Queue(limited.url, NAMESPACE, settings=soon) as queue, pytest.raises(NotDurable, match="0 of 1 replicas"):
        queue.enqueue("t", 1, durable="replicas:1")
    assert limited.denied() == []


def put_and_take(queue: Queue) -> None:
    queue.enqueue("t", 1)
    queue.take("t", timeout="1s")


def test_without_a_single_right_no_script_is_called(limited: Limited, redis_server: Server) -> None:
    """Redis would end a script half way: the first call says what is missing, and nothing is written."""
    with redis_server.client() as client:
        for right in COMMANDS:
            if right in ("select", "wait", *(("evalsha",) if has_functions(client) else ())):  # only some send them
                continue
            limited.change(f"-{right}")
            with Queue(limited.url, NAMESPACE) as queue, pytest.raises(AuthenticationFailed, match=right) as raised:
                queue.configure("t", create=True)
            assert "doctor --acl" in str(raised.value)
            assert client.dbsize() == 0, right
            limited.change(f"+{right}")
        with Queue(limited.url, NAMESPACE) as queue:
            put_and_take(queue)


@pytest.mark.parametrize("binary", BINARIES, ids=lambda binary: binary.name)
def test_a_command_that_the_server_has_under_another_name(binary: Binary, tmp_path: Path) -> None:
    """Valkey says of it what others say of commands that have not begun: a script that had ended half way was called
    again, found its job, and it counted as enqueued.
    """
    renamed = tmp_path / "renamed.conf"
    renamed.write_text("rename-command ZADD hidden\n")
    with Server(binary, options={"include": str(renamed)}) as server, server.client() as client:
        with Queue(server.url) as queue, pytest.raises(AuthenticationFailed, match=r"user \+zadd\. .*rename-command"):
            queue.enqueue("t", 1, delay="1h")
        assert client.dbsize() == 0


def test_the_doctor_says_what_it_cant_check_without_config(binary: Binary, tmp_path: Path) -> None:
    """As with managed services. What INFO tells, it checks all the same."""
    renamed = tmp_path / "renamed.conf"
    renamed.write_text('rename-command CONFIG ""\n')
    options = {"include": str(renamed), "maxmemory": "1gb"}
    with Server(binary, options=options) as server, Queue(server.url) as queue:
        found = {one.what: one.verdict for one in queue.doctor()}
    (what,) = (what for what in found if "append-only" in what)
    assert "CONFIG is no command here, as with managed services" in what
    assert found[what] == "advice"
    assert found["maxmemory-policy is noeviction"] == "ok"
    assert "problem" not in found.values()


def test_the_doctor_says_what_this_user_may_not_check(limited: Limited) -> None:
    with Queue(limited.url, NAMESPACE) as queue:
        (found,) = (one for one in queue.doctor() if "append-only" in one.what)
    assert (found.verdict, "lacks +config|get" in found.what) == ("problem", True)


def test_all_that_is_missing_is_reported_at_once(limited: Limited) -> None:
    limited.change("-@sortedset")
    with Queue(limited.url, NAMESPACE) as queue, pytest.raises(AuthenticationFailed, match=r"\+zadd \+zcard") as raised:
        queue.enqueue("t", 1)
    reported = set(re.findall(r"\+(\w+)", str(raised.value)))
    assert reported == {name for name in COMMANDS if name.startswith("z")}
    with Queue(limited.url, NAMESPACE) as queue:
        (found,) = [found for found in queue.doctor() if "may not run" in found.what]
    assert found.verdict == "problem"
    assert set(re.findall(r"\bz\w+", found.what)) == reported


def test_a_right_that_is_taken_from_a_running_process(limited: Limited) -> None:
    """The script that meets it ends there. None follows, until the right is back."""
    with Queue(limited.url, NAMESPACE) as queue:
        put_and_take(queue)
        limited.change("-zadd")
        with pytest.raises(AuthenticationFailed, match=r"script.* doctor --acl"):
            queue.enqueue("t", 1, id="met it", delay="1h")
        assert queue.audit().balanced is False
        for _ in range(2):
            with pytest.raises(AuthenticationFailed, match=r"Grant \+zadd by"):
                queue.enqueue("t", 1, id="not called", delay="1h")
        assert queue.get("t", "not called") is None
        limited.change("+zadd")
        queue.enqueue("t", 1, id="called", delay="1h")
        assert queue.get("t", "called") is not None


async def test_a_process_that_lacks_a_right_does_not_start(limited: Limited, redis_server: Server) -> None:
    limited.change("-hincrby")
    worker = Worker(limited.url, NAMESPACE)
    worker.handler("t")(lambda _: None)
    with pytest.raises(AuthenticationFailed, match=r"\+hincrby"):
        await asyncio.wait_for(worker.serve(), HANG_S)
    link, session = open_session(limited.url, NAMESPACE, None, None, AsyncLink)
    mover = Mover(link, RedisStore(session), "m", asyncio.Event())
    with pytest.raises(AuthenticationFailed, match=r"\+hincrby"):
        await asyncio.wait_for(mover.run(), HANG_S)
    await link.close()
    with redis_server.client() as client:
        assert client.dbsize() == 0


async def test_a_worker_that_may_not_wait_on_a_cluster_does_not_start(limited_cluster: Limited) -> None:
    """It would learn of no job and no wakeup. Nor does it get the lease of the active mover, or a mover alone."""
    with Queue(limited_cluster.url, NAMESPACE) as queue:
        queue.configure("t", shards=3)
        assert [found.verdict for found in queue.doctor() if "wait for jobs" in found.what] == ["ok"]
        limited_cluster.change("-client")
        try:
            (found,) = (found for found in queue.doctor() if "wait for jobs" in found.what)
            assert (found.verdict, "doctor --acl" in found.advice) == ("problem", True)
            assert "client" in found.what.lower()
            worker = Worker(limited_cluster.url, NAMESPACE)
            worker.handler("t")(lambda _: None)
            with pytest.raises(AuthenticationFailed, match=r"\+client\|tracking"):
                await asyncio.wait_for(worker.serve(), HANG_S)
            link, session = open_session(limited_cluster.url, NAMESPACE, None, None, AsyncLink)
            mover = Mover(link, RedisStore(session), "m", asyncio.Event())
            with pytest.raises(AuthenticationFailed, match=r"\+client\|tracking"):
                await asyncio.wait_for(mover.run(), HANG_S)
            await link.close()
            with limited_cluster.client() as client:
                assert client.get(session.keys.mover) is None
        finally:
            limited_cluster.change("+client|tracking")
        queue.delete_topic("t", force=True)


def test_the_list_names_what_is_sent_and_nothing_else(redis_server: Server) -> None:
    with redis_server.client() as client:
        known = {name.lower() for name in client.command()}
    lua = {
        name.lower()
        for path in (ROOT / "lua").rglob("*.lua")
        for name in re.findall(r"redis\.p?call\('(\w+)'", path.read_text())
    }
    sources = [path.read_text() for path in (ROOT / "streamdq").rglob("*.py")]
    python = {
        node.value.lower()
        for source in sources
        if not known.isdisjoint(map(str.lower, re.findall(r"[\"']([A-Z]{3,})[\"']", source)))  # parsing takes long
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[A-Z]{3,}", node.value)
    }
    sent = lua | (python & known)
    by_the_client = {"select"}  # for a URL with a database
    some = (*CLUSTER_COMMANDS, *DISK_COMMANDS, *FUNCTION_COMMANDS, *TRACKING_COMMANDS)
    of_some = {name.partition("|")[0] for name in some}
    assert set(COMMANDS) - by_the_client == sent - of_some - WORDS
    assert list(COMMANDS) == sorted(COMMANDS)


WORDS = {"delete", "post", "readonly"}  # of HTTP, and in Redis's errors


def test_a_namespace_that_can_not_be_one_gets_no_rights(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--namespace", "a*b", "doctor", "--acl"]) == 2
    assert "namespace: 'a*b'" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["redis://none:1", "redis+cluster://none:1"])
def test_doctor_prints_them(redis_server: Server, capsys: pytest.CaptureFixture[str], url: str) -> None:
    """Redis need not be there, and takes the line as it is."""
    assert cli.run(["--url", url, "--namespace", NAMESPACE, "doctor", "--acl"]) == 0
    line, more = capsys.readouterr().out.splitlines()
    assert line == f"ACL SETUSER {USER} on resetpass >PASSWORD {rights(NAMESPACE, 'cluster' in url)}"
    assert more == f"ACL SETUSER {USER} {more_rights()}"
    with redis_server.client() as client:
        assert client.execute_command(*line.split()) == b"OK"
        if has_functions(client):
            assert client.execute_command(*more.split()) == b"OK"
        client.execute_command("ACL", "DELUSER", USER)
    page = (ROOT / "docs" / "redis.md").read_text()
    assert rights("streamdq") in " ".join(page.split())
    assert more_rights() in page
