"""``python -m benchmarks.spark_cluster``: a cluster of Spark's loses a worker during an analysis.

A master and two workers of one core each, on this machine. All questions are asked twice: undisturbed, and with one
worker and its executor killed after a part of the time that took. It tells the CPU time of each kind of process, as six
of them share the cores here. Exit code 1 when the tables differ, no executor was
lost, or a task took more than a tenth of the undisturbed time.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
from pyarrow import parquet
from rich.console import Console

from streamdq.demo.simulated import simulate
from streamdq.dump.open_folder import open_folder
from streamdq.terminal import table
from tests.spark.cluster import MASTER, WORKER, daemon, free_port
from tests.waiting import until

from .spark import DAYS, _size
from .spark_cpu import KINDS, PARTS, cpu_seconds
from .spark_log import Logged, log_settings, read_log

WORKERS, MEMORY = 2, "2g"
KILLED_AFTER = 0.4
"""Of the undisturbed time."""
LONGEST_TASK = 0.1
_START_S = 60


@dataclass(frozen=True, slots=True)
class Run:
    """`cpu_seconds`: of the processes of a cluster, by kind, from their start; see `benchmarks.spark_cpu`."""

    name: str
    seconds: float
    cpu_seconds: Mapping[str, float]
    logged: Logged
    tables: Path


def analyze_here(others: Mapping[str, str], url: str, dump: str, output: str, log: str, *only: str) -> None:
    """In a process of its own: prints when it begins, and the seconds that it took. `only`: tables; none: all.
    `others`: settings of Spark that replace those of this size.
    """
    from streamdq_spark import analysis
    from streamdq_spark.engines.spark import Spark
    from streamdq_spark.session import session, settings_for

    plan = analysis.plan(dump, output)
    local = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings = {**settings_for(analysis.events_to_read(plan), url), **local, **others, **log_settings(log)}
    with session(url, name="bench", settings=settings, memory=MEMORY) as spark:
        spark.range(WORKERS).collect()  # the executors are there
        print("begins", flush=True)
        begun = time.perf_counter()
        analysis.analyze(Spark(spark), plan, questions=analysis.chosen(only))
        print(json.dumps(time.perf_counter() - begun))


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[psutil.Process]]]:
    """The master's URL, and the workers."""
    port, log = free_port(), folder / "master.log"
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        stack.enter_context(daemon(MASTER, arguments, log))
        until(
            lambda: "Starting Spark master at" in log.read_text(encoding="utf-8"),
            "the master to start",
            within_s=_START_S,
        )
        workers = []
        for n in range(WORKERS):
            arguments = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", MEMORY]
            arguments += ["--work-dir", str(folder / f"work{n}"), url]
            workers.append(stack.enter_context(daemon(WORKER, arguments, folder / f"worker{n}.log")))
        joined = "Registering worker"
        until(
            lambda: log.read_text(encoding="utf-8").count(joined) == WORKERS, "the workers to join", within_s=_START_S
        )
        yield url, [psutil.Process(worker.pid) for worker in workers]


def analyzed(
    folder: Path, name: str, events: int, only: Sequence[str], others: Sequence[str], kill_after_s: float | None = None
) -> Run:
    """One analysis of the dump in the folder, on a cluster of its own; one worker is killed after so many seconds."""
    dump = folder / "dump"
    out, log = folder / f"out-{name}", folder / f"log-{name}"
    own = folder / name
    for made in (log, own):
        made.mkdir()
    with cpu_seconds() as used, cluster(own) as (url, workers):
        command = [sys.executable, "-m", "benchmarks.spark_cluster", "--one", url, str(dump), str(out), str(log), *only]
        command += [word for other in others for word in ("--set", other)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
            assert process.stdout is not None
            process.stdout.readline()
            killer = threading.Timer(kill_after_s or 0, _kill, [workers[0]])
            if kill_after_s is not None:
                killer.start()
            written = process.stdout.read()
            killer.cancel()
        if process.returncode:
            raise SystemExit(process.returncode)
    return Run(name, json.loads(written), used, read_log(log, events), out)


def _kill(worker: psutil.Process) -> None:
    """As if its machine were gone."""
    for process in (worker, *worker.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)


def different(one: Path, other: Path) -> list[str]:
    """The tables that differ."""
    names = sorted({path.name for folder in (one, other) for path in folder.iterdir() if path.is_dir()})
    return [name for name in names if _rows(one / name) != _rows(other / name)]


def _rows(folder: Path) -> list[str]:
    tables = [parquet.ParquetFile(path).read() for path in sorted(folder.rglob("*.parquet"))]
    rows = pa.concat_tables(tables).to_pylist() if tables else []
    return sorted(repr({name: _shown(value) for name, value in row.items()}) for row in rows)


def _shown(value: object) -> object:
    """Sums of floats depend on their order in the last bits."""
    return f"{value:.9g}" if isinstance(value, float) else value


def verdicts(undisturbed: Run, killed: Run) -> list[str]:
    found = [f"{name} differs" for name in different(undisturbed.tables, killed.tables)]
    if not killed.logged.lost_executors:
        found.append("no executor was lost: the analysis ended before")
    if undisturbed.logged.longest_task_s > LONGEST_TASK * undisturbed.seconds:
        share = undisturbed.logged.longest_task_s / undisturbed.seconds
        found.append(f"the longest task took {share:.0%} of the time")
    return found


def show(events: int, runs: list[Run], console: Console) -> None:
    names = tuple(run.name for run in runs)
    made = table("", *names, numbers=names, title=f"{events:,} events, {WORKERS} workers of one core and {MEMORY}")
    written = [_figures(run) for run in runs]
    for name in written[0]:
        made.add_row(name, *(figures[name] for figures in written))
    console.print(made)


def _figures(run: Run) -> dict[str, str]:
    cpu, logged = run.cpu_seconds, run.logged
    return {
        "seconds": f"{run.seconds:.1f}",
        "CPU-s of all processes": f"{sum(cpu[kind] for kind in KINDS):.0f}",
        **{f"  {kind}": f"{cpu[kind]:.0f}" for kind in KINDS},
        **{f"  of these, {part}": f"{cpu[part]:.0f}" for part in PARTS},
        "jobs": f"{logged.jobs}",
        "tasks": f"{logged.tasks}",
        "scans": f"{logged.scans}",
        "longest task": f"{logged.longest_task_s:.1f} s",
        "sorted on disk": f"{logged.spilled_mb:.0f} MB",
        "executors lost": f"{logged.lost_executors}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_cluster", description=__doc__)
    parser.add_argument("--events", type=_size, default=1_000_000, help="of the history, such as 100k; by default 1M")
    parser.add_argument("--days", type=int, default=DAYS, help=f"of the history, by default {DAYS}")
    parser.add_argument("--only", action="append", default=[], metavar="TABLE", help="as for streamdq analyze")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)  # URL DUMP OUTPUT LOG [TABLE ...]
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark, to compare"
    )
    given = parser.parse_args()
    if given.one:
        analyze_here(dict(other.split("=", 1) for other in given.set), *given.one)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the cluster ends as well
    console = Console(width=120)
    with tempfile.TemporaryDirectory(prefix="streamdq-bench-") as name:
        folder = Path(name)
        simulate(open_folder(str(folder / "dump")), given.events, given.days, seed=1)
        undisturbed = analyzed(folder, "undisturbed", given.events, given.only, given.set)
        console.print(f"undisturbed: {undisturbed.seconds:.0f} s", style="dim")
        killed = analyzed(folder, "killed", given.events, given.only, given.set, KILLED_AFTER * undisturbed.seconds)
        show(given.events, [undisturbed, killed], console)
        worse = verdicts(undisturbed, killed)
    for line in worse:
        console.print(line, style="bold red")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
