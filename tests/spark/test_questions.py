"""Each answer equals the plain calculation over the same events, to the row."""

from collections.abc import Callable, Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession

from streamdq_spark.questions import (
    advice,
    anomalies,
    changes,
    dead_letters,
    duplicates,
    finish,
    forecast,
    punctuality,
    retries,
    throughput,
    workers,
)  # fmt: skip
from tests.spark import plain
from tests.spark.frames import assert_same, collected, frame
from tests.spark.logs import corners, random_log
from tests.spark.plain import Happened, Table

Answer = Callable[[DataFrame], DataFrame]
ByHand = Callable[[Sequence[Happened]], Table]
ANSWERS: list[tuple[Answer, ByHand]] = [
    (punctuality.punctuality, plain.punctuality),
    (punctuality.punctuality_topics, plain.punctuality_topics),
    (throughput.throughput, plain.throughput),
    (retries.retries, plain.retries),
    (dead_letters.dead_letters, plain.dead_letters),
    (finish.time_to_finish, plain.time_to_finish),
    (workers.workers, plain.workers),
    (duplicates.duplicates, plain.duplicates),
    (advice.advice, plain.advice),
    (anomalies.anomalies, plain.anomalies),
    (forecast.forecast, plain.forecast),
    (changes.changes, plain.changes),
]


@pytest.fixture(scope="module")
def log() -> list[Happened]:
    return random_log(seed=7, jobs=2500) + corners()


@pytest.fixture(scope="module")
def events(spark: SparkSession, log: list[Happened]) -> DataFrame:
    return frame(spark, log).cache()


@pytest.mark.parametrize(("answer", "by_hand"), ANSWERS, ids=lambda f: f.__name__)
def test_it_equals_the_plain_calculation(
    answer: Answer, by_hand: ByHand, events: DataFrame, log: list[Happened]
) -> None:
    wanted = by_hand(log)
    assert wanted
    assert_same(collected(answer(events)), wanted)
