"""Each answer equals the plain calculation over the same events, to the row."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamdq_spark.failures import SPARK_ERRORS
from streamdq_spark.questions import (
    History,
    advice,
    anomalies,
    budget,
    capacity,
    changes,
    cost,
    dead_letters,
    duplicates,
    errors,
    finish,
    forecast,
    lateness_causes,
    punctuality,
    retries,
    throughput,
    workers,
)  # fmt: skip
from streamdq_spark.questions.common import complete_hours, percentile, ranks_of_many
from tests.spark import plain
from tests.spark.frames import assert_same, collected, history_of
from tests.spark.logs import MONDAY, corners, done, random_log
from tests.spark.plain import DAY, HOUR, Happened, Table

pytestmark = pytest.mark.thorough  # make test compares them for one real history: test_real_history.py
Answer = Callable[[History], DataFrame]
ByHand = Callable[[Sequence[Happened]], Table]


def incidents(history: History) -> DataFrame:
    return anomalies.incidents(anomalies.anomalies(history))


ANSWERS: list[tuple[Answer, ByHand]] = [
    (punctuality.punctuality, plain.punctuality),
    (punctuality.punctuality_topics, plain.punctuality_topics),
    (lateness_causes.lateness_causes, plain.lateness_causes),
    (throughput.throughput, plain.throughput),
    (retries.retries, plain.retries),
    (dead_letters.dead_letters, plain.dead_letters),
    (finish.time_to_finish, plain.time_to_finish),
    (workers.workers, plain.workers),
    (duplicates.duplicates, plain.duplicates),
    (cost.cost_by_topic, plain.cost_by_topic),
    (cost.cost_by_key, plain.cost_by_key),
    (advice.advice, plain.advice),
    (anomalies.anomalies, plain.anomalies),
    (incidents, plain.incidents),
    (forecast.forecast, plain.forecast),
    (forecast.forecast_accuracy, plain.forecast_accuracy),
    (changes.changes, plain.changes),
    (capacity.capacity, plain.capacity),
    (budget.budget, plain.budget),
    (budget.budget_incidents, plain.budget_incidents),
    (errors.errors, plain.errors),
    (errors.error_classes, plain.error_classes),
    (errors.hosts, plain.hosts),
]


@pytest.fixture(scope="module")
def log() -> list[Happened]:
    return random_log(seed=7, jobs=2500) + corners()


@pytest.fixture(scope="module")
def made() -> Iterator[dict[SparkSession, History]]:
    kept: dict[SparkSession, History] = {}
    yield kept
    with suppress(*SPARK_ERRORS):
        for history in kept.values():
            history.forget()


@pytest.fixture
def history(spark: SparkSession, log: list[Happened], made: dict[SparkSession, History]) -> History:
    """What it has computed for one answer it has for the next, as long as the session lasts."""
    if spark not in made:
        made[spark] = history_of(spark, log)
        made[spark].keep(made[spark].events)
    return made[spark]


@pytest.mark.parametrize(("answer", "by_hand"), ANSWERS, ids=lambda f: f.__name__)
def test_it_equals_the_plain_calculation(
    answer: Answer, by_hand: ByHand, history: History, log: list[Happened]
) -> None:
    wanted = by_hand(log)
    assert wanted
    assert_same(collected(answer(history)), wanted)


@pytest.mark.parametrize("answer", [answer for answer, _ in ANSWERS], ids=lambda f: f.__name__)
def test_of_nothing_there_is_no_answer(answer: Answer, spark: SparkSession) -> None:
    assert collected(answer(history_of(spark, []))) == []


@pytest.mark.parametrize(
    ("first", "later"),
    [("k", "k"), (None, "k"), ("k", "later k"), (None, None)],
    ids=["always", "recorded later", "postponed to another", "never"],
)
def test_a_life_is_one_job_whatever_its_keys(
    first: str | None, later: str | None, spark: SparkSession, log: list[Happened]
) -> None:
    def key_of(e: Happened) -> str | None:
        begin = later if e.attempt > 1 else first
        return begin and f"{begin}{len(e.id) % 3}"

    log = [e._replace(key=key_of(e)) for e in log]
    history = history_of(spark, log)
    for answer, by_hand in ANSWERS:
        if answer.__name__ in ("time_to_finish", "duplicates", "cost_by_topic", "cost_by_key"):
            assert_same(collected(answer(history)), by_hand(log))
    history.forget()


def test_what_waits_is_joined_with_the_forecast(spark: SparkSession) -> None:
    log = [done("old", MONDAY + day * DAY + 60_000 * i, id=f"{day}.{i}") for day in range(15) for i in range(day + 1)]
    start = MONDAY + 15 * DAY
    waiting = {("old", start): 7, ("old", start + 23 * HOUR): 1, ("new", start + HOUR): 5, ("old", start - HOUR): 3}
    rows = [(topic, datetime.fromtimestamp(hour / 1000, UTC), jobs) for (topic, hour), jobs in waiting.items()]
    asked = spark.createDataFrame(rows, "topic string, due_hour timestamp, jobs long")
    at = datetime.fromtimestamp((start + 1234) / 1000, UTC)
    found = collected(forecast.forecast(history_of(spark, log), asked, start=at))
    assert_same(found, plain.forecast(log, waiting, start))
    first = next(row for row in found if row["topic"] == "old" and row["hour"] == start)
    assert (first["weeks"], first["expected"], first["waiting"], first["load"]) == (2, 5.5, 7, 7.0)


def test_what_came_first_is_told_by_the_entries_and_not_by_the_clock(spark: SparkSession) -> None:
    """Of each job two steps of the schedule. The clock is set back an hour in the midst; or all takes place in one
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
    waits = {(row["topic"], row["step"]): row["wait_ms"] for row in collected(retries.retries(history_of(spark, log)))}
    assert waits == {
        ("set back", 0): None, ("set back", 1): 15 * seconds, ("set back", 2): 30 * seconds,
        ("at once", 0): None, ("at once", 1): 0, ("at once", 2): 0,
    }  # fmt: skip
    (dead,) = [
        row for row in collected(dead_letters.dead_letters(history_of(spark, log))) if row["topic"] == "set back"
    ]
    assert (dead["last_id"], dead["last"]) == ("d2", at)
    (whole,) = [
        row
        for row in collected(finish.time_to_finish(history_of(spark, log)))
        if row["scope"] == "job" and row["topic"] == "set back"
    ]
    assert whole["after_due_max_ms"] == 60 * seconds - HOUR  # from the first due time, not from a retry's
    history = history_of(spark, log)
    for answer, by_hand in ANSWERS:
        assert_same(collected(answer(history)), by_hand(log))


def test_letters_that_were_sent_back_are_counted_for_their_own_group_and_life(spark: SparkSession) -> None:
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
    found = collected(dead_letters.dead_letters(history_of(spark, log)))
    assert {row["group"]: (row["dead"], row["kicked"]) for row in found} == {"one": (5, 2), "two": (1, 0)}
    assert_same(found, plain.dead_letters(log))


@pytest.mark.parametrize("spread", [1, 40, 10**10])
def test_percentiles_of_many_values_are_exact(spark: SparkSession, spread: int) -> None:
    """From buckets: a few values, as many as a bucket may hold, and such as hardly ever meet; some below zero."""
    chance, levels = random.Random(spread), {"p50": 0.5, "p99": 0.99}
    values = {
        key: [round(chance.gauss(0.3, 1) * spread) for _ in range(n)]
        for key, n in (("many", 3000), ("two", 2), ("one", 1))
    }
    rows = [(key, value) for key, own in values.items() for value in own]
    ranks = ranks_of_many(spark.createDataFrame(rows, "key string, ms long"), ["key"], "ms", [*levels.values()])
    found = ranks.groupBy("key").agg(
        *(percentile(F.col("ms"), at).alias(name) for name, at in levels.items()), F.max("ms").alias("max")
    )
    assert_same(
        collected(found),
        [
            {"key": key, **{name: plain.quantile(own, at) for name, at in levels.items()}, "max": max(own)}
            for key, own in values.items()
        ],
    )


def test_hours_do_not_depend_on_a_time_zone(spark: SparkSession) -> None:
    log = [done("t", MONDAY + 20 * 60_000)]
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")  # half an hour off
    try:
        assert [row["hour"] for row in collected(throughput.throughput(history_of(spark, log)))] == [MONDAY]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


def test_a_silence_of_years_has_no_hours(spark: SparkSession) -> None:
    """As after a clock that began in 1970."""
    hours = history_of(spark, [done("t", 5 * HOUR), done("t", MONDAY)]).hours(1000)
    end = MONDAY // HOUR + 10
    at = [row["at"] for row in collected(complete_hours(hours, ["done"], end, longest=100))]
    assert sorted(at) == [*range(6, 106), *range(MONDAY // HOUR, end)]
