"""Serves Prometheus metrics: this process's own, and gauges read from Redis at the scrape."""
