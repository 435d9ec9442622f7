"""Flows over HTTP: how one stands, and cancelling it."""

from __future__ import annotations

from structlog.testing import capture_logs

from streamdq import NewJob, Queue
from streamdq.http import Tokens
from streamdq.http.auth import Role, new_token
from tests.http.conftest import Open
from tests.http.harness import Api, kind

FLOW = "/v1/flows/report-7"


def build(queue: Queue, name: str = "report-7") -> None:
    with queue.flow(name) as flow:
        parts = flow.enqueue_many("part", [NewJob(n, delay="1h") for n in range(3)])
        flow.enqueue("join", 1, after=parts, on_failure="run")


async def test_a_flow_is_got_stage_by_stage(api: Api, queue: Queue) -> None:
    build(queue)
    assert (await api.client.get(FLOW)).json() == {
        "name": "report-7", "state": "running", "jobs": 4,
        "stages": [
            {"topic": "part", "jobs": 3, "after": [], "on_failure": "block", "counts": {"waiting": 3}},
            {"topic": "join", "jobs": 1, "after": [0], "on_failure": "run", "counts": {"waiting": 1}},
        ],
    }  # fmt: skip


async def test_its_times_are_got_if_asked_for(api: Api, queue: Queue) -> None:
    build(queue)
    found = (await api.client.get(FLOW, params={"times": "true"})).json()
    assert (found["jobs"], found["times"]["ended_ms"], found["times"]["why_no_path"]) == (4, None, "")
    assert [(one["topic"], one["state"], one["ended_ms"]) for one in found["times"]["path"]] == [
        ("part", "waiting", None), ("join", "waiting", None),
    ]  # fmt: skip
    assert found["times"]["stages"][0] == {
        "known": 0, "waited_ms": 0, "ran_ms": 0, "longest_waited_ms": 0, "longest_ran_ms": 0,
    }  # fmt: skip
    assert kind(await api.client.get(FLOW, params={"times": "perhaps"})) == "invalid-input"


async def test_a_flow_is_cancelled_as_often_as_asked(api: Api, queue: Queue) -> None:
    build(queue)
    for _ in range(2):
        answer = await api.client.post(f"{FLOW}/cancel")
        assert (answer.status_code, answer.json()["name"]) == (200, "report-7")
    assert [one.state.value for one in queue.find("part")] == []
    assert list(queue.find("join")) == []


async def test_one_that_is_being_built_is_withdrawn(api: Api, queue: Queue) -> None:
    flow = queue.flow("report-7")
    flow.__enter__()
    flow.enqueue("part", 1)
    assert (await api.client.get(FLOW)).json() == {"name": "report-7", "state": "building", "jobs": 0, "stages": []}
    assert (await api.client.post(f"{FLOW}/cancel")).json()["state"] == "cancelled"
    assert (await api.client.get(FLOW)).json()["state"] == "cancelled"


async def test_a_flow_that_never_was(api: Api) -> None:
    assert kind(await api.client.get(FLOW)) == "no-flow"
    assert kind(await api.client.post(f"{FLOW}/cancel")) == "no-flow"
    assert kind(await api.client.get("/v1/flows/a%20b%00")) == "invalid-input"


async def test_the_name_may_have_a_slash(api: Api, queue: Queue) -> None:
    build(queue, "reports/7")
    assert (await api.client.get("/v1/flows/reports%2F7")).json()["name"] == "reports/7"


async def test_who_may(open_api: Open, queue: Queue) -> None:
    build(queue)
    made = {
        "viewer": new_token("viewer", [Role.VIEWER]),
        "producer": new_token("producer", [Role.PRODUCER]),
        "topics": new_token("topics", list(Role), topics="part,join"),
        "groups": new_token("groups", list(Role), groups="default"),
    }
    tokens = Tokens.parse("\n".join(line for _, line in made.values()))
    api = await open_api(tokens=tokens)

    async def ask(name: str, method: str, path: str) -> int:
        headers = {"Authorization": f"Bearer {made[name][0]}"}
        return int((await api.client.request(method, path, headers=headers)).status_code)

    found = {name: (await ask(name, "GET", FLOW), await ask(name, "POST", f"{FLOW}/cancel")) for name in made}
    assert found == {"viewer": (200, 403), "producer": (200, 200), "topics": (403, 403), "groups": (403, 403)}


async def test_the_audit_log_names_the_flow(api: Api, queue: Queue) -> None:
    build(queue)
    with capture_logs() as logs:
        await api.client.post(f"{FLOW}/cancel")
    (line,) = [one for one in logs if one.get("action") == "cancel_flow"]
    assert (line["flow"], line["status"], line["log_level"]) == ("report-7", 200, "info")
