"""A second calculation of every table, in DuckDB's SQL: `NAME.sql` asks the events of a dump for the table NAME.

It is written by the words of docs/analytics.md, uses nothing of the product but the dump and its manifest, and takes
other ways where there are any: joins where Spark has windows, DuckDB's percentiles, sorts in place of buckets. It is
for many events, which the calculation in plain Python (`tests/spark/plain.py`) is too slow for.
"""
