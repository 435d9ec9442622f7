"""Claimed jobs: how their attempts end, and how these ends are counted in the metrics."""
