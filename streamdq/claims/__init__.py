"""Claimed jobs: how an attempt ends, and what it adds to the metrics."""
