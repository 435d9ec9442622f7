"""``python -m benchmarks.spark``: how long an analysis takes and what it needs of memory, as the history grows.

Driver and executor are processes of their own (Spark's local cluster, one worker with two cores), so that what each
needs shows; but as few events as a newcomer has are analysed in one process, as the command does. All questions are
asked of simulated history, in a new process for each size. Exit code 1 when time grows clearly faster than the events
do, the driver's memory grows with them, something is sorted on disk, or the events are read more often than they should
be.

`--duckdb` lets DuckDB calculate the tables of the same dumps. `--next-day` measures the last day of the dump alone,
after the days before. `python -m benchmarks.spark_cluster` kills a worker of a cluster.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from streamdq.demo.simulated import simulate
from streamdq.dump.open_folder import open_folder
from streamdq.terminal import table
from streamdq_spark.dump_files import open_dump

from .spark_log import log_settings, read_log

SIZES, QUICK = (28_000, 1_000_000, 3_000_000, 10_000_000), (10_000, 30_000)
DAYS = 28
MASTER = "local-cluster[1,2,2048]"
_MB = 1 << 20
# Three times the events in at most 3.6 times the time; the driver's live heap may differ by what garbage is left.
_LINEAR, _FLAT_MB = 1.2, 64
_SCANS = 4
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_COLLECT_EVERY_S = 10
_WHOLE = re.compile(r"Pause Full \(System\.gc\(\)\) \d+M->(\d+)M")


@dataclass(slots=True)
class Figures:
    """One size. Peaks are resident memory, as the system counts it."""

    events: int
    dump_mb: float = 0
    seconds: float = 0  # of the analysis, Spark's start not among them
    cpu_seconds: float = 0  # of all processes, from their start
    jobs: int = 0  # of Spark
    scans: int = 0  # how often nine tenths of the events or more were read from files
    spilled_mb: float = 0  # sorted on disk
    longest_task_s: float = 0
    duckdb_seconds: float = 0  # of DuckDB for the same tables; 0: not asked
    driver_live_mb: float = 0  # what the driver's heap holds at the end, after a collection
    driver_peak_mb: float = 0
    python_peak_mb: float = 0
    executor_peak_mb: float = 0
    questions: dict[str, float] = field(default_factory=dict)  # seconds until the next one began; several run at once

    @property
    def rate(self) -> float:
        return self.events / self.seconds

    @property
    def cores_used(self) -> float:
        return self.cpu_seconds / self.seconds


def analyze_here(dump: str, output: str, log: str, others: Mapping[str, str], days: Sequence[date] = ()) -> None:
    """In a process of its own: the analysis, with when each question began and the driver's heap after it. `others`:
    settings of Spark that replace those of this size. `days`: the first and the last, if not all.
    """
    from streamdq_spark import analysis
    from streamdq_spark.engines.spark import Spark
    from streamdq_spark.session import FEW_EVENTS, session, settings_for

    plan = analysis.plan(dump, output, *days)
    events = analysis.events_to_read(plan)
    begun: dict[str, float] = {}
    master = None if events < FEW_EVENTS else MASTER
    settings = {**settings_for(events, master), "spark.executor.memory": "2g", **others}
    collections = Path(log).with_name(f"{Path(log).name}-gc.txt")
    settings[_JAVA_OPTIONS] = f"{settings.get(_JAVA_OPTIONS, '')} -Xlog:gc:file={collections}"
    settings["spark.cleaner.periodicGC.interval"] = f"{_COLLECT_EVERY_S}s"
    with session(master, name="bench", settings=settings | log_settings(log)) as spark:
        start = time.perf_counter()
        analysis.analyze(
            Spark(spark), plan, progress=lambda name, _done, _all: begun.update({name: time.perf_counter()})
        )
        end = time.perf_counter()
        live_mb = live_heap_mb(collections)
    times = [*begun.values(), end]
    took = {name: round(after - at, 2) for (name, at), after in zip(begun.items(), times[1:], strict=True)}
    logged = read_log(Path(log), events)
    written = {"events": events, "seconds": end - start, "driver_live_mb": live_mb, "questions": took,
            "jobs": logged.jobs, "scans": logged.scans, "spilled_mb": logged.spilled_mb,
            "longest_task_s": logged.longest_task_s}  # fmt: skip
    print(json.dumps(written))


def live_heap_mb(collections: Path) -> float:
    """What the driver's heap holds, by Java's log: after the next whole collection, which Spark asks for by itself."""
    seen = len(_WHOLE.findall(collections.read_text(encoding="utf-8")))
    until = time.monotonic() + 3 * _COLLECT_EVERY_S
    while len(found := _WHOLE.findall(collections.read_text(encoding="utf-8"))) == seen:
        if time.monotonic() > until:
            raise SystemExit(f"no whole collection in {collections}")
        time.sleep(0.2)
    return float(found[-1])


def measure(
    events: int, folder: Path, others: Sequence[str] = (), *, days: int = DAYS, next_day: bool = False,
    duckdb: bool = False,
) -> Figures:  # fmt: skip
    """`next_day`: the last day of the dump, after all before it; else all days."""
    dump, out = folder / f"dump-{events}", folder / f"out-{events}"
    simulate(open_folder(str(dump)), events, days, seed=1)
    if next_day:
        of_files = [file.day for file in open_dump(str(dump)).files]
        first, last = min(of_files), max(of_files)
        _analyzed(dump, out, folder / f"log-{events}-before", others, first, last - timedelta(days=1))
        found = _analyzed(dump, out, folder / f"log-{events}", others, last, last)
    else:
        found = _analyzed(dump, out, folder / f"log-{events}", others)
    found.dump_mb = sum(file.stat().st_size for file in dump.rglob("*.parquet")) / _MB
    if duckdb:
        found.duckdb_seconds = by_duckdb(dump, out)
    return found


def _analyzed(dump: Path, out: Path, log: Path, others: Sequence[str], *days: date) -> Figures:
    log.mkdir()
    found = Figures(0)
    command = [sys.executable, "-m", "benchmarks.spark", "--one", str(dump), str(out), str(log), *map(str, days)]
    command += [word for other in others for word in ("--set", other)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        watch = threading.Thread(target=_watch, args=(psutil.Process(process.pid), found), daemon=True)
        watch.start()
        written, _ = process.communicate()
        watch.join()
    if process.returncode:
        raise SystemExit(process.returncode)
    for name, value in json.loads(written).items():
        setattr(found, name, value)
    return found


def by_duckdb(dump: Path, tables: Path) -> float:
    """How long DuckDB takes, with as many threads as there are cores, for the same tables."""
    from streamdq_spark import analysis
    from streamdq_spark.engines.duck import DuckDB

    begun = time.perf_counter()
    analysis.analyze(DuckDB(), analysis.plan(str(dump), f"{tables}-duckdb"))
    return time.perf_counter() - begun


def _watch(root: psutil.Process, found: Figures) -> None:
    """The peaks of the driver's Python and Java and of the executor, and what all have used, until the driver ends."""
    used: dict[int, float] = {}
    while root.is_running() and root.status() != psutil.STATUS_ZOMBIE:
        with suppress(psutil.NoSuchProcess):
            for process in (root, *root.children(recursive=True)):
                _note(process, root, found)
                used[process.pid] = sum(process.cpu_times()[:2])
        time.sleep(0.2)
    found.cpu_seconds = sum(used.values())


def _note(process: psutil.Process, root: psutil.Process, found: Figures) -> None:
    with suppress(psutil.NoSuchProcess):  # ended meanwhile, or waits to be reaped
        line = " ".join(process.cmdline())
        kind = "executor" if "CoarseGrainedExecutorBackend" in line else "driver" if "SparkSubmit" in line else ""
        if process == root or kind:
            peak = f"{kind or 'python'}_peak_mb"
            setattr(found, peak, max(getattr(found, peak), process.memory_info().rss / _MB))


def verdicts(all_figures: list[Figures]) -> list[str]:
    """What is worse than it should be, from one size to the next."""
    found = [f"{f.events:,} events were read {f.scans} times" for f in all_figures if f.scans > _SCANS]
    found += [f"{f.events:,} events: {f.spilled_mb:.0f} MB sorted on disk" for f in all_figures if f.spilled_mb]
    for small, large in pairwise(all_figures):
        if large.seconds / small.seconds > _LINEAR * large.events / small.events:
            found.append(f"{large.events:,} events took {large.seconds / small.seconds:.1f} × {small.events:,} events")
        if large.driver_live_mb > small.driver_live_mb + _FLAT_MB:
            found.append(
                f"the driver held {large.driver_live_mb:.0f} MB, of {small.events:,} {small.driver_live_mb:.0f} MB"
            )
    return found


def show(all_figures: list[Figures], console: Console) -> None:
    columns = ("events", "dump", "seconds", "CPU-s", "cores", "jobs", "scans", "longest task", "DuckDB, s", "× DuckDB",
               "live", "driver", "python", "executor")  # fmt: skip
    title = f"all questions, {MASTER}; cores: used; MB: dump, the driver's live heap, and peaks of memory"
    made = table(*columns, numbers=columns, title=title)
    for f in all_figures:
        sizes = (f.driver_live_mb, f.driver_peak_mb, f.python_peak_mb, f.executor_peak_mb)
        made.add_row(
            f"{f.events:,}",
            f"{f.dump_mb:.0f}",
            f"{f.seconds:.1f}",
            f"{f.cpu_seconds:.0f}",
            f"{f.cores_used:.2f}",
            f"{f.jobs}",
            f"{f.scans}",
            f"{f.longest_task_s:.1f}",
            *(f"{x:.1f}" for x in (f.duckdb_seconds, f.seconds / f.duckdb_seconds)) if f.duckdb_seconds else ("–", "–"),
            *(f"{size:.0f}" for size in sizes),
        )
    console.print(made)


def _size(text: str) -> int:
    number, unit = text[:-1], {"k": 1_000, "M": 1_000_000}.get(text[-1])
    return int(number) * unit if unit else int(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--sizes", type=_size, nargs="+", metavar="EVENTS", help="instead of the usual ones: 28k 1M")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark, to compare"
    )
    parser.add_argument("--days", type=int, default=DAYS, help=f"of the history, by default {DAYS}")
    parser.add_argument("--next-day", action="store_true", help="measure the last day alone, after the days before")
    parser.add_argument("--duckdb", action="store_true", help="how long DuckDB takes for the same dumps, beside it")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)  # DUMP OUTPUT LOG [FIRST LAST]
    given = parser.parse_args()
    if given.one:
        dump, output, log, *days = given.one
        others = dict(other.split("=", 1) for other in given.set)
        analyze_here(dump, output, log, others, [date.fromisoformat(day) for day in days])
        return 0
    console, measured = Console(width=150), []
    with tempfile.TemporaryDirectory(prefix="streamdq-bench-") as folder:
        for events in given.sizes or (QUICK if given.quick else SIZES):
            how = {"days": given.days, "next_day": given.next_day, "duckdb": given.duckdb}
            measured.append(measure(events, Path(folder), given.set, **how))
            console.print(f"{events:,} events: {measured[-1].seconds:.0f} s", style="dim")
    show(measured, console)
    worse = [] if given.quick or given.next_day else verdicts(measured)
    for line in worse:
        console.print(line, style="bold red")
    if given.json:
        report: dict[str, Any] = {"machine": platform.platform(), "cores": psutil.cpu_count(), "master": MASTER}
        report |= {"figures": [asdict(f) for f in measured], "worse": worse}
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
