"""``python -m benchmarks.spark``: how long an analysis takes and what it needs of memory, as the history grows.

Driver and executor are processes of their own (Spark's local cluster, one worker with two cores), so that what each
needs shows. All questions are asked of simulated history, in a new process for each size. Exit code 1 when time grows
clearly faster than the events do, or the driver's memory grows with them.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from streamdq.demo.simulated import simulate
from streamdq.dump.open_folder import open_folder
from streamdq.terminal import table

SIZES, QUICK = (1_000_000, 3_000_000, 10_000_000), (10_000, 30_000)
DAYS = 28
MASTER = "local-cluster[1,2,2048]"
_MB = 1 << 20
# Three times the events in at most 3.6 times the time; the driver's live heap may differ by what garbage is left.
_LINEAR, _FLAT_MB = 1.2, 64


@dataclass(slots=True)
class Figures:
    """One size. Peaks are resident memory, as the system counts it."""

    events: int
    dump_mb: float = 0
    seconds: float = 0  # of the analysis, Spark's start not among them
    driver_live_mb: float = 0  # what the driver's heap holds at the end, after a collection
    driver_peak_mb: float = 0
    python_peak_mb: float = 0
    executor_peak_mb: float = 0
    questions: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.events / self.seconds


def analyze_here(dump: str, output: str) -> None:
    """In a process of its own: the analysis, with the time of each question and the driver's heap after it."""
    from streamdq_spark import analysis
    from streamdq_spark.session import session

    plan = analysis.plan(dump, output)
    begun: dict[str, float] = {}
    with session(MASTER, name="bench", settings={"spark.executor.memory": "2g"}) as spark:
        start = time.perf_counter()
        analysis.analyze(spark, plan, progress=lambda name, _done, _all: begun.update({name: time.perf_counter()}))
        end = time.perf_counter()
        runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
        runtime.gc()
        live = runtime.totalMemory() - runtime.freeMemory()
    times = [*begun.values(), end]
    took = {name: round(after - at, 2) for (name, at), after in zip(begun.items(), times[1:], strict=True)}
    print(json.dumps({"seconds": end - start, "driver_live_mb": live / _MB, "questions": took}))


def measure(events: int, folder: Path) -> Figures:
    dump = folder / f"dump-{events}"
    simulate(open_folder(str(dump)), events, DAYS, seed=1)
    found = Figures(events, dump_mb=sum(file.stat().st_size for file in dump.rglob("*.parquet")) / _MB)
    command = [sys.executable, "-m", "benchmarks.spark", "--one", str(dump), str(folder / f"out-{events}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        watch = threading.Thread(target=_watch, args=(psutil.Process(process.pid), found), daemon=True)
        watch.start()
        told, _ = process.communicate()
        watch.join()
    if process.returncode:
        raise SystemExit(process.returncode)
    for name, value in json.loads(told).items():
        setattr(found, name, value)
    return found


def _watch(root: psutil.Process, found: Figures) -> None:
    """The peaks of the driver's Python and Java and of the executor, until the driver ends."""
    while root.is_running() and root.status() != psutil.STATUS_ZOMBIE:
        with suppress(psutil.NoSuchProcess):
            for process in (root, *root.children(recursive=True)):
                _note(process, root, found)
        time.sleep(0.2)


def _note(process: psutil.Process, root: psutil.Process, found: Figures) -> None:
    with suppress(psutil.NoSuchProcess):  # ended meanwhile, or waits to be reaped
        line = " ".join(process.cmdline())
        kind = "executor" if "CoarseGrainedExecutorBackend" in line else "driver" if "SparkSubmit" in line else ""
        if process == root or kind:
            peak = f"{kind or 'python'}_peak_mb"
            setattr(found, peak, max(getattr(found, peak), process.memory_info().rss / _MB))


def verdicts(all_figures: list[Figures]) -> list[str]:
    """What is worse than it should be, from one size to the next."""
    found = []
    for small, large in pairwise(all_figures):
        if large.seconds / small.seconds > _LINEAR * large.events / small.events:
            found.append(f"{large.events:,} events took {large.seconds / small.seconds:.1f} × {small.events:,} events")
        if large.driver_live_mb > small.driver_live_mb + _FLAT_MB:
            found.append(
                f"the driver held {large.driver_live_mb:.0f} MB, of {small.events:,} {small.driver_live_mb:.0f} MB"
            )
    return found


def show(all_figures: list[Figures], console: Console) -> None:
    columns = ("events", "dump", "seconds", "events/s", "driver live", "driver peak", "python peak", "executor peak")
    made = table(*columns, numbers=columns, title=f"all questions, {MASTER}; memory in MB")
    for f in all_figures:
        sizes = (f.driver_live_mb, f.driver_peak_mb, f.python_peak_mb, f.executor_peak_mb)
        made.add_row(
            f"{f.events:,}",
            f"{f.dump_mb:.0f}",
            f"{f.seconds:.1f}",
            f"{f.rate:,.0f}",
            *(f"{size:.0f}" for size in sizes),
        )
    console.print(made)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--one", nargs=2, metavar=("DUMP", "OUTPUT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        analyze_here(*given.one)
        return 0
    console, measured = Console(width=110), []
    with tempfile.TemporaryDirectory(prefix="streamdq-bench-") as folder:
        for events in QUICK if given.quick else SIZES:
            measured.append(measure(events, Path(folder)))
            console.print(f"{events:,} events: {measured[-1].seconds:.0f} s", style="dim")
    show(measured, console)
    worse = [] if given.quick else verdicts(measured)
    for line in worse:
        console.print(line, style="bold red")
    if given.json:
        report: dict[str, Any] = {"machine": platform.platform(), "cores": psutil.cpu_count(), "master": MASTER}
        report |= {"figures": [asdict(f) for f in measured], "worse": worse}
        given.json.write_text(json.dumps(report, indent=2) + "\n")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
