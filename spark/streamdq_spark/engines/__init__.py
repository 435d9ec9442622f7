"""Who calculates the tables from their SQL: DuckDB in this process, or Spark on this machine and beyond it."""
