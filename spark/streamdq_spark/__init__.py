"""What a streamdq queue's history tells, worked out by Spark.

`session` starts Spark, `events` reads a dump, `questions` answer, `analysis` writes the answers as tables.
"""
