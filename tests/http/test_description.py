"""The description at /openapi.json says all there is to say, of every operation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from streamdq.http import create_app
from streamdq.http.problems import KINDS

DESCRIPTION: dict[str, Any] = create_app("memory://unused", authentication="mine").openapi()
OPERATIONS = {
    operation["operationId"]: operation for path in DESCRIPTION["paths"].values() for operation in path.values()
}


def schema(content: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = content["schema"]
    if "$ref" in found:
        found = DESCRIPTION["components"]["schemas"][found["$ref"].rpartition("/")[2]]
    return found


def shows(content: dict[str, Any]) -> bool:
    """Is there an example?"""
    return "example" in content or "examples" in content or "examples" in schema(content)


def test_it_is_openapi_3_1_and_lists_no_page() -> None:
    assert DESCRIPTION["openapi"] == "3.1.0"
    assert len(OPERATIONS) > 20
    assert all(path.startswith(("/v1/", "/health/", "/metrics")) for path in DESCRIPTION["paths"])


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_described_with_examples(name: str) -> None:
    operation = OPERATIONS[name]
    assert operation["summary"]
    assert operation["description"]
    for parameter in operation.get("parameters", []):
        assert parameter.get("description") or parameter["name"] == "limit"
    if "requestBody" in operation:
        assert all(map(shows, operation["requestBody"]["content"].values()))
    for status, response in operation["responses"].items():
        assert response["description"], status
        for media, content in response.get("content", {}).items():
            assert media.startswith("text/") or shows(content), (status, media)
            assert (media == "application/problem+json") == (int(status) >= 400), status


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_tells_who_may_and_what_may_go_wrong(name: str) -> None:
    operation = OPERATIONS[name]
    guarded = not name.startswith("get_alive") and not name.startswith("get_ready")
    assert ("security" in operation) == ("x-roles" in operation) == guarded
    statuses = {int(status) for status in operation["responses"]}
    assert {422, 500} <= statuses
    assert ({401, 403, 503} <= statuses) or not guarded
    assert {400, 408, 413, 415} <= statuses or "requestBody" not in operation


def test_the_page_lists_every_problem_under_its_status() -> None:
    page = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
    rows = re.findall(r"^\| ([\d, ]+) \| (`.+) \|$", page.partition("## Errors")[2], re.MULTILINE)
    listed = {kind: statuses.split(", ") for statuses, told in rows for kind in re.findall(r"`([a-z][a-z-]+)`", told)}
    listed.pop("errors")  # a member
    assert listed.keys() == KINDS.keys()
    assert all(str(KINDS[kind][0]) in statuses for kind, statuses in listed.items())
