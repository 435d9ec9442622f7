"""How good the forecast and the search for unusual hours are, on hours of which it is known what should be said."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.spark_methods import (
    ALL,
    INCIDENTS,
    QUIET,
    Figures,
    measure,
    missed,
)
from streamdq.demo.simulated import KINDS, simulate
from streamdq.dump.local import LocalFolder
from streamdq_spark.analysis import analyze, plan
from streamdq_spark.engines.duck import DuckDB
from tests.spark.frames import rows_of, written

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


def test_jobs_that_are_tried_again_in_a_quiet_shop_are_no_incidents(tmp_path: Path) -> None:
    """Of four weeks, as three come before the first that is judged; one in ten topic weeks may be wrong."""
    simulate(LocalFolder(tmp_path / "dump"), 30_000, 7 * 7, 50, quiet=True)
    analyze(DuckDB(), plan(str(tmp_path / "dump"), str(tmp_path / "out")), questions=["incidents"])
    assert len(rows_of(written(tmp_path / "out" / "incidents"))) <= 0.1 * 4 * len(KINDS)
