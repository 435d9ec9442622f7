"""Erasure over HTTP: the operation of the library, for admins, and repeated until nothing is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamdq import Queue
from streamdq.http import Tokens
from streamdq.http.auth import Role, new_token
from tests.http.conftest import Open
from tests.http.harness import Api, kind
from tests.redis.harness import taken

ERASE = "/v1/erase"


def jobs_of(queue: Queue, name: str) -> None:
    """One dead, one ready, one delayed."""
    queue.configure("t", create=True)
    for id in ("dead", "ready", "delayed"):
        delay = "1h" if id == "delayed" else 0
        queue.enqueue("t", {"name": name}, id=f"{name}-{id}", key=name, delay=delay)
        if id == "dead":
            claim = taken(queue, "t")
            assert claim.job.id == f"{name}-dead"
            claim.bury("as told")


async def test_count_and_erase(api: Api, queue: Queue) -> None:
    jobs_of(queue, "jane")
    queue.enqueue("t", {"name": "jim"}, id="jim-delayed", key="jim", delay="1h")
    counted = (await api.client.post(ERASE, json={"where": ["body.name=jane"], "dry_run": True})).json()
    assert (counted["dry_run"], counted["whole"]) == (True, True)
    assert {name: amount["found"] for name, amount in counted["places"].items() if name.endswith(("jobs", "letters"))} \
        == {"delayed jobs": 1, "ready jobs": 1, "dead letters": 1}  # fmt: skip
    assert all(amount["erased"] == 0 for amount in counted["places"].values())
    done = (await api.client.post(ERASE, json={"where": ["body.name=jane"], "dry_run": False})).json()
    assert done["whole"]
    assert {name: amount["found"] for name, amount in done["places"].items()} \
        == {name: amount["erased"] for name, amount in done["places"].items()}  # fmt: skip
    assert {job.id for job in queue.find("t")} == {"jim-delayed"}
    again = (await api.client.post(ERASE, json={"where": ["body.name=jane"], "dry_run": False})).json()
    assert again == {"dry_run": False, "places": {}, "remaining": [], "whole": True}
    assert queue.audit().balanced


async def test_what_remains_is_named_and_goes_with_the_next_request(api: Api, queue: Queue) -> None:
    jobs_of(queue, "jane")
    claim = taken(queue, "t")
    order = {"key": "jane", "topic": "t", "dry_run": False}
    first = (await api.client.post(ERASE, json=order)).json()
    assert not first["whole"]
    assert [(one["place"], one["ids"]) for one in first["remaining"]] == [("jobs", ["jane-ready"])]
    claim.finish()
    assert (await api.client.post(ERASE, json=order)).json()["whole"]
    assert not list(queue.find("t"))
    assert not queue.history("t").rows


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"key": "jane"}, "invalid-input"),
        ({"dry_run": True}, "invalid-input"),
        ({"dry_run": True, "key": None, "where": []}, "invalid-input"),
        ({"dry_run": True, "where": ["body.name"]}, "invalid-input"),
        ({"dry_run": "yes", "key": "jane"}, "invalid-input"),
        ({"dry_run": True, "key": "jane", "topic": "none"}, "unknown-topic"),
    ],
)
async def test_what_is_refused(api: Api, queue: Queue, body: dict[str, object], problem: str) -> None:
    queue.configure("t", create=True)
    assert kind(await api.client.post(ERASE, json=body)) == problem


async def test_only_admins_for_all_topics_and_nobody_is_named_in_the_log(
    open_api: Open, queue: Queue, tmp_path: Path
) -> None:
    jobs_of(queue, "jane")
    made = {
        "admin": new_token("admin", [Role.ADMIN]),
        "others": new_token("others", [Role.PRODUCER, Role.WORKER, Role.VIEWER]),
        "topics": new_token("topics", [Role.ADMIN], topics="t"),
    }
    log = tmp_path / "audit"
    api = await open_api(tokens=Tokens.parse("\n".join(line for _, line in made.values())), audit_log=log)
    for who, (token, _) in made.items():
        headers = {"Authorization": f"Bearer {token}"}
        answer = await api.client.post(ERASE, json={"key": "jane", "topic": "t", "dry_run": False}, headers=headers)
        if who == "admin":
            assert answer.status_code == 200
        else:
            assert kind(answer) == "forbidden"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["who"], line["action"], line.get("status"), line.get("failed")) for line in lines] == [
        ("admin", "erase", 200, None), ("others", "erase", None, "forbidden"), ("topics", "erase", None, "forbidden"),
    ]  # fmt: skip
    assert "jane" not in log.read_text()
