"""Ids made of a body's fields, and the rules of uniqueness as callers write them."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from streamdq import NewJob
from streamdq.errors import InvalidInput
from streamdq.job.uniqueness import NO_RULE, rule_of, unique
from streamdq.store.jobs.records import encode
from streamdq.times.durations import rate_in
from tests.cases import each

BODY = {"user": 7, "kind": "welcome", "order": {"id": "a"}, "at": 5}


def id_of(body: Any, *fields: str) -> str:
    return encode(NewJob(body, id=unique(*fields)), 10_000).id


def test_the_id_is_what_the_docs_say() -> None:
    """Other programs make the same; so it may never change."""
    text = '{"kind":"welcome","order.id":"a","user":7}'
    assert id_of(BODY, "user", "order.id", "kind") == sha256(text.encode()).hexdigest()[:32]
    assert id_of({"name": "Zoë"}, "name") == sha256('{"name":"Zoë"}'.encode()).hexdigest()[:32]


def test_neither_the_order_nor_other_fields_matter() -> None:
    expected = id_of(BODY, "user", "kind")
    assert id_of(BODY, "kind", "user", "user") == expected
    assert id_of({"kind": "welcome", "user": 7.0, "more": []}, "user", "kind") == expected
    assert id_of({"x": {"b": [1.0], "a": None}}, "x") == id_of({"x": {"a": None, "b": [1]}}, "x")


@each("other", [{"user": 8}, {"user": "7"}, {"user": 7.5}, {"user": True}, {"user": None}])
def test_other_values_make_another_id(other: dict[str, Any]) -> None:
    assert id_of(BODY | other, "user", "kind") != id_of(BODY, "user", "kind")


def test_a_field_and_its_value_are_apart() -> None:
    assert id_of({"a": "b"}, "a") != id_of({"b": "b"}, "b")


@each("body, field", [({"a": 1}, "b"), ({"a": 1}, "a.b"), ([1], "0"), ("text", "a"), ({"a": {"b": 1}}, "a.c")])
def test_a_missing_field_is_refused(body: Any, field: str) -> None:
    with pytest.raises(InvalidInput, match=f"no field '{field}'"):
        id_of(body, field)


@each("fields", [(), ("",), (5,), ("a", None)])
def test_fields_are_names(fields: Any) -> None:
    with pytest.raises(InvalidInput, match="unique: pass the names"):
        unique(*fields)


@each(
    "text, expected",
    [("3/h", (3, 3_600_000)), ("1/10m", (1, 600_000)), (" 100/1.5s ", (100, 1500)), ("2/d", (2, 86_400_000))],
)
def test_rates(text: str, expected: tuple[int, int]) -> None:
    assert rate_in(text, "rate") == expected


@each(
    "text",
    ["", "3", "3/", "/h", "0/h", "3/0s", "-1/h", "3/y", "3 / h", "101/h", "3/h" * 20, 3, [], "1/1.2.3s", "1/1h1m"],
)
def test_rates_that_are_refused(text: Any) -> None:
    with pytest.raises(InvalidInput, match="rate_of_id"):
        rule_of("j", None, text, None)


def test_rules() -> None:
    assert rule_of("j", None, None, None) == rule_of(None, None, None, None) == ""
    assert rule_of("j", "10m", None, None) == "600000|||"
    assert rule_of(unique("a"), None, "3/h", 0) == "|3|3600000|0"
    assert rule_of("j", "10m", None, None, "finish") == "f600000|||"
    assert NO_RULE == "|||"


@each("rule", [("1m", None, None), (None, "1/h", None), (None, None, "1m")])
def test_a_rule_needs_an_id(rule: Any) -> None:
    with pytest.raises(InvalidInput, match="pass an id"):
        rule_of(None, *rule)


def test_from_when_it_counts() -> None:
    with pytest.raises(InvalidInput, match="unique_after: pass unique_for"):
        rule_of("j", None, "1/h", None, "finish")
    with pytest.raises(InvalidInput, match="not one of 'enqueue', 'finish'"):
        rule_of("j", "1m", None, None, "later")  # type: ignore[arg-type]


@each("rule", [(0, None, None), ("never", None, None), (None, None, -1), (True, None, None)])
def test_rules_that_are_refused(rule: Any) -> None:
    with pytest.raises(InvalidInput, match=r"unique_for|at_most"):
        rule_of("j", *rule)


def test_what_a_rule_has() -> None:
    def has(**fields: Any) -> tuple[bool, bool]:
        job = encode(NewJob(1, id="j", **fields), 100)
        return job.has_rate, job.has_at_most

    assert has() == has(unique_for=1) == (False, False)
    assert has(rate_of_id="1/h") == (True, False)
    assert has(unique_for=1, at_most=0) == (False, True)


@each(
    "number, text",
    [
        (1.0, "1"), (-0.0, "0"), (7.5, "7.5"), (-2.0, "-2"), (0.1, "0.1"), (123.456, "123.456"),
        (1e16, "10000000000000000"), (1.2345678901234567e20, "123456789012345670000"), (1e21, "1e+21"),
        (1.5e300, "1.5e+300"), (1e-6, "0.000001"), (1.5e-6, "0.0000015"), (1e-7, "1e-7"), (-1.25e-9, "-1.25e-9"),
        (10**16, "10000000000000000"), (5e-324, "5e-324"), (True, "true"), (None, "null"),
    ],
)  # fmt: skip
def test_numbers_are_as_javascript_writes_them(number: Any, text: str) -> None:
    """What JSON.stringify says."""
    assert id_of({"a": number}, "a") == sha256(f'{{"a":{text}}}'.encode()).hexdigest()[:32]
