"""Which names look like a slip in another one."""

from __future__ import annotations

import pytest

from streamdq.store.topics.misspelt import meant_by, slip_of


@pytest.mark.parametrize(
    "slip", ["order.closed", "order.clos", "ordr.close", "order.clsoe", "roder.close", "order_close"]
)
def test_one_letter_too_many_too_few_wrong_or_exchanged_is_a_slip(slip: str) -> None:
    assert slip_of(slip, ["sms.remind", "order.close"]) == "order.close"


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("shop-1", "shop-2"), ("shop-1", "shop-12"), ("orders-eu", "orders-us"), ("pay", "pad"),
        ("order.close", "order.close"), ("order.close", "order.open"), ("stats", "stairs"),
    ],
)  # fmt: skip
def test_names_that_differ_on_purpose_are_not(name: str, other: str) -> None:
    assert slip_of(name, [other]) is None
    assert slip_of(other, [name]) is None


def test_the_most_similar_name_is_meant() -> None:
    assert meant_by("ordre.clsoe", ["sms.remind", "order.open", "order.close"]) == "order.close"
    assert meant_by("x", ["sms.remind"]) is None
