"""How good the forecast and the search for unusual hours are, on hours of which it is known what should be said."""

from __future__ import annotations

import pytest

from benchmarks.spark_methods import (
    ALL,
    INCIDENTS,
    QUIET,
    Figures,
    measure,
    missed,
)

pytestmark = pytest.mark.thorough
SEEDS = 3


@pytest.fixture(scope="module")
def figures() -> dict[str, Figures]:
    return measure(seeds=SEEDS)


def test_the_aims_are_reached(figures: dict[str, Figures]) -> None:
    assert list(figures) == [scenario.name for scenario in ALL]
    assert missed(figures, SEEDS) == []


@pytest.mark.parametrize("name", [scenario.name for scenario in QUIET])
def test_where_nothing_was_put_hardly_anything_is_found(name: str, figures: dict[str, Figures]) -> None:
    """Of 2,016 hours of three topics, in each of three measures."""
    assert figures[name].found_all <= 2


@pytest.mark.parametrize("name", [scenario.name for scenario in INCIDENTS if scenario.for_good])
def test_a_lasting_change_is_news_for_a_day(name: str, figures: dict[str, Figures]) -> None:
    assert figures[name].found == SEEDS
    assert figures[name].after == 0
