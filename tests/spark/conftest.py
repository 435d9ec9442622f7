"""One Spark for the whole suite: starting it costs seconds."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from streamdq_spark.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    small = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        # Compiled once and lightly: what runs here is over before more would pay.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    with session("local[2]", name="streamdq-tests", settings=small) as running:
        yield running
