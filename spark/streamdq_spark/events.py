"""The events of a dump as a DataFrame."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

EVENTS = StructType(
    [
        StructField("topic", StringType()),
        StructField("shard", IntegerType()),
        StructField("entry", StringType()),
        StructField("event", StringType()),
        StructField("id", StringType()),
        StructField("group", StringType()),
        StructField("attempt", IntegerType()),
        StructField("step", IntegerType()),
        StructField("consumer", StringType()),
        StructField("created", TimestampType()),
        StructField("due", TimestampType()),
        StructField("moved", TimestampType()),
        StructField("started", TimestampType()),
        StructField("finished", TimestampType()),
        StructField("error", StringType()),
        StructField("reason", StringType()),
        StructField("body_bytes", LongType()),
    ]
)


def read_events(spark: SparkSession, input: str) -> DataFrame:
    """The events of the dump in the folder `input`, with the columns of `EVENTS`."""
    return spark.read.schema(EVENTS).parquet(f"{input}/events").select(EVENTS.fieldNames())
