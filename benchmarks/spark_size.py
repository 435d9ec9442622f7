"""``python -m benchmarks.spark_size``: how long an analysis of so many events would take on so many cores, and what it
would need, by calculation from what `python -m benchmarks.spark --json bench-spark.json` has measured.

What an event costs is the slope of the measured CPU time, of a million events and more; the cores share it. The rest of
the measured time does not depend on the events. It holds where cores are as fast, and reading the dump keeps up.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression
from typing import Any

from rich.console import Console

from streamdq.terminal import table

LEAST = 1_000_000
"""With fewer events most of the time is not the events'."""
CORES = 2
"""Of the measured executor."""
EVENTS, ON_CORES = (1_000_000, 10_000_000, 100_000_000, 1_000_000_000), (2, 8, 32)


@dataclass(frozen=True, slots=True)
class Costs:
    """``core_us``: of one core, for each event. ``memory_gb``: of an executor, for each of its cores."""

    fixed_s: float
    core_us: float
    dump_bytes: float
    memory_gb: float

    def seconds(self, events: int, cores: int) -> float:
        return self.fixed_s + events * self.core_us / 1e6 / cores


def costs(figures: Sequence[dict[str, Any]]) -> Costs:
    """What was measured, as costs.

    Raises:
        ValueError: fewer than two large sizes were measured.
    """
    large = [one for one in figures if one["events"] >= LEAST]
    if len(large) < 2:
        raise ValueError(f"two sizes of {LEAST:,} events or more are needed; {len(large)} were measured")
    events = [one["events"] for one in large]
    per_event, _ = linear_regression(events, [one["cpu_seconds"] for one in large])
    return Costs(
        max(0.0, *(one["seconds"] - one["events"] * per_event / CORES for one in large)),
        per_event * 1e6,
        large[-1]["dump_mb"] * (1 << 20) / large[-1]["events"],
        max(one["executor_peak_mb"] for one in large) / 1024 / CORES,
    )


def show(found: Costs, events: Sequence[int], cores: Sequence[int], console: Console) -> None:
    columns = ("events", "dump, GB", *(f"{n} cores" for n in cores))
    made = table(*columns, numbers=columns, title="calculated time of all questions")
    for n in events:
        times = (f"{found.seconds(n, count) / 60:,.1f} min" for count in cores)
        made.add_row(f"{n:,}", f"{n * found.dump_bytes / 1e9:,.2f}", *times)
    console.print(made)
    console.print(
        f"{found.fixed_s:.0f} s, and {found.core_us:.1f} µs of a core for each event; "
        f"executors of {found.memory_gb:.1f} GB for each core; {found.dump_bytes:.0f} bytes of dump for each event"
    )


def _number(text: str) -> int:
    unit = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}.get(text[-1:])
    return int(text[:-1]) * unit if unit else int(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_size", description=__doc__)
    parser.add_argument("measured", type=Path, nargs="?", default=Path("bench-spark.json"), help="of benchmarks.spark")
    parser.add_argument("--events", type=_number, nargs="+", default=EVENTS, metavar="EVENTS", help="such as 50M 2G")
    parser.add_argument("--cores", type=int, nargs="+", default=ON_CORES, metavar="CORES")
    given = parser.parse_args()
    try:
        found = costs(json.loads(given.measured.read_text(encoding="utf-8"))["figures"])
    except (OSError, ValueError) as error:
        parser.error(f"{given.measured}: {error}; run `make bench-spark` first")
    show(found, given.events, given.cores, Console(width=120))
    return 0


if __name__ == "__main__":
    sys.exit(main())
