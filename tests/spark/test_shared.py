"""A test that is given up, or that ends Java, takes no other along."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamdq_spark.failures import SPARK_ERRORS
from streamdq_spark.session import pandas_unnoticed
from tests.spark.shared import SharedSpark, java
from tests.waiting import until

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("shared_spark")]
Act = Callable[[SharedSpark], object]
used: list[int] = []
"""The Java processes of the tests that are given up."""


def alarm(_: SharedSpark) -> None:
    """As pytest-timeout does, which has its handler there already."""
    main = threading.main_thread().ident
    assert main
    signal.pthread_kill(main, signal.SIGALRM)


def kill(shared_spark: SharedSpark) -> None:
    """As the kernel does if memory is short."""
    shared_spark.end_java()


@pytest.mark.xfail(raises=(pytest.fail.Exception, *SPARK_ERRORS), strict=True, reason="it is given up")
@pytest.mark.parametrize("act", [alarm, kill])
def test_that_is_given_up_in_the_middle_of_a_call(act: Act, shared_spark: SharedSpark, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def never_done(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begun.touch()
        threading.Event().wait()
        yield from batches

    def wait_and_act() -> None:
        until(begun.exists, "Spark to be at work")
        act(shared_spark)

    spark, process = shared_spark.session(), java()
    assert process
    used.append(process.pid)
    threading.Thread(target=wait_and_act, daemon=True).start()
    with pandas_unnoticed():
        waiting = spark.range(1).mapInArrow(never_done, "id long")
    waiting.collect()


def test_the_next_one_has_a_session_that_works(spark: SparkSession) -> None:
    process = java()
    assert process
    assert process.pid not in used
    assert spark.range(1000).selectExpr("sum(id)").first() == (499_500,)


def test_one_that_fails_otherwise_leaves_the_session_as_it_is(shared_spark: SharedSpark) -> None:
    before, process = shared_spark.session(), java()
    shared_spark.failed()
    assert shared_spark.session() is before
    assert java() is process
