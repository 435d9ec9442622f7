"""What changed from one time span to another: as plain Python has it, and no more than chance allows."""

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.spark import plain
from tests.spark.answers import answer
from tests.spark.frames import assert_same
from tests.spark.logs import MONDAY, done
from tests.spark.plain import HOUR, WEEK, Happened

RUNS = 20
CHANGES = {"worse", "better", "new", "gone"}


def spans(*ends: int) -> plain.Spans:
    first, second = pairwise(ends)
    return first, second


WEEKS = spans(MONDAY, MONDAY + WEEK, MONDAY + 2 * WEEK)
DAYS = ("2026-01-05..2026-01-11", "2026-01-12..2026-01-18")


def made_up(
    seed: int, *, topics: int = 3, days: int = 14, jobs: int = 400, after: Callable[[Happened], Happened] = lambda e: e
) -> list[Happened]:
    """Two weeks of the same process, with a rhythm, hours in which many attempts fail, and hours that are slow;
    `after` changes what ends in the second week.
    """
    chance = random.Random(seed)
    log: list[Happened] = []
    for topic in range(topics):
        for hour in range(days * 24):
            bad, slow = chance.random() < 0.02, chance.lognormvariate(0, 0.3)
            for _ in range(chance.randrange(jobs // 24 * (1 + (hour % 24 > 8)))):
                at = MONDAY + hour * HOUR + chance.randrange(HOUR)
                failed = chance.random() < (0.6 if bad else 0.03)
                took = int(chance.expovariate(1 / (200 * slow))) + 1
                late = int(chance.expovariate(1 / 30))
                e = done(f"t{topic}", at, id=f"{len(log)}", started=at - took, due=at - took - late)
                if failed:
                    kind = chance.choices(["OSError", "KeyError", "Rare"], [70, 29, 1])[0]
                    e = e._replace(event="dead" if chance.random() < 0.1 else "retry", error=kind)
                log.append(after(e) if at >= MONDAY + WEEK else e)
    return log


def changed(log: list[Happened]) -> set[tuple[str, str, str | None, str]]:
    rows = plain.compared(log, WEEKS)
    return {(r["topic"], r["measure"], r["error"], r["verdict"]) for r in rows if r["verdict"] in CHANGES}


@pytest.mark.thorough
def test_a_change_is_found_and_what_stayed_is_not() -> None:
    def slower(e: Happened) -> Happened:
        if e.topic == "t1":
            return e._replace(started=e.started and e.started - 100, due=e.due and e.due - 100)
        return e._replace(error="New") if e.topic == "t2" and e.error == "KeyError" else e

    log = made_up(1, after=slower)
    assert changed(log) == {
        ("t1", "duration_p50", None, "worse"), ("t2", "error", "New", "new"), ("t2", "error", "KeyError", "gone"),
    }  # fmt: skip
    assert_same(answer(log, "compared", compare=DAYS), plain.compared(log, WEEKS))


@pytest.mark.thorough
def test_of_the_same_process_no_more_is_reported_than_the_level_allows() -> None:
    """In one run of twenty anything at all may be called a change."""
    wrong = [seed for seed in range(RUNS) if changed(made_up(seed))]
    assert len(wrong) <= 1, wrong
