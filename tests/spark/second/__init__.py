"""A second calculation of every table, in DuckDB's SQL: `NAME.sql` asks the events of a dump for the table NAME.

It follows the words of docs/reference/analytics.md, and uses nothing of the product but the dump and its manifest. It
takes other ways where there are any: joins where Spark has windows, DuckDB's percentiles, sorts in place of buckets.
"""
