"""What callers hand in, how it is kept, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel
from pydantic_core import from_json

from streamdq.errors import BodyDamaged, InvalidInput
from streamdq.job.body import encode_body
from streamdq.job.job import (
    Job,
    check_group,
    check_id,
    check_topic,
    check_ttr,
    check_url,
)
from tests.cases import each

LIMIT = 256 * 1024
NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001
NOW_MS, DUE_MS = 1_800_000_000_000, 1_800_000_030_000


class Model(BaseModel):
    when: datetime
    amount: Decimal


@dataclass
class Data:
    key: UUID


def test_bodies_that_pydantic_can_write() -> None:
    model = Model(when=datetime(2030, 1, 1, tzinfo=UTC), amount=Decimal("9.90"))
    assert json.loads(encode_body(model, LIMIT)) == {"when": "2030-01-01T00:00:00Z", "amount": "9.90"}
    assert json.loads(encode_body(Data(UUID(int=1)), LIMIT)) == {"key": "00000000-0000-0000-0000-000000000001"}
    assert json.loads(encode_body({"day": date(2030, 1, 2), "both": (1, 2)}, LIMIT)) == {
        "day": "2030-01-02",
        "both": [1, 2],
    }


@each("body", [0, False, [], {}, " ", "NaN", {"Infinity": "NaN"}, [["-Infinity"]]])
def test_bodies_that_are_not_blank(body: Any) -> None:
    assert json.loads(encode_body(body, LIMIT)) == body


def nested(depth: int) -> list[Any]:
    body: list[Any] = []
    for _ in range(depth):
        body = [body]
    return body


def test_a_body_that_is_no_json_is_damaged() -> None:
    with pytest.raises(BodyDamaged, match="the body of job 'j' in topic 't' can't be read: it is not JSON"):
        _ = Job("t", "j", b"{", 0, 0).body


def test_the_deepest_body_is_read_again() -> None:
    assert from_json(encode_body(nested(150), LIMIT)) == nested(150)


@each("before", [0, 1, 2149, 2150, 2151, 4299, 7000])
def test_the_longest_number_is_read_again_and_no_longer_one_is_taken(before: int) -> None:
    text = "x" * before
    assert from_json(encode_body([text, 10**4299], LIMIT)) == [text, 10**4299]
    assert from_json(encode_body([text, "1" * 9000], LIMIT)) == [text, "1" * 9000]
    for number in (10**4300, -(10**5000)):
        with pytest.raises(InvalidInput, match="number out of range"):
            encode_body([text, number], LIMIT)


@each(
    "body",
    [
        None, "", math.nan, math.inf, {"a": math.nan}, [-math.inf], {"a": [{"b": math.inf}]}, {"NaN": math.nan},
        object(), {"a": object()}, nested(201), nested(250), nested(300), lambda: None,
        "\ud800", {"\udfff": 1}, b"\xff\xfe",
    ],
)  # fmt: skip
def test_bodies_that_are_refused(body: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^body: "):
        encode_body(body, LIMIT)


def test_a_body_that_holds_itself_is_refused() -> None:
    body: list[Any] = []
    body.append(body)
    with pytest.raises(InvalidInput, match=r"^body: "):
        encode_body(body, LIMIT)


def test_the_limit_counts_the_bytes_of_the_json() -> None:
    assert len(encode_body("x" * 98, 100)) == 100
    with pytest.raises(InvalidInput, match="STREAMDQ_MAX_BODY_BYTES"):
        encode_body("x" * 99, 100)
    with pytest.raises(InvalidInput, match="more than the 100 allowed"):
        encode_body("é" * 50, 100)


GOOD_NAMES = ["a", "order.close", "支付", "a:b/c", "x" * 255]


@each("topic", GOOD_NAMES)
def test_topics(topic: str) -> None:
    assert check_topic(topic) == topic


@each(
    "topic",
    [
        ".",
        "..",
        "",
        " ",
        "a b",
        "a\n",
        "\n",
        "{",
        "}",
        "{}",
        "a{b}",
        "\x00",
        "\x7f",
        *(f"a{mark}b" for mark in "\x9b\xa0\xad\u200b\u202e\u2028\u2066\u3000\ufeff\U000e0041"),
        "x" * 256,
        "é" * 128,
        "\ud800",
        None,
        5,
        b"a",
    ],
)
def test_topics_that_are_refused(topic: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^topic: "):
        check_topic(topic)


@each("id", [*GOOD_NAMES, "a b", "{}", "order 42", "|", "...", ".a", "a/.."])
def test_ids(id: str) -> None:
    assert check_id(id) == id


@each("id", ["", "  ", "a\nb", "\x1f", "x" * 300, "x" * 256, "é" * 128, "\udfff", None, 42, b"a", ".", ".."])
def test_ids_that_are_refused(id: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^id: "):
        check_id(id)


@each("group", ["", "a b", "a,b", "a:b", "é", "x" * 65, "a\n", None, 1])
def test_groups_that_are_refused(group: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^group: "):
        check_group(group)


def test_groups() -> None:
    assert check_group("mail-2.eu_west") == "mail-2.eu_west"


@each("url", ["http://a", "https://example.org:8080/x?y=1#z", "http://[::1]/", "HTTPS://A.example/"])
def test_urls(url: str) -> None:
    assert check_url(url) == url


@each(
    "url",
    ["", " ", "example.org", "ftp://a", "http://", "https:///x", "http://a b", "http://a\n", "http://[", "javascript:x",
     "http://a/" + "x" * 2048, None, 5, b"http://a", "http://é/"],
)  # fmt: skip
def test_urls_that_are_refused(url: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^url: "):
        check_url(url)


def test_ttr() -> None:
    assert check_ttr("1ms") == 1
    with pytest.raises(InvalidInput, match=r"^ttr: "):
        check_ttr("0.4ms")


class _Array:
    """As numpy's: it can't say whether it equals another value."""

    def __eq__(self, other: object) -> Any:
        return _Array()

    def __bool__(self) -> bool:
        raise ValueError("The truth value of an array is ambiguous")

    __hash__ = None  # type: ignore[assignment]


def test_what_is_no_json_is_refused_whatever_it_says_of_itself() -> None:
    with pytest.raises(InvalidInput, match="can't be written as JSON"):
        encode_body(_Array(), LIMIT)
