"""What the report says of workers, budgets, errors, hosts and two time spans; no Spark is needed to look at it."""

from datetime import timedelta
from typing import Any

import pytest

from streamdq_spark.report.do_this import do_this
from streamdq_spark.report.pools import pools
from tests.spark.logs import MONDAY, done
from tests.spark.plain import HOUR, Happened
from tests.spark.reports import EPOCH, report_of, tables_of
from tests.spark.test_budget import hourly
from tests.spark.test_compared import made_up
from tests.spark.test_report import Page

START = EPOCH + timedelta(milliseconds=MONDAY)
SPANS = ("2026-01-05..2026-01-11", "2026-01-12..2026-01-18")


def capacity_row(hour: int = 0, **columns: Any) -> dict[str, Any]:
    known = {
        "topic": "t", "group": "default", "hour": START + timedelta(hours=hour), "load_low": 90.0, "load": 100.0,
        "load_high": 120.0, "attempt_ms": 500.0, "slots_low": 3.0, "slots": 4.0, "slots_high": 6.0, "pool": 1,
        "pool_low": 3.0, "pool_slots": 4.0, "pool_high": 6.0,
        "concurrency": 2.0, "workers_low": 2, "workers": 3, "workers_high": 4, "workers_seen": 3.0,
    }  # fmt: skip
    return known | columns


def test_queues_that_share_workers_have_their_slots_together_and_another_concurrency_needs_other_workers() -> None:
    rows = [
        *(capacity_row(topic=topic, pool_slots=5.0, pool_low=3.1, pool_high=7.2) for topic in "tu"),
        capacity_row(topic="alone", pool=2, pool_slots=0.1, concurrency=1.0),
        capacity_row(topic="new", group=None, pool=None, concurrency=None, attempt_ms=None, slots=None, slots_low=None,
                     slots_high=None, pool_slots=None, pool_low=None, pool_high=None, workers_seen=None),
    ]  # fmt: skip
    both, alone, new = pools(rows)
    assert [(pool.name, pool.number) for pool in (both, alone, new)] == [("t, u", 1), ("alone", 2), ("new", None)]
    (hour,) = both.hours
    assert (hour.load, hour.slots) == (200, 5.0)
    assert (hour.workers_low, hour.workers, hour.workers_high) == (2, 4, 5)
    assert (new.busiest, new.hours[0].load, new.hours[0].workers) == (None, 100, None)
    assert [pool.hours[0].workers for pool in pools(rows, concurrency=7)] == [1, 1, None]


def test_more_workers_are_advised_where_there_were_fewer() -> None:
    rows = [capacity_row(hour, pool_slots=slots) for hour, slots in enumerate((4.0, 6.4, 8.0, 1.0))]
    (one,) = do_this({"capacity": rows}, None) or []
    assert (one.topic, one.setting, one.today, one.proposed) == ("t", "Workers", "3", "5")
    assert "In 2 hours from Mon 5 Jan 01:00 to 02:00 more jobs come due" in one.effect
    assert do_this({"capacity": [capacity_row(pool_slots=4.0)]}, None) == []
    assert do_this({"capacity": [capacity_row(pool_slots=99.0, workers_seen=None)]}, None) == []
    assert do_this({"throughput": []}, None) is None


@pytest.mark.thorough
def test_an_overdrawn_budget_is_said_with_what_spent_it() -> None:
    late = dict.fromkeys(range(100, 107), 10)
    tables = tables_of([*hourly("over", late), *hourly("fine", {1: 1}), *hourly("hardly any", {0: 1}, each=1, days=1)])
    (one,) = [one for one in do_this(tables, None) or [] if one.setting == "Error budget"]
    assert (one.topic, one.today, one.proposed) == ("over", "104 % spent", "100 % at most")
    assert "70 of 6,720 attempts of 28 days started later than 1 s; 67 were allowed." in one.effect
    assert "spent 104 %; 100 % of the lateness was waiting for a worker." in one.effect
    assert one.note == "It takes more workers, or more handlers at once in each."


def test_a_budget_of_less_than_two_days_is_said_in_hours() -> None:
    (one,) = [one for one in do_this(tables_of(hourly("t", {0: 10}, days=1)), None) or [] if one.today]
    assert "10 of 240 attempts of 1 d started later than 1 s; 2 were allowed." in one.effect


@pytest.mark.thorough
def test_late_moves_are_no_reason_for_workers() -> None:
    log = [e._replace(moved=e.started) for e in hourly("over", dict.fromkeys(range(100, 107), 10))]
    (one,) = [one for one in do_this(tables_of(log), None) or [] if one.setting == "Error budget"]
    assert "waiting for the mover, a rate or a limit of keys" in one.effect
    assert one.note.startswith("See that a mover runs")


def new_error() -> list[Happened]:
    return [
        e._replace(event="retry", error="New<b>") if e.finished > MONDAY + 9 * 24 * HOUR and int(e.id) % 9 == 0 else e
        for e in made_up(2, topics=1)
    ]


@pytest.mark.thorough
def test_a_new_class_of_errors_is_something_to_look_at() -> None:
    found = [one for one in do_this(tables_of(new_error()), None) or [] if "New" in one.setting]
    assert [one.setting for one in found] == ["Attempts that fail with New<b>"]
    assert found[0].effect.startswith("New since ")
    assert "all on w1" in found[0].effect
    page = Page(report_of(new_error()))
    assert "1 new in the last seven days" in page.text
    assert "New<b>" in page.text


@pytest.mark.thorough
def test_a_bad_host_is_something_to_stop() -> None:
    log = [
        e._replace(consumer=f"host{n % 3}-1-000000abcd")
        if n % 3 or n % 2
        else e._replace(consumer="host0-1-000000abcd", event="retry", error="OSError")
        for n, e in enumerate(made_up(2, topics=1))
    ]
    (one,) = [one for one in do_this(tables_of(log), None) or [] if one.topic.startswith("Host")]
    assert (one.topic, one.setting) == ("Host host0", "Failed attempts")
    assert "host0 has " in Page(report_of(log)).text


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ([], "No attempt ended in these time spans."),
        ([done("t", MONDAY + 1)], "There are too few attempts in these time spans to say."),
        pytest.param(made_up(2, topics=1), "Nothing, as far as", marks=pytest.mark.thorough),
    ],
)
def test_a_comparison_that_finds_nothing_says_so(log: list[Happened], said: str) -> None:
    assert said in Page(report_of(log, compare=SPANS)).text


@pytest.mark.thorough
def test_what_changed_comes_before_the_other_sections() -> None:
    def slower(e: Happened) -> Happened:
        return e._replace(started=(e.started or 0) - 500, due=(e.due or 0) - 500) if e.topic == "t1" else e

    text = Page(report_of(made_up(5, topics=2, after=slower), compare=SPANS)).text
    assert text.index("From 2026-01-05..2026-01-11 to") < text.index("Attempts that ended as done, and what else")
    assert "2 of " in text
    assert "measures got worse, 0 better." in text
    assert "run time, median" in text


def test_without_anything_the_sections_say_what_they_lack() -> None:
    text = Page(report_of([])).text
    for said in (
        "This needs two complete weeks of history, or the jobs that wait in Redis, and attempts that ended",
        "No attempt failed with a known error in this period.",
        "No two hosts had attempts of the same topic in the same hour.",
    ):
        assert said in text
