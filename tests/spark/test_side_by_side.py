"""Several questions at once: what they share is made once, and a failure ends all of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, Event

import pytest

from streamdq_spark.once import Once
from streamdq_spark.side_by_side import side_by_side
from tests.waiting import HANG_S


def test_work_is_done_at_the_same_time_and_told_in_order() -> None:
    both, reported = Barrier(2), []

    def meet(number: int) -> int:
        both.wait(HANG_S)
        return number

    work = {str(n): partial(meet, n) for n in range(4)}
    done = side_by_side(work, 2, lambda name, _, of: reported.append((name, of)))
    assert done == {"0": 0, "1": 1, "2": 2, "3": 3}
    assert reported == [("0", 4), ("1", 4), ("2", 4), ("3", 4)]


def test_one_by_one_each_learns_how_many_are_done() -> None:
    reported: list[tuple[str, int, int]] = []
    side_by_side({"a": lambda: 1, "b": lambda: 2}, 1, lambda *what: reported.append(what))
    assert reported == [("a", 0, 2), ("b", 1, 2)]


def fail() -> int:
    raise ValueError("no")


def test_one_by_one_nothing_begins_after_a_failure() -> None:
    begun = Event()

    def late() -> int:
        begun.set()
        return 0

    with pytest.raises(ValueError, match="no"):
        side_by_side({"bad": fail, "late": late}, 1)
    assert not begun.is_set()


def test_what_has_begun_ends_before_a_failure_is_raised() -> None:
    begun, ended = Event(), Event()

    def fail_beside() -> int:
        assert begun.wait(HANG_S)
        return fail()

    def late() -> int:
        begun.set()
        ended.set()
        return 0

    with pytest.raises(ValueError, match="no"):
        side_by_side({"bad": fail_beside, "late": late}, 2)
    assert ended.is_set()


def test_a_value_is_made_once_by_its_first_user() -> None:
    once, made, all_ask = Once(), [], Barrier(8)

    def inner() -> object:
        made.append("inner")
        return object()

    def outer() -> tuple[object]:
        made.append("outer")
        return (once.get("inner", inner),)

    def ask(number: int) -> object:
        all_ask.wait(HANG_S)
        return once.get("outer", outer)[0] if number % 2 else once.get("inner", inner)

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(ask, range(8)))
    assert len(found) == 1
    assert sorted(made) == ["inner", "outer"]


def test_a_value_that_could_not_be_made_is_tried_again() -> None:
    once = Once()
    with pytest.raises(ZeroDivisionError):
        once.get("one", lambda: 1 // 0)
    assert once.get("one", lambda: 1) == 1
