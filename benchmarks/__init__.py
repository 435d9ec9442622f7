"""Measures the figures of docs/figures.md: ``python -m benchmarks``. The README.md in this folder says how."""
