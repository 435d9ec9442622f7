"""The audit log: who did what, from where."""

from __future__ import annotations

import json
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamdq.errors import InvalidInput
from streamdq.http import Tokens, create_app, refusals
from streamdq.http.audit_log import AuditLog
from streamdq.http.auth import Role, new_token
from tests.http.conftest import Open
from tests.http.harness import kind
from tests.http.live import Live
from tests.servers import Server
from tests.waiting import until

TOKEN, LINE = new_token("clerk", [Role.PRODUCER, Role.WORKER, Role.VIEWER])
BOSS, BOSS_LINE = new_token("boss", [Role.ADMIN])
TOKENS = Tokens.parse(f"{LINE}\n{BOSS_LINE}")


def lines_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_every_request_that_changes_something_has_a_line(open_api: Open, tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    api = await open_api(token=TOKEN, tokens=TOKENS, audit_log=file)
    await api.put("a", "s3cret")
    await api.put("a", "another")
    posted = (await api.client.post("/v1/topics/t/jobs", json={"body": 1, "delay": "1h"})).json()["id"]
    await api.get("a")
    claim = (await api.take()).json()["claim"]
    await api.end("finish", claim)
    await api.client.delete(api.job("t", posted))
    boss = {"Authorization": f"Bearer {BOSS}"}
    await api.client.post("/v1/topics/t/pause", headers=boss)
    await api.client.post("/v1/topics/t/pause")  # refused: that has a line, too
    form = {"Origin": "http://localhost"}
    await api.client.post("/login", data={"token": BOSS}, headers=form)
    await api.client.post("/topics/t/resume", data={"x": ""}, headers=form)
    lines = lines_in(file)
    who = {"roles": "producer,viewer,worker", "who": "clerk", "peer": "127.0.0.1"}
    boss_is = {"roles": "admin", "who": "boss", "peer": "127.0.0.1"}
    assert all(line.pop("at").endswith("+00:00") for line in lines)
    assert lines == [
        who | {"action": "put_job", "topic": "t", "id": "a", "status": 201},
        who | {"action": "put_job", "topic": "t", "id": "a", "failed": "job-exists"},
        who | {"action": "post_job", "topic": "t", "id": posted, "status": 201},
        who | {"action": "take_job", "topic": "t", "id": "a", "group": "default", "status": 200},
        who | {"action": "finish_claim", "topic": "t", "id": "a", "group": "default", "status": 204},
        who | {"action": "cancel_job", "topic": "t", "id": posted, "status": 204},
        boss_is | {"action": "pause_topic", "topic": "t", "status": 200},
        who | {"action": "pause_topic", "topic": "t", "failed": "forbidden"},
        boss_is | {"action": "login", "status": 303},
        boss_is | {"action": "resume", "topic": "t", "status": 303},
    ]
    for secret in ("s3cret", TOKEN, BOSS, claim):
        assert secret not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


async def test_a_failure_is_named_as_its_problem(open_api: Open, tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    api = await open_api(token=BOSS, tokens=TOKENS, audit_log=file)
    sent = {"Content-Type": "application/json"}
    for content in (b"{", b"[" * 200_000, b'{"body": null}', b'{"x": 1}'):
        await api.client.put(api.job("t", "a"), content=content, headers=sent)
    await api.client.put(api.job("t", "a"), content=b"{}", headers={"Content-Type": "text/plain"})
    await api.client.post("/v1/topics/none/dead/purge", json={"all": True, "group": "audit"})
    await api.end("finish", "v1.x.y")
    assert [line["failed"] for line in lines_in(file)] == [
        "malformed", "malformed", "invalid-input", "invalid-input", "unsupported-media-type", "unknown-topic",
        "invalid-input",
    ]  # fmt: skip
    assert lines_in(file)[-2]["group"] == "audit"


async def test_strangers_have_no_more_lines_than_in_the_log(
    open_api: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "_PER_S", 0.0)  # however long this takes, no room for a line comes back
    file = tmp_path / "audit.log"
    api = await open_api(token="sdq_guessed", tokens=TOKENS, audit_log=file)
    with capture_logs() as logs:
        for n in range(150):
            await api.put(f"a{n}")
        for _ in range(50):
            await api.client.post("/login", data={"token": "x"}, headers={"Origin": "http://localhost"})
        api.client.headers["Authorization"] = f"Bearer {TOKEN}"
        await api.client.post("/v1/topics/t/pause")
    refused = [line for line in logs if line["event"] == "refused"]
    *strangers, last = lines_in(file)
    assert len(strangers) == len(refused) == 60
    assert {(line["who"], line["roles"], line["action"]) for line in strangers} == {("", "", "put_job")}
    assert {line["failed"] for line in strangers} == {"unauthenticated"}
    assert (last["who"], last["failed"]) == ("clerk", "forbidden")  # whom it knows it tells of in any case


async def test_without_a_file_it_is_in_the_log(open_api: Open) -> None:
    api = await open_api(token=BOSS, tokens=TOKENS)
    with capture_logs() as logs:
        await api.put("a")
        await api.client.delete(api.job("t", "a"))
    assert [(line["action"], line["log_level"]) for line in logs] == [("put_job", "debug"), ("cancel_job", "info")]


async def test_a_file_that_takes_no_more_refuses_nobody(open_api: Open) -> None:
    api = await open_api(audit_log=Path("/dev/full"))
    with capture_logs() as logs:
        for _ in range(3):
            assert (await api.put("a")).status_code in (200, 201)
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["audit log not written"]


def test_a_line_that_was_cut_spoils_no_other(tmp_path: Path) -> None:
    """The limit on a file's size stands for a disk with room for half a line."""
    file = tmp_path / "audit.log"
    audit = AuditLog(file)
    _, hard = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with capture_logs() as logs:
        audit.tell(True, {"action": "first"})
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 20, hard))
        try:
            audit.tell(True, {"action": "cut"})
            audit.tell(True, {"action": "lost"})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        audit.tell(True, {"action": "last"})
    audit.close()
    first, cut, last = file.read_text().splitlines()
    assert [json.loads(line)["action"] for line in (first, last)] == ["first", "last"]
    assert len(cut) == 20
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["audit log not written"]


def test_a_file_that_can_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="audit log"):
        create_app("memory://unused", authentication="mine", audit_log=tmp_path / "none" / "audit.log")


def test_it_is_opened_again_when_it_was_moved(redis_server: Server, tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    with Live(redis_server.url, "--audit-log", str(file)) as live, live.client() as client:
        client.put("/v1/topics/t/jobs/a", json={"body": 1})
        file.rename(tmp_path / "audit.1")
        live.process.send_signal(signal.SIGHUP)
        until(file.exists, "it is reopened")
        until(lambda: any(line["event"] == "audit log reopened" for line in live.log), "it says so")
        client.put("/v1/topics/t/jobs/b", json={"body": 1})
        assert kind(client.get("/v1/topics/t/jobs/c")) == "no-job"
    assert [line["id"] for line in lines_in(file)] == ["b"]
    assert [line["id"] for line in lines_in(tmp_path / "audit.1")] == ["a"]
