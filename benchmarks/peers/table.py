"""The table and the chart of what was measured, for docs/comparison.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

Results = Mapping[str, Any]


class Column(NamedTuple):
    workload: str
    figure: str
    title: str
    digits: int
    more_is_better: bool = False


TABLES = {
    "How much": (
        Column("one", "per_second", "enqueue, one by one, jobs/s", 0, True),
        Column("bulk", "per_second", "enqueue in bulk, jobs/s", 0, True),
        Column("drain", "per_second", "drain, jobs/s", 0, True),
        Column("one", "together_per_second", "one by one, on one core with the server, jobs/s", 0, True),
    ),
    "How punctual": (
        Column("stampede", "first_ms", "stampede: first, ms", 1),
        Column("stampede", "p99_ms", "stampede: p99, ms", 0),
        Column("trickle", "p50_ms", "trickle: p50, ms", 1),
        Column("trickle", "p99_ms", "trickle: p99, ms", 1),
    ),
    "What it takes": (
        Column("idle", "per_second", "idle, commands/s", 1),
        Column("memory", "bytes", "memory per job, bytes", 0),
        Column("crash", "seconds", "kill -9: all done after, s", 1),
    ),
    "Work that depends on work": (
        Column("chain", "p50_ms", "from a job to the next one, p50, ms", 1),
        Column("fan_in", "per_second", "fan-in of 1,000, jobs/s", 0, True),
        Column("results", "per_second", "enqueue and wait for the result, jobs/s", 0, True),
        Column("fan_in_worker_killed", "seconds", "fan-in of 200, worker killed: last job after, s", 1),
        Column("fan_in_server_killed", "seconds", "the same, Redis killed, s", 1),
    ),
}
"""What is shown, by its heading."""


def cell(runs: Sequence[Mapping[str, Any]], column: Column) -> str:
    """The median of the runs and their range, and what was delivered wrongly in any of them."""
    if not runs:
        return ""
    if "none" in runs[0] or "failed" in runs[0]:
        return "–" if "none" in runs[0] else "failed"
    values = [run[column.figure] for run in runs]
    low, mid, high = (f"{value:,.{column.digits}f}" for value in (min(values), median(values), max(values)))
    wrong = [
        f"{most} {what}"
        for what in ("missing", "twice", "early", "hangs", "too soon")
        if (most := max(_of(runs, what))) > 0
    ]
    between = f" ({low}–{high})" if low != high else ""
    return f"{mid}{between}{'; ' + ', '.join(wrong) if wrong else ''}"


def _of(runs: Iterable[Mapping[str, Any]], what: str) -> list[int]:
    return [run.get(what.replace(" ", "_"), 0) for run in runs]


def markdown(results: Results) -> str:
    """A table for each group of figures, one row for each peer; then what each peer is, and the machine."""
    peers = results["peers"]
    lines = []
    for heading, columns in TABLES.items():
        rows = {name: [cell(peer["runs"].get(c.workload, []), c) for c in columns] for name, peer in peers.items()}
        if any(any(cells) for cells in rows.values()):
            titles = " | ".join(column.title for column in columns)
            lines += [f"## {heading}", "", f"| | {titles} |", f"| --- |{' ---: |' * len(columns)}"]
            lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]
            lines += [""]
    about = (
        f"- **{name}** {peer['version']} ({peer['language']}): {peer['settings']}." for name, peer in peers.items()
    )
    return "\n".join([*lines, "## Versions and settings", "", *about, "", f"Measured on {results['machine']}."])
