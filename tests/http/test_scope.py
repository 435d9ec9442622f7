"""Tokens for some topics and groups alone, and for a time."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from structlog.testing import capture_logs

from streamdq import Queue
from streamdq.cli import app as cli
from streamdq.errors import InvalidInput
from streamdq.http import Tokens
from streamdq.http.api import claims, events, find, flows, health, jobs, results, schedules, topics
from streamdq.http.api.route import needs_of
from streamdq.http.auth import Identity, Role, new_token
from streamdq.http.pages import actions, pages
from streamdq.http.pages import find as find_pages
from streamdq.http.pages import schedules as schedule_pages
from streamdq.http.scope import ALL, Scope, scope_in
from streamdq.job.job import check_topic
from tests.http.conftest import Open
from tests.http.harness import NAMESPACE, Api, kind
from tests.servers import Server
from tests.waiting import eventually

TOKEN, LINE = new_token("clerk", list(Role), topics="mine,order.*", groups="default")
TOPICS_ALONE, TOPICS_LINE = new_token("topics", list(Role), topics="mine,order.*")
BOSS, BOSS_LINE = new_token("boss", [Role.ADMIN])
TOKENS = Tokens.parse(f"{LINE}\n{TOPICS_LINE}\n{BOSS_LINE}")
PARTS = (
    jobs, results, events, find, claims, schedules, flows, topics, health, pages, find_pages, schedule_pages, actions,
)  # fmt: skip
ROUTES = [
    route
    for part in PARTS
    for route in part.router.routes
    if isinstance(route, APIRoute) and needs_of(route).roles is not None
]
EVERYWHERE = {"list_topics", "list_schedules", "schedules", "get_stats", "overview"}  # and there what the token is for
BY_CLAIM = {"finish_claim", "fail_claim", "bury_claim", "release_claim", "snooze_claim", "touch_claim"}


def test_scopes() -> None:
    scope = scope_in("mine,order.*,a%2Cb%3B%25%2A", "topics", check_topic)
    assert scope == Scope(frozenset({"mine", "a,b;%*"}), ("order.",))
    for name, held in (("mine", True), ("mine2", False), ("order.", True), ("order.x", True), ("order", False),
                       ("a,b;%*", True), ("", False)):  # fmt: skip
        assert scope.holds(name) is held, name
    assert scope_in(str(scope), "topics", check_topic) == scope
    assert ";" not in str(scope)
    assert scope_in("*", "topics", check_topic) == ALL
    assert not Scope().holds("")


@pytest.mark.parametrize("text", ["", "a,,b", "a*b", "**", "a b", "%ff", "a{b", ",".join("a" * 101)])
def test_scopes_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="topics: "):
        scope_in(text, "topics", check_topic)


@pytest.mark.parametrize(
    "limits",
    ["topics=", "topics=a topics=b", "topics=a{", "groups=a/b", "expires=soon", "expires=2030-01-01T00:00:00", "x=1",
     "topics"],
)  # fmt: skip
def test_lines_with_limits_that_are_refused(limits: str) -> None:
    with pytest.raises(InvalidInput, match="line 1"):
        Tokens.parse(f"a worker {limits} sha256:{'0' * 64}")


def test_a_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    token, line = new_token("a", [Role.VIEWER], expires="90d")
    tokens = Tokens.parse(line)
    who = tokens.identify(token)
    assert who is not None
    assert who.until_s is not None
    assert who.until_s == pytest.approx(time.time() + 90 * 86_400, abs=5)
    assert datetime.fromtimestamp(who.until_s, UTC).isoformat().replace("+00:00", "Z") in line
    until_s = who.until_s
    monkeypatch.setattr("streamdq.http.auth.wall_s", lambda: until_s - 1)
    assert tokens.identify(token) == who
    monkeypatch.setattr("streamdq.http.auth.wall_s", lambda: until_s)
    assert tokens.identify(token) is None
    assert Tokens.parse(f"a viewer sha256:{line.partition('sha256:')[2]}").identify(token) == Identity(
        "a", frozenset({Role.VIEWER})
    )  # a line of before: everything, for ever


async def test_a_session_ends_when_its_token_expires(open_api: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    token, line = new_token("a", [Role.VIEWER], expires="1h")
    site = await open_api(tokens=Tokens.parse(line))
    await site.client.post("/login", data={"token": token}, headers={"Origin": "http://localhost"})
    assert (await site.client.get("/")).status_code == 200
    monkeypatch.setattr("streamdq.http.auth.wall_s", lambda: time.time_ns() / 1e9 + 3601)
    assert (await site.client.get("/")).status_code == 303


@pytest.mark.parametrize("how", ["revoked", "made less", "expired"])
async def test_who_waits_for_a_job_with_a_token_that_ends_gets_none(
    open_api: Open, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    token, line = new_token("mailer", [Role.WORKER, Role.PRODUCER], expires="1h")
    boss, boss_line = new_token("boss", [Role.ADMIN])
    api = await open_api(token=token, tokens=Tokens.parse(f"{line}\n{boss_line}"))
    backend = api.app.state.streamdq
    await api.client.patch("/v1/topics/t", json={"ttr": "1h"}, headers={"Authorization": f"Bearer {boss}"})
    waiting = asyncio.create_task(api.take(timeout="60s"))
    await eventually(lambda: backend.takes == 1, "it waits")
    if how == "expired":
        monkeypatch.setattr("streamdq.http.auth.wall_s", lambda: time.time_ns() / 1e9 + 3601)
    else:
        less = line.replace("mailer producer,worker", "mailer producer,worker topics=other")
        backend.tokens = Tokens.parse(boss_line if how == "revoked" else f"{less}\n{boss_line}")
    api.client.headers["Authorization"] = f"Bearer {boss}"
    await api.put("a")
    assert (await waiting).status_code == 204
    taken = await api.take(timeout="60s")
    assert (taken.status_code, taken.json()["job"]["attempt"]) == (200, 1)


async def test_the_error_says_that_a_token_has_expired(open_api: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    token, line = new_token("Mailer", [Role.VIEWER], expires="1h")
    api = await open_api(token=token, tokens=Tokens.parse(line))
    monkeypatch.setattr("streamdq.http.auth.wall_s", lambda: time.time_ns() / 1e9 + 3601)
    with capture_logs() as logs:
        refused = await api.client.get("/v1/stats")
        page = await api.client.post("/login", data={"token": token}, headers={"Origin": "http://localhost"})
    assert (refused.status_code, refused.json()["detail"]) == (401, "the token Mailer has expired")
    assert [line["detail"] for line in logs if line["event"] == "refused"] == [
        "the token Mailer has expired", "The token Mailer has expired.",
    ]  # fmt: skip
    assert "The token Mailer has expired." in page.text
    unknown = await api.client.get("/v1/stats", headers={"Authorization": "Bearer sdq_other"})
    assert unknown.json()["detail"] == "this token is not known"


def test_limits_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tokens"
    limits = ["--topics", "order.*", "--groups", "default", "--expires", "90d"]
    assert cli.run(["token", "mailer", "worker", *limits, "--file", str(file)]) == 0
    who = Tokens.read(file).identify(capsys.readouterr().out.strip())
    assert who is not None
    assert (str(who.topics), str(who.groups), who.expired) == ("order.*", "default", False)
    assert cli.run(["token", "x", "worker", "--topics", "a b", "--file", str(file)]) == 2
    assert "topics: " in capsys.readouterr().err
    assert len(Tokens.read(file)) == 1


# -- every operation and page


@pytest.fixture
def queue(redis_server: Server) -> Any:
    with Queue(redis_server.url, NAMESPACE) as opened:
        for topic in ("mine", "order.close", "secret"):
            opened.configure(topic, groups=["default", "audit"])
            opened.enqueue(topic, "body", id="a", retry="none")
            opened.schedule(topic, {}, id="s", every="1h")
        yield opened


async def call(api: Api, route: APIRoute, topic: str, token: str, query: dict[str, str] | None = None) -> Any:
    """Sends the request, with a body that is refused where it takes one: who may is looked at before."""
    method, media = next(iter(route.methods or ())), needs_of(route).takes
    headers = {"Content-Type": media} if media else {}
    if route.path.startswith(("/v1", "/metrics")):
        headers["Authorization"] = f"Bearer {token}"
    elif not api.client.cookies:
        await api.client.post("/login", data={"token": token}, headers={"Origin": "http://localhost"})
    path = route.path_format.format(topic=topic, id="a", name="a")
    headers["Origin"] = "http://localhost"
    if route.name == "follow_topic":
        query = {"timeout": "0", **(query or {})}
    return await api.client.request(method, path, headers=headers, content=b"{" if media else b"", params=query)


@pytest.mark.usefixtures("queue")
async def test_other_topics_are_refused(open_api: Open) -> None:
    api = await open_api(tokens=TOKENS)
    for route in ROUTES:
        for topic, fine in (("mine", True), ("order.close", True), ("secret", False), ("order", False)):
            named = "{topic" in route.path
            response = await call(api, route, topic, TOPICS_ALONE, None if named else {"topic": topic})
            if named or "topic" in {field.alias for field in route.dependant.query_params}:
                assert (response.status_code != 403) is fine, (route.name, topic, response.text)
            elif route.name not in BY_CLAIM:  # a topic that it does not heed opens nothing
                may = route.name in EVERYWHERE
                assert (response.status_code != 403) is may, (route.name, topic, response.text)


@pytest.mark.usefixtures("queue")
async def test_without_a_topic_a_token_for_all_is_needed(open_api: Open) -> None:
    api, boss = await open_api(tokens=TOKENS), await open_api(tokens=TOKENS)
    for route in ROUTES:
        if "{topic" not in route.path:
            response = await call(api, route, "", TOPICS_ALONE)
            assert (response.status_code != 403) is (route.name in EVERYWHERE | BY_CLAIM), route.name
            assert "secret" not in response.text, route.name
            assert (await call(boss, route, "", BOSS)).status_code != 403, route.name


FOR_ALL_GROUPS = {
    "find_jobs", "cancel_shown", "reschedule_shown", "kick_shown", "purge_shown", "search_page", "found_cancel",
    "found_reschedule", "found_kick", "found_purge", "get_metrics", "configure_topic", "delete_topic", "pause_topic",
    "resume_topic", "pause", "resume", "abort_job", "abort", "get_flow", "cancel_flow",
}  # fmt: skip


@pytest.mark.usefixtures("queue")
async def test_other_groups_are_refused(open_api: Open) -> None:
    api = await open_api(tokens=TOKENS)
    for route in ROUTES:
        response = await call(api, route, "mine", TOKEN, {"group": "audit", "topic": "mine"})
        assert response.status_code == 403, route.name
        response = await call(api, route, "mine", TOKEN, {"topic": "mine"})
        assert (response.status_code == 403) is (route.name in FOR_ALL_GROUPS), route.name


@pytest.mark.usefixtures("queue")
async def test_bodies_that_name_another_group(open_api: Open) -> None:
    api = await open_api(token=TOKEN, tokens=TOKENS)
    for what in ("kick", "purge"):
        for group, fine in (("default", True), ("audit", False)):
            which = {"all": True, "group": group}
            response = await api.client.post(f"/v1/topics/mine/dead/{what}", json=which)
            assert response.status_code == (200 if fine else 403)
    await api.client.post("/login", data={"token": TOKEN}, headers={"Origin": "http://localhost"})
    for path, form in (
        ("dead", {"do": "kick", "all": "1"}), ("jobs/a/kick", {}), ("jobs/a/purge", {}),
    ):  # fmt: skip
        for group, fine in (("default", True), ("audit", False)):
            response = await api.client.post(
                f"/topics/mine/{path}", data=form | {"group": group}, headers={"Origin": "http://localhost"}
            )
            assert response.status_code == (303 if fine else 403), (path, group)


async def test_a_job_may_only_wait_for_those_of_topics_that_it_is_for(open_api: Open, queue: Queue) -> None:
    """Otherwise it would tell which jobs are there, and keep others from waiting for them."""
    api = await open_api(token=TOPICS_ALONE, tokens=TOKENS)
    for id in ("a", "unknown"):
        after = [{"topic": "order.close", "id": "a"}, {"topic": "secret", "id": id}]
        refused = [
            await api.put("d", topic="mine", after=after),
            await api.client.post("/v1/topics/mine/jobs", json={"body": 1, "after": after}),
        ]
        assert [kind(one) for one in refused] == ["forbidden"] * 2
        line = json.dumps({"id": "d", "body": 1, "after": after}).encode()
        bulk = await api.client.post(
            "/v1/topics/mine/bulk", content=line, headers={"Content-Type": "application/x-ndjson"}
        )
        assert [one["problem"] for one in bulk.json()["problems"]] == ["forbidden"]
    assert queue.get("mine", "d") is None
    assert (await api.put("d", topic="mine", after=[{"topic": "order.close", "id": "a"}])).status_code == 201


async def test_of_jobs_that_wait_it_shows_those_of_topics_that_it_is_for(open_api: Open, queue: Queue) -> None:
    queue.enqueue("mine", 1, id="d", after=[("secret", "a"), ("mine", "a")])
    queue.enqueue("secret", 1, id="e", after=("mine", "d"))
    api = await open_api(token=TOPICS_ALONE, tokens=TOKENS)
    assert (await api.get("d", "mine")).json()["waits_for"]["jobs"] == [{"topic": "mine", "id": "a", "outcome": None}]
    await api.client.post("/login", data={"token": TOPICS_ALONE}, headers={"Origin": "http://localhost"})
    page = (await api.client.get("/topics/mine/jobs/d")).text
    assert "/topics/mine/jobs/a" in page
    assert "secret" not in page


async def test_an_abort_for_every_group_needs_a_token_for_all(open_api: Open, queue: Queue) -> None:
    api = await open_api(token=TOKEN, tokens=TOKENS)
    refused = await api.client.post("/v1/topics/mine/jobs/a/abort")
    assert (refused.status_code, refused.json()["detail"]) == (
        403, "this token is for the groups default: name one of them, ?group=",
    )  # fmt: skip
    assert queue.get("mine", "a") is not None
    headers = {"Authorization": f"Bearer {TOPICS_ALONE}"}
    done = await api.client.post("/v1/topics/mine/jobs/a/abort", headers=headers)
    assert (done.status_code, done.json()) == (200, {"result": "cancelled"})


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize("how", ["finish", "fail", "snooze", "bury", "release", "touch"])
async def test_a_claim_of_another(open_api: Open, how: str) -> None:
    """With the claim alone it is not done: the token must be for its topic and group."""
    boss, api = await open_api(token=BOSS, tokens=TOKENS), await open_api(token=TOKEN, tokens=TOKENS)
    more = {"fail": {"error": "x"}, "snooze": {"delay": "1h"}, "bury": {"reason": "x"}}.get(how, {})
    for topic, group in (("secret", "default"), ("mine", "audit")):
        claim = (await boss.take(topic, group=group)).json()["claim"]
        assert kind(await api.end(how, claim, **more)) == "forbidden"
        assert (await boss.end(how, claim, **more)).status_code == 204
    own = (await boss.take("mine", group="default")).json()["claim"]
    assert (await api.end(how, own, **more)).status_code == 204


@pytest.mark.usefixtures("queue")
async def test_a_job_stands_where_the_groups_of_the_token_are_with_it(open_api: Open) -> None:
    api, boss = await open_api(token=TOKEN, tokens=TOKENS), await open_api(token=BOSS, tokens=TOKENS)
    await boss.take("mine", group="audit")
    assert [(await one.get("a", "mine")).json()["state"] for one in (boss, api)] == ["running", "ready"]
    assert [(await one.get("a", "mine")).json()["attempt"] for one in (boss, api)] == [1, 0]


@pytest.mark.usefixtures("queue")
async def test_lists_and_figures_tell_what_it_is_for(open_api: Open) -> None:
    api, boss = await open_api(token=TOKEN, tokens=TOKENS), await open_api(token=BOSS, tokens=TOKENS)
    listed = (await api.client.get("/v1/topics")).json()["topics"]
    assert [(one["topic"], list(one["groups"])) for one in listed] == [
        ("mine", ["default"]),
        ("order.close", ["default"]),
    ]
    stats = (await api.client.get("/v1/stats")).json()
    assert {name: list(one["groups"]) for name, one in stats["topics"].items()} == {
        "mine": ["default"], "order.close": ["default"],
    }  # fmt: skip
    assert (stats["ready"], (await boss.client.get("/v1/stats")).json()["ready"]) == (2, 6)
    assert list((await api.get("a", "mine")).json()["groups"]) == ["default"]
    audit = (await api.client.get("/v1/audit", params={"topic": "mine"})).json()
    assert [one["group"] for one in audit["balances"]] == ["default"]
    assert set((await boss.get("a", "mine")).json()["groups"]) == {"default", "audit"}


async def test_pages_show_what_it_is_for(open_api: Open, queue: Queue) -> None:
    for group in ("default", "audit"):
        claim = queue.take("mine", group, timeout=60)
        assert claim
        claim.fail(f"broken in {group}")
    site, boss = await open_api(tokens=TOKENS), await open_api(tokens=TOKENS)
    for api, token in ((site, TOKEN), (boss, BOSS)):
        await api.client.post("/login", data={"token": token}, headers={"Origin": "http://localhost"})
    paths = ("/", "/topics/mine", "/topics/mine?state=dead", "/topics/mine/jobs/a")
    seen = {path: (await site.client.get(path)).text for path in paths}
    every = {path: (await boss.client.get(path)).text for path in paths}
    assert "secret" in every["/"]
    assert "audit" in every["/topics/mine"]
    assert "broken in audit" in every["/topics/mine/jobs/a"]
    assert "broken in default" in seen["/topics/mine/jobs/a"]
    for path, text in seen.items():
        assert "mine" in text
        assert "secret" not in text, path
        assert "audit" not in text, path
