"""Conditions: how they are written, what fulfills them, and which text a record must have."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from streamdq.errors import InvalidInput
from streamdq.job.job import Job
from streamdq.operations.find.conditions import Condition, condition_in, conditions_in
from tests.cases import each

BODY = {"user": 7, "items": [{"sku": "a"}, {"sku": "b"}], "name": "Ada", "paid": True, "none": None, "3": "x"}


@each(
    "text, path, operator, value",
    [
        ("body.user=7", ("body", "user"), "=", 7),
        (" body.user = 7 ", ("body", "user"), "=", 7),
        ("body.user=007", ("body", "user"), "=", "007"),
        ('body.user="7"', ("body", "user"), "=", "7"),
        ("body.name=Ada Lovelace", ("body", "name"), "=", "Ada Lovelace"),
        ("body.name=", ("body", "name"), "=", ""),
        ("body.a=b=c", ("body", "a"), "=", "b=c"),
        ("body.amount>=1.5", ("body", "amount"), ">=", 1.5),
        ("body.amount<100", ("body", "amount"), "<", 100),
        ("body.tags!=[1,2]", ("body", "tags"), "!=", [1, 2]),
        ("body=null", ("body",), "=", None),
        ("id=7", ("id",), "=", "7"),
        ('error="7"', ("error",), "=", "7"),
        ("attempts>3", ("attempts",), ">", 3),
        ("body.x=NaN", ("body", "x"), "=", "NaN"),
    ],
)
def test_a_text(text: str, path: tuple[str, ...], operator: str, value: Any) -> None:
    found = condition_in(text)
    assert found == Condition(path, operator, value)
    assert type(found.value) is type(value)


@each(
    "text",
    ["", "body", "body.user", "=7", "user=7", "body.=7", "body..a=7", "id.x=7", "attempts.x=1", "x" * 2001 + "=1"],
)
def test_a_text_that_is_none(text: str) -> None:
    with pytest.raises(InvalidInput, match="where: "):
        condition_in(text)


def test_a_mapping_or_texts() -> None:
    assert conditions_in(None) == ()
    assert conditions_in({"body.user": 7, "body.amount": (">", 1)}) == conditions_in(["body.user=7", "body.amount>1"])
    assert conditions_in("body.user=7") == conditions_in(["body.user=7"])
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    assert conditions_in({"body.at": noon})[0].value == "2030-01-01T12:00:00Z", "as it is enqueued"
    wrongs: tuple[Any, ...] = ({"body.a": ("~", 1)}, {"body.a": (1, 2, 3)}, {"body.a": object()}, {"user": 1}, {7: 1})
    for wrong in wrongs:
        with pytest.raises(InvalidInput, match="where: "):
            conditions_in(wrong)
    with pytest.raises(InvalidInput, match="at most 20"):
        conditions_in(["body=1"] * 21)


@each(
    "text, holds",
    [
        ("body.user=7", True), ("body.user=7.0", True), ('body.user="7"', False), ("body.user!=8", True),
        ("body.user>6", True), ("body.user>=7", True), ("body.user<=7", True), ("body.user<7", False),
        ("body.user>abc", False), ("body.items.1.sku=b", True), ("body.items.2.sku=b", False), ("body.3=x", True),
        ("body.items.x=1", False), ("body.name=Ada", True), ("body.name>Abc", True), ("body.name<Abc", False),
        ("body.paid=true", True), ("body.paid=1", False), ("body.paid>0", False), ("body.none=null", True),
        ("body.missing=null", False), ("body.missing!=1", True), ("body.missing<1", False),
        ('body.items=[{"sku": "a"}, {"sku": "b"}]', True), ('body.items=[{"sku": "a"}]', False),
        ('body.items.0={"sku": "a"}', True), ('body.items.0={"sku": 1}', False),
    ],
)  # fmt: skip
def test_what_holds_in_a_body(text: str, holds: bool) -> None:
    assert condition_in(text).holds_in(BODY) is holds


def test_what_holds_for_a_job() -> None:
    job = Job("t", "j1", b"1", 1, 1, url="https://a.example/", key="k")
    for text in ("id=j1", "url=https://a.example/", "key=k", "key!=x", "id<j2"):
        assert condition_in(text).holds_for(job)
    assert not condition_in("key=k").holds_for(Job("t", "j", b"1", 1, 1))
    assert condition_in("key!=k").holds_for(Job("t", "j", b"1", 1, 1))


@each(
    "text, needed",
    [
        ("body.user=7", '=7.0 "user":'), ("body.user=-7", '=-7.0 "user":'), ("body.user=a b", '"user":"a b"'),
        ("body.user=true", '"user":true'), ("body.user=null", '"user":null'), ("body.user=0", '=0.0 "user":'),
        ("body.user=1.5", '=1.5 "user":'), ("body.user=[1]", '"user":'), ("body.user=é", '"user":'),
        ("body.user=a/b", '"user":'), ("body.user=100000", '=100000.0 "user":'), ("body.items.1=x", '"x"'),
        ("body=x", '"x"'), ("body.é=7", ""),
        ("body.é=x", '"x"'), ("body.1=70", ""), ("body=70", ""), ("body.user!=7", ""), ("id=7", ""),
        ("body.user>7", '>7.0 "user":'), ("body.user>=7", '>7.0 "user":'), ("body.a.user<-1.5", '<-1.5 "user":'),
        ("body.user<=1e22", '<1e+22 "user":'), ("body.user>x", ""), ("body.user>true", ""), ("body.items.1>7", ""),
        ("body>7", ""), ("body.é>7", ""), (f"body.user>1{'0' * 400}", ""), ("attempts>7", ""),
    ],
)  # fmt: skip
def test_the_text_that_a_record_must_have(text: str, needed: str) -> None:
    assert condition_in(text).text == needed


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a1é"\\/ ', max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def everything_in(value: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(path, value)] + [one for step, part in inside for one in everything_in(part, (*path, str(step)))]


def has(body: str, text: str) -> bool:
    """As lua/lib/search.lua looks for it."""
    bound, _, name = text[1:].partition(" ")
    if not text.startswith("="):
        return text in body
    return any(float(found) == float(bound) for found in re.findall(re.escape(name) + r"(-?\d[\d.eE+-]*)", body))


@given(VALUES)
def test_the_text_is_in_every_body_that_fulfills_the_condition(body: Any) -> None:
    stored, older = to_json(body).decode(), json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    for path, value in everything_in(json.loads(stored), ("body",)):
        for asked in {
            str(value): value,
            "whole": int(value) if isinstance(value, float) and value % 1 == 0 else value,
        }.values():
            condition = Condition(path, "=", asked)
            assert condition.holds_in(json.loads(stored))
            assert has(stored, condition.text)
            assert has(older, condition.text)


def test_two_equals_signs_are_refused() -> None:
    """They are equality elsewhere, and would find nothing here."""
    for text in ("body.user==7", "body.user>==7"):
        with pytest.raises(InvalidInput, match="write = and not"):
            condition_in(text)
    assert condition_in('body.user="=7"').value == "=7"
