"""Who may do what, and from where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from structlog.testing import capture_logs

from streamdq.errors import InvalidInput
from streamdq.http import Tokens
from streamdq.http.api import claims, find, health, jobs, schedules, topics
from streamdq.http.api.route import needs_of
from streamdq.http.auth import Role, check_bind, hash_token, is_loopback, new_token, roles_in
from tests.http.conftest import Open
from tests.http.harness import Api, kind
from tests.turns import others_later

MADE = {role: new_token(f"the-{role}", [role]) for role in Role}
TOKENS = Tokens.parse("\n".join(line for _, line in MADE.values()))
# role: what it may do beside looking at a job
MAY = {
    Role.PRODUCER: {
        "put_job", "post_job", "put_bulk", "cancel_job", "abort_job", "reschedule_job", "list_topics", "get_job",
        "get_job_history", "list_schedules", "get_schedule", "put_schedule", "remove_schedule", "pause_schedule",
        "resume_schedule", "trigger_schedule", "backfill_schedule", "cancel_shown", "reschedule_shown",
    },
    Role.WORKER: {
        "take_job", "finish_claim", "fail_claim", "bury_claim", "release_claim", "snooze_claim", "touch_claim",
        "list_topics", "get_job", "get_job_history",
    },
    Role.VIEWER: {
        "list_topics", "get_job", "get_job_history", "get_stats", "get_upcoming", "get_scale", "list_dead",
        "list_keys", "get_metrics", "list_schedules", "get_schedule", "find_jobs",
    },
}  # fmt: skip
OPEN = {"get_alive", "get_ready"}


def operations() -> dict[str, APIRoute]:
    routes = [route for part in (jobs, find, claims, schedules, topics, health) for route in part.router.routes]
    return {route.name: route for route in routes if isinstance(route, APIRoute)}


def test_each_operation_has_its_roles() -> None:
    found = operations()
    for role, may in MAY.items():
        assert {name for name, route in found.items() if role in (needs_of(route).roles or ())} == may
    assert {name for name, route in found.items() if needs_of(route).roles is None} == OPEN
    assert {
        "kick_dead",
        "purge_dead",
        "kick_shown",
        "purge_shown",
        "pause_topic",
        "resume_topic",
        "configure_topic",
        "delete_topic",
        "get_audit",
    } == (set(found) - set().union(*MAY.values()) - OPEN)


@pytest.mark.parametrize("role", others_later([None, *Role], None, *[*Role][:1]))
async def test_every_operation_is_guarded(open_api: Open, role: Role | None) -> None:
    api = await open_api(token=MADE[role][0] if role else None, tokens=TOKENS)
    for name, route in operations().items():
        path = route.path_format.format(topic="t", id="i")
        media = needs_of(route).takes
        response = await api.client.request(
            next(iter(route.methods or ())),
            path,
            headers={"Content-Type": media} if media else {},
            content=b"{" if media else b"",
        )
        if name in OPEN:
            assert response.status_code == 200
        elif role is None:
            assert (response.status_code, kind(response)) == (401, "unauthenticated"), name
            assert response.headers["www-authenticate"].startswith("Bearer")
        elif role is Role.ADMIN or name in MAY[role]:
            assert response.status_code not in (401, 403), name
        else:
            assert (response.status_code, kind(response)) == (403, "forbidden"), name


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Basic abc", "Bearer sdq_wrong", "Bearer " + "x" * 5000, "bearer é", "Bearer a b"]
)
async def test_tokens_that_are_refused(open_api: Open, header: str) -> None:
    api = await open_api(tokens=TOKENS)
    response = await api.client.get("/v1/stats", headers={"Authorization": header.encode("latin-1")})
    assert kind(response) == "unauthenticated"


async def test_who_did_it_is_logged(open_api: Open) -> None:
    token = MADE[Role.ADMIN][0]
    api = await open_api(token=token, tokens=TOKENS)
    await api.put("a")
    with capture_logs() as logs:
        await api.client.post("/v1/topics/t/pause")
    assert logs == [
        {"event": "request", "log_level": "info", "who": "the-admin", "roles": "admin", "peer": "127.0.0.1",
         "action": "pause_topic", "topic": "t", "status": 200}
    ]  # fmt: skip
    assert token not in str(logs)


@pytest.mark.parametrize(
    ("headers", "fine"),
    [
        ({}, True),
        ({"Origin": "http://localhost"}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://["}, False),
        ({"Origin": "http://localhost:81"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
    ],
)
async def test_pages_of_other_sites_change_nothing(api: Api, headers: dict[str, str], fine: bool) -> None:
    response = await api.client.put(api.job("t", "a"), json={"body": 1}, headers=headers)
    assert response.status_code == (201 if fine else 403)
    if not fine:
        assert kind(await api.get("a")) == "no-job"


async def test_a_name_that_was_made_to_point_here(open_api: Open) -> None:
    api = await open_api(allowed_hosts=["localhost", "::1"])
    for host, status in (("localhost:81", 200), ("[::1]:8080", 200), ("evil.example", 403), ("[", 403), ("", 403)):
        assert (await api.client.get("/v1/topics", headers={"Host": host})).status_code == status, host


def test_lines_of_tokens(tmp_path: Path) -> None:
    token, line = new_token("shop", [Role.PRODUCER, Role.WORKER])
    file = tmp_path / "tokens"
    file.write_text(f"# ours\n\n{line}\n")
    tokens = Tokens.read(file)
    who = tokens.identify(token)
    assert who is not None
    assert (who.name, who.roles, len(tokens)) == ("shop", frozenset({Role.PRODUCER, Role.WORKER}), 1)
    assert tokens.identify(token + "x") is None
    assert tokens.identify(hash_token(token)) is None
    assert token not in line
    assert len(Tokens.parse(f"{line};  {new_token('b', [Role.VIEWER])[1]}")) == 2


@pytest.mark.parametrize("text", ["", "# all of them were revoked\n"])
async def test_where_no_token_is_left_none_is_valid(open_api: Open, tmp_path: Path, text: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    tokens = Tokens.read(file)
    assert (len(tokens), tokens.required) == (0, True)
    check_bind("0.0.0.0", tokens)  # it is guarded
    for token in (None, MADE[Role.ADMIN][0]):
        api = await open_api(token=token, tokens=tokens)
        assert kind(await api.client.get("/v1/topics")) == "unauthenticated"
        assert (await api.client.get("/")).headers["location"].startswith("/login")
        assert (await api.client.get("/login")).status_code == 200
    assert Tokens.parse("# none", "STREAMDQ_HTTP_TOKENS").required
    assert not Tokens.parse("", "STREAMDQ_HTTP_TOKENS").required


async def test_who_was_refused_is_logged(open_api: Open) -> None:
    token = MADE[Role.VIEWER][0]
    api = await open_api(tokens=TOKENS)
    with capture_logs() as logs:
        await api.client.get("/v1/topics?secret=s3cret", headers={"Authorization": "Bearer sdq_s3cret"})
        await api.client.post("/v1/topics/t/pause", headers={"Authorization": f"Bearer {token}"})
        await api.put("a" * 250)
        await api.client.get("/")  # leads to the sign-in: nobody was refused
        await api.client.post("/login", data={"token": "sdq_s3cret"}, headers={"Origin": "http://localhost"})
    refused: dict[str, Any] = {"event": "refused", "log_level": "warning", "peer": "127.0.0.1"}
    path = "/v1/topics/t/jobs/" + "a" * 182
    reported = [line for line in logs if line["event"] == "refused"]
    assert all({**line, **refused} == line for line in reported)
    assert [(line["why"], line["method"], line["path"], line.get("who")) for line in reported] == [
        ("unauthenticated", "GET", "/v1/topics", None), ("forbidden", "POST", "/v1/topics/t/pause", "the-viewer"),
        ("unauthenticated", "PUT", path, None), ("unauthenticated", "POST", "/login", None),
    ]  # fmt: skip
    assert "s3cret" not in str(logs)
    assert token not in str(logs)


async def test_of_many_refusals_some_are_logged_and_the_rest_counted(
    open_api: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("streamdq.http.refusals.time.monotonic", lambda: now)
    api = await open_api(tokens=TOKENS)
    with capture_logs() as logs:
        for _ in range(100):
            await api.client.get("/v1/topics")
        assert len(logs) == 60
        now += 1
        for _ in range(2):
            await api.client.get("/v1/topics")
        now += 1
        await api.client.get("/v1/topics")
    assert [line.get("skipped") for line in logs[59:]] == [None, 40, 1]


_HASH = "0" * 64


@pytest.mark.parametrize(
    "text",
    ["x", "a viewer secret", f"a boss sha256:{_HASH}", "a viewer sha256:00", f"a viewer sha256:{_HASH};" * 2],
)
def test_lines_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"line [12]") as error:
        Tokens.parse(text)
    assert "secret" not in str(error.value)


def test_files_that_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(InvalidInput, match="tokens: "):
            Tokens.read(path)
    for name, roles, why in (("a b", [Role.VIEWER], "name: 'a b' can't be a token's name"), ("a", [], "needs a role")):
        with pytest.raises(InvalidInput, match=why):
            new_token(name, roles)
    with pytest.raises(InvalidInput, match="expires: '90' has no unit; write '90d' for days"):
        new_token("a", [Role.VIEWER], expires="90")
    with pytest.raises(InvalidInput, match=r"there is no role 'boss'; roles are producer, "):
        roles_in("viewer,boss")


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("example.org", False), ("", False)],
)  # fmt: skip
def test_without_tokens_this_machine_alone(host: str, local: bool) -> None:
    assert is_loopback(host) is local
    check_bind(host, TOKENS)
    if local:
        check_bind(host, Tokens())
    else:
        with pytest.raises(InvalidInput, match="streamdq token"):
            check_bind(host, Tokens())


def test_tokens_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamdq.http import create_app

    monkeypatch.setenv("STREAMDQ_HTTP_TOKENS", MADE[Role.VIEWER][1])
    app: Any = create_app("memory://unused")
    assert len(app.state.streamdq.tokens) == 1
