"""Serves the metrics: those of this process, and gauges read from Redis."""
