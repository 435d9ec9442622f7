"""How likely a difference is if there is none: two-sided tests, for many measures at once."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

LEVEL = 0.05
"""The chance that anything at all is called a difference though there is none."""
MIN_EXPECTED = 5
"""So many of either kind have to be expected for a test of shares."""
DIGITS = 4


def with_p(rows: DataFrame, off: Column, by_chance: Column, by_hour: Column, free: Column, enough: Column) -> DataFrame:
    """Adds ``p``: how likely it is to be ``off`` or more by nothing but chance. ``by_chance``: the variance if all
    attempts were independent. ``by_hour``: with hours as clusters, as attempts of one hour are alike (Cochran, Sampling
    Techniques, 1977); ``free``: its degrees of freedom, at least 1. If that is more, the distribution is Student's, by
    Wallace's approximation (Bounds on Normal Approximations to Student's and the Chi-Square Distributions, 1959). Null
    if both are 0, and unless there is ``enough``.
    """
    # Step by step: a column used several times in one expression would be computed, and planned, as many times.
    of_student = "sqrt(_free * log1p(_z * _z / _free)) * (8 * _free + 1) / (8 * _free + 3)"
    return (
        rows.withColumns(
            {"_off": F.abs(off), "_by_chance": by_chance, "_by_hour": by_hour, "_free": free, "_enough": enough}
        )
        .withColumn("_z", F.expr("_off / nullif(sqrt(greatest(_by_chance, _by_hour)), 0D)"))
        .withColumn("_x", F.expr(f"if(_by_hour > _by_chance, {of_student}, _z) / {2**0.5}D"))
        .withColumn("_t", F.expr("1 / (1 + _x / 2)"))
        .withColumn("p", F.expr(f"if(_enough, {_erfc('_x', '_t')}, null)"))
    )


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


def _erfc(x: str, t: str) -> str:
    """For x ≥ 0, off by less than 1.2e-7 of it (Press et al., Numerical Recipes, chapter 6.2). ``t`` is
    1 / (1 + x / 2).
    """
    series = "0D"
    for factor in (
        0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368,
    ):  # fmt: skip
        series = f"({series} + {factor}D) * {t}"
    return f"{t} * exp(-{x} * {x} - 1.26551223D + {series})"
