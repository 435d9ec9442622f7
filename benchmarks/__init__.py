"""Measures the figures of docs/benchmarks.md: ``python -m benchmarks``. The README.md in this folder says how."""
