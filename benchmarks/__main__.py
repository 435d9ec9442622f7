"""``python -m benchmarks``: runs the workloads, prints the table, writes JSON; exit code 1 if a target is missed."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import redis
from rich.console import Console

from streamdq.embedded.binary import ServerBinary, find_server

from . import (
    callback,
    calls,
    cluster,
    cluster_idle,
    command_line,
    crash,
    drain,
    enqueue,
    find,
    flows,
    functions,
    growth,
    history,
    idle,
    keys,
    links,
    many,
    metrics,
    middleware,
    move,
    priorities,
    processes,
    results,
    storm,
    timing,
    web,
)
from .figures import table
from .harness import Bench, Results, Workload
from .timers import event_loop

WORKLOADS: dict[str, Workload] = {
    "enqueue": enqueue.one_by_one,
    "enqueue-at-once": enqueue.at_once,
    "pipeline": enqueue.pipelined,
    "enqueue-many": enqueue.many,
    "move": move.move,
    "drain": drain.drain,
    "stampede": timing.stampede,
    "trickle": timing.trickle,
    "results": results.results,
    "after": links.links,
    "flows": flows.flows,
    "topics": timing.topics,
    "schedules": timing.schedules,
    "keys": keys.keys,
    "priorities": priorities.priorities,
    "find": find.find,
    "functions": functions.functions,
    "idle": idle.idle,
    "cluster-idle": cluster_idle.cluster_idle,
    "memory": enqueue.memory,
    "calls": calls.calls,
    "cluster": cluster.cluster,
    "crash": crash.crash,
    "crash-short": crash.crash_short,
    "storm": storm.storm,
    "callback": callback.callback,
    "web": web.web,
    "growth": growth.growth,
    "metrics": metrics.metrics,
    "scrape": metrics.scrape,
    "middleware": middleware.middleware,
    "processes": processes.processes,
    "many": many.many,
    "history": history.history,
    "dump": history.dump,
    "command-line": command_line.command_line,
}
_QUICK = 0.1
_MEASURED_ON = (7, 0)


def run(names: Sequence[str], bench: Bench, console: Console) -> Results:
    """Runs one workload after the other; if one fails, the others still run."""
    results = Results()
    for name in names:
        started = time.monotonic()
        try:
            results.figures += WORKLOADS[name](bench)
        except Exception as error:
            results.failures[name] = f"{type(error).__name__}: {error}"
            console.print(traceback.format_exc(), style="red", markup=False, highlight=False)
        console.print(f"{name}: {time.monotonic() - started:.0f} s", style="dim")
    return results


def environment(bench: Bench) -> dict[str, Any]:
    """The environment that the figures depend on."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "redis_py": redis.__version__,
        "redis": bench.binary.dotted,
        "redis_is": "embedded" if bench.binary.kind == "package" else "installed",
        "connection": "unix socket" if bench.unix else "loopback TCP",
        "persistence": "none",
        "event_loop": event_loop(),
        "cpu_count": os.cpu_count(),
        "machine": platform.machine(),
        "scale": bench.scale,
    }


def about(found: dict[str, Any]) -> str:
    """The environment in a line or two."""
    lines = [
        "Python {python}, redis-py {redis_py}, {event_loop}; Redis {redis} ({redis_is}), {connection}, no persistence; "
        "{cpu_count} CPUs; {date}".format(**found)
    ]
    if tuple(map(int, found["redis"].split(".")))[:2] != _MEASURED_ON:
        lines.append(f"The targets are for Redis {'.'.join(map(str, _MEASURED_ON))}; this is another one.")
    if found["scale"] != 1:
        lines.append(f"Workloads at {found['scale']:g} of their size: no figures to compare.")
    return "\n".join(lines)


def report(results: Results, found: dict[str, Any]) -> dict[str, Any]:
    """The JSON."""
    return {
        "environment": found,
        "passed": results.passed,
        "figures": [figure.as_json() for figure in results.figures],
        "failures": results.failures,
    }


def _tell(results: Results, found: dict[str, Any], console: Console) -> None:
    console.print(table(results.figures))
    console.print(about(found), style="dim", highlight=False)
    for name, why in results.failures.items():
        console.print(f"{name} failed: {why}", style="red", markup=False)
    bounded = [figure for figure in results.figures if figure.met is not None]
    console.print(f"{len(bounded) - len(results.missed)} of {len(bounded)} targets met")


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures streamdq beside its floors.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WORKLOADS)}; none: all")
    parser.add_argument("--list", action="store_true", help="name the workloads and end")
    parser.add_argument("--quick", action="store_true", help="a tenth of the size: to see that it works")
    parser.add_argument("--unix", action="store_true", help="reach Redis over a Unix socket, not loopback TCP")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures and samples there")
    parser.add_argument("--no-fail", action="store_true", help="exit code 0 also when a target is missed")
    arguments = parser.parse_args(words)
    if unknown := [name for name in arguments.names if name not in WORKLOADS]:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    return arguments


def _list_workloads() -> None:
    for name, workload in WORKLOADS.items():
        print(f"{name:13} {(workload.__doc__ or '').splitlines()[0]}")


def main(words: Sequence[str] | None = None, binary: ServerBinary | None = None) -> int:
    """The program; returns its exit code."""
    arguments = _arguments(words)
    console = Console(width=None if sys.stdout.isatty() else 140)
    if arguments.list:
        _list_workloads()
        return 0
    bench = Bench(binary or find_server(), arguments.unix, _QUICK if arguments.quick else 1.0)
    results = run(arguments.names or list(WORKLOADS), bench, console)
    found = environment(bench)
    _tell(results, found, console)
    if arguments.json:
        arguments.json.write_text(json.dumps(report(results, found), indent=2) + "\n", encoding="utf-8")
    return 0 if results.passed or arguments.no_fail else 1


if __name__ == "__main__":
    sys.exit(main())
