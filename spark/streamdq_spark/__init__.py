"""Analyses the history of a streamdq queue with Spark.

`session` starts Spark, `events` reads a dump, `questions` answer, `analysis` writes the answers as tables.
"""
