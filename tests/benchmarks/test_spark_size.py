"""Time and memory of larger analyses, calculated from measured ones."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from benchmarks.spark_size import costs, show


def figures(*sizes: int) -> list[dict[str, float]]:
    """40 s, and 10 µs of each of two cores for an event; 55 s of CPU time in the 40 s."""
    return [
        {
            "events": n, "seconds": 40 + n * 10e-6, "cpu_seconds": 55 + n * 20e-6, "dump_mb": n * 40 / (1 << 20),
            "executor_peak_mb": 2048,
        }
        for n in sizes
    ]  # fmt: skip


def test_the_part_that_is_shared_is_divided_by_the_cores() -> None:
    found = costs(figures(28_000, 1_000_000, 3_000_000))
    assert found.fixed_s == pytest.approx(40)
    assert found.core_us == pytest.approx(20)
    assert found.memory_gb == 1.0
    assert found.dump_bytes == pytest.approx(40)
    assert found.seconds(3_000_000, 2) == pytest.approx(70)
    assert found.seconds(100_000_000, 20) == pytest.approx(140)


def test_it_is_shown() -> None:
    out = StringIO()
    show(costs(figures(1_000_000, 3_000_000)), [60_000_000], [2, 8], Console(file=out, width=120))
    assert "60,000,000" in out.getvalue()
    assert "10.7 min" in out.getvalue()
    assert "3.2 min" in out.getvalue()
    assert "20.0 µs of a core" in out.getvalue()
