"""New classes of errors, and hosts that are worse than the others: found where there are any, and hardly elsewhere."""

import random

import pytest

from tests.spark import plain
from tests.spark.answers import answer
from tests.spark.frames import assert_same
from tests.spark.logs import MONDAY, done
from tests.spark.plain import DAY, HOUR, WEEK, Happened
from tests.spark.test_compared import RUNS, made_up

pytestmark = pytest.mark.thorough
NAMES = ("blue-1-000000abcd", "blue-2-000001abcd", "green-1-000000abcd", "red-77-000000abcd")


def on_hosts(log: list[Happened], seed: int) -> list[Happened]:
    chance = random.Random(seed)
    return [e._replace(consumer=chance.choice(NAMES)) for e in log]


def test_a_bad_host_is_found_and_a_difficult_topic_is_held_against_nobody() -> None:
    """On red three times as many attempts fail; green has all of a topic that always fails; in one hour
    everything failed for all.
    """
    chance = random.Random(5)
    log = []
    for n, e in enumerate(on_hosts(made_up(3, topics=1), 3)):
        if "red" in (e.consumer or "") and chance.random() < 0.1:
            e = e._replace(event="retry", error="OSError")
        if e.finished // HOUR == MONDAY // HOUR + 50:
            e = e._replace(event="retry", error="OSError")
        log.append(e)
        if n % 5 == 0:
            log.append(e._replace(topic="hard", event="dead", error="Bury", consumer=NAMES[2]))
    rows = answer(log, "hosts")
    assert {(row["host"], row["measure"]) for row in rows if row["verdict"] == "bad"} == {("red", "failed")}
    assert_same(rows, plain.hosts(log))


def test_a_class_of_errors_is_new_spreads_fades_or_is_gone() -> None:
    def each(error: str, before: int, after: int) -> list[Happened]:
        """So many of twenty attempts of each hour fail, in the first week and in the second."""
        log = []
        for hour in range(14 * 24):
            for n in range(20):
                e = done(error, MONDAY + hour * HOUR + n * 1000, id=f"{hour}.{n}")
                fails = n < (before if hour < 7 * 24 else after)
                log.append(e._replace(event="retry", error=error) if fails else e)
        return log

    log = each("New", 0, 1) + each("Spreading", 1, 3) + each("Fading", 3, 1) + each("Gone", 1, 0) + each("Same", 1, 1)
    rows = answer(log, "error_classes")
    assert {row["error"]: row["verdict"] for row in rows} == {
        "New": "new", "Spreading": "spreading", "Fading": "fading", "Gone": "gone", "Same": "same",
    }  # fmt: skip
    assert next(row["first"] for row in rows if row["error"] == "New") >= MONDAY + WEEK
    assert_same(rows, plain.error_classes(log))


def test_one_bad_hour_makes_no_class_of_errors_spread() -> None:
    log = made_up(8, topics=1)
    bad = MONDAY + 9 * DAY + 12 * HOUR
    log = [
        e._replace(event="retry", error="OSError") if bad <= e.finished < bad + HOUR else e for e in log
    ]  # fmt: skip
    assert {row["verdict"] for row in plain.error_classes(log)} <= {"same", "too little"}


def test_of_the_same_process_no_more_is_reported_than_the_level_allows() -> None:
    """In one report of twenty anything at all may be called a change, and in one of twenty any host bad."""
    logs = [on_hosts(made_up(seed), seed) for seed in range(100, 100 + RUNS)]
    changed = [{row["verdict"] for row in plain.error_classes(log)} - {"same", "too little"} for log in logs]
    bad = [{row["host"] for row in plain.hosts(log) if row["verdict"] == "bad"} for log in logs]
    assert sum(map(bool, changed)) <= 1
    assert sum(map(bool, bad)) <= 1
