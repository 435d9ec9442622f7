"""A stranger's megabyte: what it costs is bounded by work that is counted, not by a clock."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from streamdq.errors import InvalidInput
from streamdq.http.api.bulk import JobLine
from streamdq.http.api.models.claims import BuryIn, ClaimIn, FailIn, TouchIn
from streamdq.http.api.models.common import WhenIn
from streamdq.http.api.models.dead_letters import DeadIn
from streamdq.http.api.models.find import ShownDeadIn, ShownIn, ShownWhenIn
from streamdq.http.api.models.jobs import JobIn
from streamdq.http.api.models.topics import TopicIn
from streamdq.job.retry import RetrySchedule
from streamdq.times.durations import _to_ms, to_ms
from tests.http.description import description
from tests.http.harness import JSON, Api, kind

MEGABYTE = 1024 * 1024
MODELS: list[type[BaseModel]] = [
    JobIn,
    JobLine,
    WhenIn,
    TopicIn,
    DeadIn,
    ClaimIn,
    FailIn,
    BuryIn,
    TouchIn,
    ShownIn,
    ShownWhenIn,
    ShownDeadIn,
]


def filled(head: bytes, item: bytes, tail: bytes) -> bytes:
    """A megabyte of items."""
    return head + b",".join([item] * ((MEGABYTE - len(head) - len(tail)) // (len(item) + 1))) + tail


def extras() -> bytes:
    """A megabyte of fields that no model has."""
    return b'{"body": 1' + b"".join(b', "%x": 0' % number for number in range(80_000)) + b"}"


HOSTILE: dict[str, tuple[str, str, Callable[[], bytes], str]] = {
    "retry of lists": (
        "PUT",
        "/v1/topics/t/jobs/a",
        lambda: filled(b'{"body":1,"retry":[', b"[]", b"]}"),
        "invalid-input",
    ),
    "retry of objects": (
        "PUT",
        "/v1/topics/t/jobs/a",
        lambda: filled(b'{"body":1,"retry":[', b"{}", b"]}"),
        "invalid-input",
    ),
    "unknown fields": ("PUT", "/v1/topics/t/jobs/a", extras, "invalid-input"),
    "one field again": (
        "PUT",
        "/v1/topics/t/jobs/a",
        lambda: b'{"body":1' + b',"ttr":[]' * 90_000 + b"}",
        "invalid-input",
    ),
    "no object": ("PUT", "/v1/topics/t/jobs/a", lambda: filled(b"[", b"[]", b"]"), "invalid-input"),
    "a body of lists": ("PUT", "/v1/topics/t/jobs/a", lambda: filled(b'{"body":[', b"[]", b"]}"), "invalid-input"),
    "a body of objects": (
        "PUT",
        "/v1/topics/t/jobs/a",
        lambda: filled(b'{"body":[', b'{"":0}', b"]}"),
        "invalid-input",
    ),
    "a long delay": (
        "PUT",
        "/v1/topics/t/jobs/a",
        lambda: b'{"body":1,"delay":"' + b"0" * 10**6 + b'"}',
        "invalid-input",
    ),
    "a long moment": (
        "PUT",
        "/v1/topics/t/jobs/a",
        lambda: b'{"body":1,"at":"' + b"9" * 10**6 + b'"}',
        "invalid-input",
    ),
    "a huge number": ("PUT", "/v1/topics/t/jobs/a", lambda: b'{"body":1,"delay":' + b"9" * 10**6 + b"}", "malformed"),
    "a large number": (
        "PUT",
        "/v1/topics/t/jobs/a",
        lambda: b'{"body":1,"delay":' + b"9" * 4000 + b"}",
        "invalid-input",
    ),
    "deep": ("PUT", "/v1/topics/t/jobs/a", lambda: b'{"body":' + b"[" * 10**6, "malformed"),
    "ids": ("POST", "/v1/topics/t/dead/kick", lambda: filled(b'{"ids":[', b"[]", b"]}"), "invalid-input"),
    "shown jobs": ("POST", "/v1/topics/t/find/cancel", lambda: filled(b'{"jobs":[', b"{}", b"]}"), "invalid-input"),
    "a long as_shown": (
        "POST",
        "/v1/topics/t/find/cancel",
        lambda: b'{"jobs":[{"id":"a","as_shown":"' + b"0" * 10**6 + b'"}]}',
        "invalid-input",
    ),
    "groups": ("PATCH", "/v1/topics/t", lambda: filled(b'{"groups":[', b"[]", b"]}"), "invalid-input"),
    "a large count": ("PATCH", "/v1/topics/t", lambda: b'{"max_deliveries":' + b"9" * 4000 + b"}", "invalid-input"),
}


@pytest.mark.parametrize("name", [
    name if name in ("retry of lists", "a huge number", "deep") else pytest.param(name, marks=pytest.mark.thorough)
    for name in HOSTILE
])  # fmt: skip
async def test_a_hostile_body_costs_little(api: Api, name: str) -> None:
    method, path, make, expected = HOSTILE[name]
    body = make()
    await api.client.request(method, path, content=body, headers=JSON)
    tracemalloc.start()
    try:
        response = await api.client.request(method, path, content=body, headers=JSON)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert kind(response) == expected
    assert peak < 50_000_000
    assert len(response.content) < 5_000


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(HOSTILE["retry of lists"][2], "retry.str: Input should", marks=pytest.mark.thorough),
        (extras, "80001 fields, of which there are body"),
    ],
)
async def test_a_hostile_line_costs_little(api: Api, make: Callable[[], bytes], message: str) -> None:
    line = make()
    tracemalloc.start()
    try:
        response = await api.client.post(
            "/v1/topics/t/bulk", content=line, headers={"Content-Type": "application/x-ndjson"}
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert response.json()["invalid"] == 1
    assert response.json()["problems"][0]["detail"].startswith(message)
    assert peak < 50_000_000


async def test_many_errors_are_counted_and_few_are_listed(api: Api) -> None:
    problem = (await api.put("a", retry=[[]] * 100)).json()
    assert problem["error_count"] > 100
    assert len(problem["errors"]) == 10
    assert problem["detail"].endswith(f"and {problem['error_count'] - 3} more")
    assert problem["errors"][0]["at"] == "body.retry.str"
    one = (await api.put("a", dealy=1)).json()
    assert (one["error_count"], one["detail"]) == (1, "body.dealy: Extra inputs are not permitted")


# -- items are not validated beyond their limit: each that is makes errors, which are counted


@pytest.mark.parametrize("model", MODELS)
def test_items_are_not_validated_beyond_a_limit(model: type[BaseModel]) -> None:
    items: tuple[Any, ...] = ([], {}, None, 0, "", "x", True)
    for item, name in product(items, model.model_fields):
        many: list[Any] = [item] * 20_000
        if name == "body":
            continue
        with pytest.raises(ValidationError) as error:
            model.model_validate({"body": 1, "claim": "c", "error": "e", "reason": "r", name: many})
        assert error.value.error_count() < 2_000, name


@pytest.mark.parametrize("model", MODELS)
def test_unknown_fields_are_one_error(model: type[BaseModel]) -> None:
    with pytest.raises(ValidationError) as error:
        model.model_validate({str(number): number for number in range(20_000)})
    assert error.value.error_count() == 1


def parts(schema: Any, at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each schema within, and where it stands."""
    if isinstance(schema, list):
        for number, part in enumerate(schema):
            yield from parts(part, f"{at}.{number}")
    elif isinstance(schema, dict):
        if "$ref" in schema:
            schema = description()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        yield at, schema
        for name, part in schema.items():
            if name in ("items", "anyOf", "allOf", "oneOf", "properties"):
                yield from parts(list(part.values()) if name == "properties" else part, f"{at}.{name}")


def inputs() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in description()["paths"].values():
        for operation in path.values():
            name = operation["operationId"]
            for parameter in operation.get("parameters", []):
                yield from parts(parameter["schema"], f"{name}.{parameter['name']}")
            for media, content in operation.get("requestBody", {"content": {}})["content"].items():
                if media == "application/json":
                    yield from parts(content["schema"], name)


def test_every_list_and_text_that_goes_in_has_a_limit() -> None:
    found = [(at, schema) for at, schema in inputs() if schema.get("type") in ("array", "string")]
    assert len(found) > 40
    limits = {"array": "maxItems", "string": "maxLength"}
    limited = [at for at, schema in found if schema.keys() & {limits[schema["type"]], "enum", "const"}]
    without = {at for at, _ in found}.difference(limited)
    assert without == set()


# -- the smaller ways to make work


async def test_reading_looks_for_no_garbage(api: Api) -> None:
    looked = 0

    def counted(phase: str, _: dict[str, Any]) -> None:
        nonlocal looked
        looked += phase == "start"

    await api.client.put(api.job("t", "a"), content=b"1", headers=JSON)  # the first request makes what all need
    gc.callbacks.append(counted)
    try:
        await api.client.put(api.job("t", "a"), content=HOSTILE["a body of lists"][2](), headers=JSON)
    finally:
        gc.callbacks.remove(counted)
    assert looked < 20  # with it on, 350 000 lists are 500 times
    assert gc.isenabled()


def test_a_long_duration_is_not_kept() -> None:
    before = _to_ms.cache_info().currsize
    with pytest.raises(InvalidInput, match="at most 100"):
        to_ms("0" * 10**6 + "1s")
    assert _to_ms.cache_info().currsize == before


def test_a_schedule_is_read_no_further_than_its_limit() -> None:
    taken = 0

    def steps() -> Iterator[int]:
        nonlocal taken
        for _ in range(10_000):
            taken += 1
            yield 1

    with pytest.raises(InvalidInput, match="more than 100"):
        RetrySchedule.of(steps())
    assert taken == 101


async def test_lines_that_make_no_job_leave_others_their_turn(api: Api) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    response = await api.client.post(
        "/v1/topics/t/bulk", content=b"{\n" * 20_000, headers={"Content-Type": "application/x-ndjson"}
    )
    other.cancel()
    assert response.json()["invalid"] == 20_000
    assert turns > 150
