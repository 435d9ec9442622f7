"""Spark starts with what the analysis needs, and says nothing."""

from pyspark.sql import SparkSession

from streamdq_spark.session import SETTINGS


def test_it_has_the_settings_that_the_analysis_needs(spark: SparkSession) -> None:
    assert {key: spark.conf.get(key) for key in SETTINGS} == SETTINGS
    assert spark.range(10).count() == 10
