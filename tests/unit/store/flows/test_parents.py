"""Which jobs of a flow wait for which: written in few numbers, and read again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamdq.store.flows.parents import MOST_NUMBERS, Run, add_to, all_of, each_of, ranges_of, written

NUMBERS = st.lists(st.integers(0, 30), unique=True, max_size=8).map(sorted)


def runs_of(jobs: list[list[int]]) -> list[Run]:
    runs: list[Run] = []
    for numbers in jobs:
        add_to(runs, ranges_of(numbers))
    return runs


def read(runs: list[Run]) -> list[list[int]]:
    return [[n for some in others for n in some] for count, others in each_of(runs) for _ in range(count)]


@given(st.lists(NUMBERS, max_size=12))
def test_what_is_written_is_read(jobs: list[list[int]]) -> None:
    assert read(runs_of(jobs)) == jobs


@given(st.integers(1, 50), st.lists(st.integers(0, 9), unique=True, min_size=1).map(sorted), st.integers(0, 5))
def test_what_goes_on_in_the_same_way_is_one_run(count: int, first: list[int], step: int) -> None:
    jobs = [[n + step * i for n in first] for i in range(count)]
    runs = runs_of(jobs)
    assert len(runs) == 1
    assert read(runs) == jobs


def test_only_what_the_stages_do_not_say_is_kept() -> None:
    stages = [(100,), (100, 0), (1, 0, 1)]
    runs = [runs_of([[]] * 100), runs_of([[n] for n in range(100)]), runs_of([[*range(200)]])]
    assert written(stages, runs) == {"1": [(100, 1, [0, 0])]}
    assert all_of(stages, 2) == runs[2]


def test_too_much_is_not_kept() -> None:
    many = [(1, 0, [n, n]) for n in range(MOST_NUMBERS)]
    assert written([(MOST_NUMBERS,), (MOST_NUMBERS, 0)], [runs_of([[]] * MOST_NUMBERS), many]) is None
