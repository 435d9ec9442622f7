"""The table and the chart of what was measured, for docs/benchmarks.md."""

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


COLUMNS = (
    Column("one", "per_second", "enqueue, one by one: jobs/s", 0, True),
    Column("bulk", "per_second", "enqueue in bulk: jobs/s", 0, True),
    Column("drain", "per_second", "drain: jobs/s", 0, True),
    Column("stampede", "first_ms", "stampede: first, ms", 1),
    Column("stampede", "p99_ms", "stampede: p99, ms", 0),
    Column("trickle", "p50_ms", "trickle: p50, ms", 1),
    Column("trickle", "p99_ms", "trickle: p99, ms", 1),
    Column("idle", "per_second", "idle: commands/s", 1),
    Column("memory", "bytes", "memory per job, bytes", 0),
    Column("crash", "seconds", "kill -9: all done after, s", 1),
)


def cell(runs: Sequence[Mapping[str, Any]], column: Column) -> str:
    """The median of the runs and their range, and what was delivered wrongly in any of them."""
    if not runs:
        return ""
    if "none" in runs[0] or "failed" in runs[0]:
        return "–" if "none" in runs[0] else "failed"
    values = [run[column.figure] for run in runs]
    low, mid, high = (f"{value:,.{column.digits}f}" for value in (min(values), median(values), max(values)))
    wrong = [f"{most} {what}" for what in ("missing", "twice", "early") if (most := max(_of(runs, what))) > 0]
    between = f" ({low}–{high})" if low != high else ""
    return f"{mid}{between}{'; ' + ', '.join(wrong) if wrong else ''}"


def _of(runs: Iterable[Mapping[str, Any]], what: str) -> list[int]:
    return [run.get(what, 0) for run in runs]


def markdown(results: Results) -> str:
    """One row for each figure, one column for each peer."""
    peers = results["peers"]
    lines = [f"| | {' | '.join(peers)} |", f"| --- |{' --- |' * len(peers)}"]
    for column in COLUMNS:
        cells = [cell(peer["runs"].get(column.workload, []), column) for peer in peers.values()]
        if any(cells):
            lines.append(f"| {column.title} | {' | '.join(cells)} |")
    lines += [
        "",
        *(f"- **{name}** {peer['version']} ({peer['language']}): {peer['settings']}." for name, peer in peers.items()),
    ]
    return "\n".join([*lines, "", f"Measured on {results['machine']}."])
