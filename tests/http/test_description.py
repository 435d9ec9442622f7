"""The description at /openapi.json says all there is to say, of every operation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from streamdq.http.problems import KINDS
from tests.http.description import description


def operations() -> dict[str, dict[str, Any]]:
    return {
        operation["operationId"]: operation for path in description()["paths"].values() for operation in path.values()
    }


def schema(content: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = content["schema"]
    if "$ref" in found:
        found = description()["components"]["schemas"][found["$ref"].rpartition("/")[2]]
    return found


def shows(content: dict[str, Any]) -> bool:
    """Is there an example?"""
    return "example" in content or "examples" in content or "examples" in schema(content)


def test_it_is_openapi_3_1_and_lists_no_page() -> None:
    assert description()["openapi"] == "3.1.0"
    assert len(operations()) > 20
    assert all(path.startswith(("/v1/", "/health/", "/metrics")) for path in description()["paths"])


def test_every_operation_is_described_with_examples() -> None:
    for name, operation in operations().items():
        assert operation["summary"], name
        assert operation["description"], name
        for parameter in operation.get("parameters", []):
            assert parameter.get("description") or parameter["name"] == "limit", name
        if "requestBody" in operation:
            assert all(map(shows, operation["requestBody"]["content"].values())), name
        for status, response in operation["responses"].items():
            assert response["description"], (name, status)
            for media, content in response.get("content", {}).items():
                assert media.startswith("text/") or shows(content), (name, status, media)
                assert (media == "application/problem+json") == (int(status) >= 400), (name, status)


def test_every_operation_tells_who_may_and_what_may_go_wrong() -> None:
    for name, operation in operations().items():
        guarded = not name.startswith("get_alive") and not name.startswith("get_ready")
        assert ("security" in operation) == ("x-roles" in operation) == guarded, name
        statuses = {int(status) for status in operation["responses"]}
        assert {422, 500} <= statuses, name
        assert ({401, 403, 503} <= statuses) or not guarded, name
        assert {400, 408, 413, 415} <= statuses or "requestBody" not in operation, name


def answers(operation: dict[str, Any]) -> dict[str, str | None]:
    """The model of each answer that is no problem; None: it has no body."""
    return {
        status: next(
            (content["schema"]["$ref"].rpartition("/")[2] for content in how.get("content", {}).values()), None
        )
        for status, how in operation["responses"].items()
        if status < "300"
    }


THINGS = {"JobOut", "ScheduleOut", "TopicOut", "FlowOut"}
COUNTS = {"ErasedOut", "BulkOut", "CountOut", "ActedOut", "BackfillOut", "AbortOut"}


def test_every_change_answers_by_the_rule_of_the_page() -> None:
    for path in description()["paths"].values():
        for method, operation in path.items():
            if method != "get" and operation["operationId"] != "take_job":
                assert follows_the_rule(method, operation), operation["operationId"]


def follows_the_rule(method: str, operation: dict[str, Any]) -> bool:
    found, name = answers(operation), operation["operationId"]
    if method == "delete" or name == "touch_claim":
        return found == {"204": None}
    if name.endswith("_claim"):
        return found == {"204": None, "200": "EndedOut"}
    if found.keys() == {"200"}:
        return found["200"] in THINGS | COUNTS
    made_or_there = set(found.values()) <= {"JobOut", "ScheduleOut"}
    return "201" in found and found.keys() <= {"200", "201"} and made_or_there


def test_answers_name_their_headers() -> None:
    for name, operation in operations().items():
        for status, response in operation["responses"].items():
            assert set(response.get("headers", {})) == {
                "201": {"Location"},
                "429": {"Retry-After"},
                "503": {"Retry-After"},
            }.get(status, set()), (name, status)


def test_it_tells_where_the_server_is_and_what_the_tags_are() -> None:
    assert [server["url"] for server in description()["servers"]] == ["."]
    used = {tag for operation in operations().values() for tag in operation["tags"]}
    assert used == {tag["name"] for tag in description()["tags"] if tag["description"]}


def accepts(model: str, value: object) -> bool:
    whole = {"$ref": f"#/components/schemas/{model}", "components": description()["components"]}
    return bool(Draft202012Validator(whole).is_valid(value))


def test_ids_have_limits() -> None:
    for name, operation in operations().items():
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "path":
                check = Draft202012Validator(parameter["schema"])
                assert check.is_valid("order-42.ü"), name
                wrong = ["", ".", "..", "a\nb", "x" * 256] + (["a b", "{a}"] if parameter["name"] == "topic" else [])
                assert not any(map(check.is_valid, wrong)), name


_SHOWN = {"jobs": [{"id": "a", "as_shown": "x"}]}


@pytest.mark.parametrize(
    ("model", "one", "other", "rest", "needs"),
    [
        ("JobIn", {"delay": "1m"}, {"at": 1}, {"body": 1}, False),
        ("WhenIn", {"delay": 1}, {"at": "2030-01-31T09:00:00Z"}, {}, True),
        ("ShownWhenIn", {"delay": 1}, {"at": 1}, _SHOWN, True),
        ("ScheduleIn", {"cron": "* * * * *"}, {"every": "1m"}, {"body": 1}, True),
        ("DeadIn", {"ids": ["a"]}, {"all": True}, {}, True),
    ],
)
def test_what_excludes_one_another(
    model: str, one: dict[str, object], other: dict[str, object], rest: dict[str, object], needs: bool
) -> None:
    assert accepts(model, rest | one)
    assert accepts(model, rest | other)
    assert not accepts(model, rest | one | other)
    assert accepts(model, rest) == (not needs)
    if model != "DeadIn":
        assert accepts(model, rest | one | dict.fromkeys(other)), "null is as if it were left out"


@pytest.mark.parametrize("id", [".", "..", "", "a\nb", "x" * 256])
def test_ids_in_bodies_have_limits(id: str) -> None:
    assert not accepts("DeadIn", {"ids": [id]})
    assert not accepts("ShownIn", {"jobs": [{"id": id, "as_shown": "x"}]})


def test_the_page_lists_every_problem_under_its_status() -> None:
    page = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
    rows = re.findall(r"^\| ([\d, ]+) \| (`.+) \|$", page.partition("## Errors")[2], re.MULTILINE)
    listed = {
        kind: statuses.split(", ") for statuses, reported in rows for kind in re.findall(r"`([a-z][a-z-]+)`", reported)
    }
    listed.pop("errors")  # a member
    assert listed.keys() == KINDS.keys()
    assert all(str(KINDS[kind][0]) in statuses for kind, statuses in listed.items())
