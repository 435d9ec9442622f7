"""Measures the README's figures: ``python -m benchmarks``. The README.md in this folder says how."""
