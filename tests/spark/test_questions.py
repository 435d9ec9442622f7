"""Each table equals the plain calculation over the same events, to the row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from streamdq_spark import questions
from streamdq_spark.measures import MIN_LATE
from streamdq_spark.questions import COMPARED, GIVEN, QUESTIONS, READ, needed, tables, views
from tests.spark import plain
from tests.spark.answers import answer, answered
from tests.spark.frames import assert_same
from tests.spark.logs import MONDAY, corners, done, random_log
from tests.spark.plain import DAY, HOUR, WEEK, Happened, Table

SPANS = ((MONDAY, MONDAY + WEEK), (MONDAY + WEEK, MONDAY + 2 * WEEK))
COMPARE = ("2026-01-05..2026-01-11", "2026-01-12..2026-01-18")
pytestmark = pytest.mark.thorough  # make test compares them for one real history: test_real_history.py
FOLDER = Path(questions.__file__).parent
OF_LIVES = ("time_to_finish", "duplicates", "cost_by_topic", "cost_by_key")


@pytest.fixture(scope="module")
def log() -> list[Happened]:
    return random_log(seed=7, jobs=2500) + [e for e in corners() if e.group]


@pytest.fixture(scope="module")
def found(log: list[Happened]) -> dict[str, Table]:
    return answered(log, [*QUESTIONS, COMPARED], compare=COMPARE)


def by_hand(name: str, log: list[Happened]) -> Table:
    table: Table = plain.compared(log, SPANS) if name == COMPARED else getattr(plain, name)(log)
    first = min(e.finished for e in log) // DAY * DAY  # a row of an earlier hour, of workers, is of no day of the dump
    return [row for row in table if row.get("hour", first) >= first]


@pytest.mark.parametrize("name", [*QUESTIONS, COMPARED])
def test_it_equals_the_plain_calculation(name: str, found: dict[str, Table], log: list[Happened]) -> None:
    wanted = by_hand(name, log)
    assert wanted
    assert_same(found[name], wanted)


@pytest.mark.parametrize(
    ("first", "later"),
    [("k", "k"), (None, "k"), ("k", "later k"), (None, None)],
    ids=["always", "recorded later", "postponed to another", "never"],
)
def test_a_life_is_one_job_whatever_its_keys(first: str | None, later: str | None, log: list[Happened]) -> None:
    def key_of(e: Happened) -> str | None:
        begin = later if e.attempt > 1 else first
        return begin and f"{begin}{len(e.id) % 3}"

    log = [e._replace(key=key_of(e)) for e in log]
    for name, rows in answered(log, OF_LIVES).items():
        assert_same(rows, by_hand(name, log))


def test_what_waits_is_joined_with_the_forecast() -> None:
    log = [done("old", MONDAY + day * DAY + 60_000 * i, id=f"{day}.{i}") for day in range(15) for i in range(day + 1)]
    start = MONDAY + 15 * DAY
    waiting = {("old", start): 7, ("old", start + 23 * HOUR): 1, ("new", start + HOUR): 5, ("old", start - HOUR): 3}
    found = answer(log, "forecast", waiting=waiting, asked_at=start + 1234)
    assert_same(found, plain.forecast(log, waiting, start))
    first = next(row for row in found if row["topic"] == "old" and row["hour"] == start)
    assert (first["weeks"], first["expected"], first["waiting"], first["load"]) == (2, 5.5, 7, 7.0)


def test_what_came_first_is_known_by_the_entries_and_not_by_the_clock() -> None:
    """Of each job two steps of the schedule. The clock is set back an hour in between; or all takes place in one
    millisecond, in which entries are numbered beyond nine; and a job that was kicked goes through the steps again.
    """
    at, seconds = MONDAY + 2 * HOUR, 1000
    back = [("retry", 1, 0, at, at), ("retry", 2, 1, at + 20 * seconds - HOUR, at + 15 * seconds),
            ("done", 3, 2, at + 60 * seconds - HOUR, at + 50 * seconds - HOUR)]  # fmt: skip
    at_once = [("retry", 1, 0, at, at), ("retry", 2, 1, at, at), ("dead", 3, 2, at, at), ("kicked", 3, 0, at, at),
               ("retry", 4, 0, at, at), ("done", 5, 1, at, at)]  # fmt: skip
    log = [
        done(topic, finished, id="j", event=event, created=MONDAY, due=due, started=None, attempt=attempt, step=step,
             entry=f"{at}-{7 + n}")
        for topic, events in (("set back", back), ("at once", at_once))
        for n, (event, attempt, step, finished, due) in enumerate(events)
    ]  # fmt: skip
    log += [done("set back", at - HOUR + n, id=f"d{n}", event="dead", entry=f"{at}-{98 + n}") for n in (1, 2, 0)]
    log += [done("set back", at, id="first", event="dead", entry=f"{at}-50")]
    found = answered(log, QUESTIONS)
    assert {(row["topic"], row["step"]): row["wait_ms"] for row in found["retries"]} == {
        ("set back", 0): None, ("set back", 1): 15 * seconds, ("set back", 2): 30 * seconds,
        ("at once", 0): None, ("at once", 1): 0, ("at once", 2): 0,
    }  # fmt: skip
    (dead,) = [row for row in found["dead_letters"] if row["topic"] == "set back"]
    assert (dead["last_id"], dead["last"]) == ("d2", at)
    (whole,) = [row for row in found["time_to_finish"] if row["scope"] == "job" and row["topic"] == "set back"]
    assert whole["after_due_max_ms"] == 60 * seconds - HOUR  # from the first due time, not from a retry's
    for name, rows in found.items():
        assert_same(rows, by_hand(name, log))


def test_letters_that_were_sent_back_are_counted_for_their_own_group_and_life() -> None:
    """Buried at the first attempt, so that no other event of the job tells of trouble; the next may come later."""
    at, rest = MONDAY + HOUR, dict[str, Any](error="E", reason="exhausted")
    log = [
        done("t", at + n, id=id, group=group, created=created, event=event, **(rest if event == "dead" else {}))
        for n, (id, group, created, event) in enumerate(
            [
                ("a", "one", MONDAY, "dead"), ("a", "two", MONDAY, "dead"), ("a", "one", MONDAY, "kicked"),
                ("a", "one", MONDAY, "done"), ("b", "one", MONDAY, "dead"), ("b", "one", MONDAY + 1, "kicked"),
                ("c", "one", MONDAY, "kicked"), ("c", "one", MONDAY, "dead"),
                ("d", "one", MONDAY, "dead"), ("d", "one", MONDAY, "kicked"), ("d", "one", MONDAY, "dead"),
            ]
        )
    ]  # fmt: skip
    found = answer(log, "dead_letters")
    assert {row["group"]: (row["dead"], row["kicked"]) for row in found} == {"one": (5, 2), "two": (1, 0)}
    assert_same(found, plain.dead_letters(log))


def test_a_silence_of_years_has_no_hours() -> None:
    """As after a clock that began in 1970: hours are judged for 57 days after the last event, and then no more."""
    old = [done("t", 5 * HOUR + n, id=f"old {n}") for n in range(5)]
    log = [*old, *(done("t", MONDAY + n * HOUR, id=f"{n}") for n in range(30))]
    rows = answer(log, "anomalies")
    after_the_first = {n * HOUR for n in range(6, 58 * 24)}
    assert {row["hour"] for row in rows} == after_the_first | {MONDAY + n * HOUR for n in range(1, 29)}


@pytest.mark.parametrize(("lost", "verdict"), [(4, "ok"), (5, "cut off")])
def test_a_few_lost_attempts_are_no_reason_for_another_ttr(lost: int, verdict: str) -> None:
    """As when a worker is killed once in a week."""
    log = [done("t", MONDAY + n, id=f"{n}") for n in range(1000)]
    log += [done("t", MONDAY + n, id=f"lost {n}", event="reclaimed") for n in range(lost)]
    (found,) = answer(log, "advice")
    assert (found["cut_off"], found["ttr_verdict"]) == (lost, verdict)
    assert_same([found], plain.advice(log))


# -- the files


@pytest.mark.parametrize("name", [*QUESTIONS, COMPARED])
def test_a_table_s_header_says_what_it_is(name: str) -> None:
    text = (FOLDER / f"{name}.sql").read_text()
    assert text.startswith(f"-- {name}: ")
    assert "-- One row for each" in text
    table = tables()[name]
    assert table.columns
    assert table.day is None or table.columns[table.day] == "time"


def test_all_that_is_read_is_there() -> None:
    assert set(tables()) == {*QUESTIONS, COMPARED}
    for statement in (*tables().values(), *views().values()):
        assert set(statement.sources) <= {*READ, *GIVEN, *views()}, statement.name
    used = {view.name for name in tables() for view in needed(name)}
    assert used == set(views())


def test_a_view_s_name_is_in_its_first_line() -> None:
    for path in (FOLDER / "views").glob("*.sql"):
        assert path.read_text().startswith(f"-- {path.stem}: ")


def test_lines_fit() -> None:
    for path in FOLDER.rglob("*.sql"):
        assert [line for line in path.read_text().splitlines() if len(line) > 140] == [], path.name


def test_fewest_late_attempts_are_those_of_the_measures() -> None:
    assert re.search(r"fewer than five late attempts|Fewer than :min_late", (FOLDER / "budget.sql").read_text())
    assert MIN_LATE == 5
