"""How much goes into one script call."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from streamdq.store.batches import MAX_BYTES, most_jobs, parts


def test_few_groups_cost_nothing_and_many_make_calls_smaller() -> None:
    assert [most_jobs(250, groups) for groups in (0, 1, 5, 50, 5000)] == [250, 250, 250, 30, 1]


@given(st.lists(st.integers(0, 3 * MAX_BYTES)), st.integers(1, 10))
def test_parts_are_all_that_there_is_in_turn_and_none_is_too_large(sizes: list[int], most: int) -> None:
    found = list(parts(sizes, lambda size: size, most))
    assert [size for part in found for size in part] == sizes
    for part in found:
        assert part
        assert len(part) <= most
        assert len(part) == 1 or sum(part) <= MAX_BYTES


@given(st.lists(st.integers(0, MAX_BYTES), min_size=1))
def test_no_two_parts_would_have_fitted_in_one(sizes: list[int]) -> None:
    found = list(parts(sizes, lambda size: size, len(sizes)))
    assert all(sum(one) + other[0] > MAX_BYTES for one, other in itertools.pairwise(found))
