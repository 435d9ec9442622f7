"""``python -m benchmarks.engines``: CPU seconds and time that DuckDB and Spark take for all tables and the report.

Each runs in a process of its own, from the command on, on a simulated history; with `--check` their tables are
compared, to the row. `--each` runs the command for each table alone (`--only`). `--topics` spreads the jobs over so
many topics. Says at what load the machine is, which the time depends on, and the CPU seconds a little.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from streamdq.demo.simulated import KINDS, simulate
from streamdq.dump.local import LocalFolder
from streamdq.terminal import table
from streamdq_spark.questions import QUESTIONS

DAYS = 28


@dataclass(frozen=True)
class Took:
    cpu_s: float
    seconds: float


def analyzed(dump: Path, out: Path, engine: str, only: str | None) -> Took:
    report = out.with_suffix(".html")
    command = [sys.executable, "-m", "streamdq", "analyze", str(dump), "--output", str(out), "--engine", engine]
    command += ["--only", only] if only else []
    begun, used = time.perf_counter(), dict[int, float]()
    with subprocess.Popen([*command, "--report", str(report)], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            with suppress(psutil.NoSuchProcess):
                root = psutil.Process(process.pid)
                for one in (root, *root.children(recursive=True)):  # Java is nobody's child at its end
                    used[one.pid] = sum(one.cpu_times()[:2])
            time.sleep(0.05)
    if process.returncode:
        raise SystemExit(process.returncode)
    return Took(sum(used.values()), time.perf_counter() - begun)


def spread(rows: pa.Table, topics: int) -> pa.Table:
    """The rows, with the jobs of each simulated topic spread evenly over topics of their own."""
    numbers = pc.cast(pc.utf8_slice_codeunits(rows["id"], len("job-")), "int64").to_numpy() % (topics // len(KINDS))
    names = pc.binary_join_element_wise(rows["topic"], pa.array(numbers).cast("string"), "-")
    return rows.set_column(rows.column_names.index("topic"), rows.schema.field("topic"), names)


def check(one: Path, other: Path) -> None:
    """Raises: AssertionError, with what differs."""
    from tests.spark.frames import assert_same, rows_of, written

    for name in QUESTIONS:
        assert_same(rows_of(written(one / name)), rows_of(written(other / name)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--events", type=int, default=30_000)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--topics", type=int, help=f"instead of the {len(KINDS)} of the simulation")
    parser.add_argument("--engines", nargs="+", default=["duckdb", "spark"], choices=["duckdb", "spark"])
    parser.add_argument("--each", action="store_true", help="each table alone")
    parser.add_argument("--check", action="store_true", help="compare every table of the two")
    given = parser.parse_args()
    console = Console(width=100)
    made = table("engine", "table", "CPU-s", "seconds", "load before", numbers=("CPU-s", "seconds", "load before"))
    with tempfile.TemporaryDirectory(prefix="streamdq-engines-") as folder:
        dump = Path(folder, "dump")
        change = partial(spread, topics=given.topics) if given.topics else lambda rows: rows
        simulate(LocalFolder(dump), given.events, given.days, 1, change=change)
        for engine, only in product(given.engines, QUESTIONS if given.each else [None]):
            load = os.getloadavg()[0]
            took = analyzed(dump, Path(folder, engine), engine, only)
            made.add_row(engine, only or "all", f"{took.cpu_s:.1f}", f"{took.seconds:.1f}", f"{load:.1f}")
        of = f"{given.topics or len(KINDS):,} topics, {given.days} days"
        console.print(f"{given.events:,} events of {of}, {os.cpu_count()} cores")
        console.print(made)
        if given.check:
            check(Path(folder, "duckdb"), Path(folder, "spark"))
            console.print("every table is the same")


if __name__ == "__main__":
    main()
