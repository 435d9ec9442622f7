"""How likely a difference is if there is none: two-sided tests, for many measures at once."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

LEVEL = 0.05
"""The chance that anything at all is called a difference though there is none."""
MIN_EXPECTED = 5
"""So many of either kind have to be expected for a test of shares."""
DIGITS = 4


def two_sided(off: Column, by_chance: Column, by_hour: Column, free: Column) -> Column:
    """How likely it is to be ``off`` or more by nothing but chance. ``by_chance``: the variance if all attempts were
    independent. ``by_hour``: with hours as clusters, as attempts of one hour are alike (Cochran, Sampling Techniques,
    1977); ``free``: its degrees of freedom, at least 1. If that is more, the distribution is Student's, by Wallace's
    approximation (Bounds on Normal Approximations to Student's and the Chi-Square Distributions, 1959). Null if both
    are 0.
    """
    z = F.abs(off) / F.nullif(F.sqrt(F.greatest(by_chance, by_hour)), F.lit(0.0))
    of_student = F.sqrt(free * F.log1p(z * z / free)) * (8 * free + 1) / (8 * free + 3)
    return _erfc(F.when(by_hour > by_chance, of_student).otherwise(z) / 2**0.5)


def holm(tested: DataFrame, *ties: str) -> DataFrame:
    """Adds ``chance``: ``p`` for all rows of the table together, so that below a level there is any row without a
    difference no more often than that (Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979). ``ties``:
    the columns that tell rows apart.
    """
    same = F.col("p").isNull()
    in_order = Window.partitionBy(same).orderBy("p", *ties)
    left = F.count("*").over(Window.partitionBy(same)) - F.row_number().over(in_order) + 1
    most = F.max("raised").over(in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    raised = tested.withColumn("raised", F.least(F.col("p") * left, F.lit(1.0)))
    return raised.withColumn("chance", F.when(~same, F.round(most, DIGITS))).drop("raised")


def _erfc(x: Column) -> Column:
    """For x ≥ 0, off by less than 1.2e-7 of it (Press et al., Numerical Recipes, chapter 6.2)."""
    t = 1 / (1 + x / 2)
    series: Column = F.lit(0.0)
    for factor in (
        0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368,
    ):  # fmt: skip
        series = (series + factor) * t
    return t * F.exp(-x * x - 1.26551223 + series)
