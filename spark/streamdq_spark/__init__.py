"""Analyses the history of a streamdq queue with Spark.

`session` starts Spark, `events` reads a dump, `questions` computes the answers, `analysis` writes them as tables.
"""
