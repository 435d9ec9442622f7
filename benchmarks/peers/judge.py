"""What a worker's log says: pure calculation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import percentile


class Ran(NamedTuple):
    """One job that a handler ran. Times in ns since 1970."""

    number: int
    due_ns: int
    at_ns: int


def rows(log: Path) -> list[Ran]:
    """The whole lines of a worker's log; one that a killed worker has cut off is none."""
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    return [Ran(*map(int, line.split())) for line in text.splitlines(keepends=True) if line.endswith("\n")]


@dataclass(frozen=True, slots=True)
class Delivery:
    """How many of the jobs ran, and how often."""

    missing: int
    twice: int  # runs beyond a job's first
    early: int

    @classmethod
    def of(cls, ran: Sequence[Ran], count: int, first: int = 0) -> Delivery:
        """``count`` jobs were enqueued, numbered from ``first`` on. Runs of other jobs are refused.

        Raises:
            ValueError: a job ran that nobody has enqueued.
        """
        runs = Counter(row.number for row in ran)
        if strange := set(runs) - set(range(first, first + count)):
            raise ValueError(f"jobs ran that were not enqueued: {sorted(strange)[:5]}")
        early = sum(row.at_ns < row.due_ns for row in ran)
        return cls(count - len(runs), sum(runs.values()) - len(runs), early)


def per_second(ran: Sequence[Ran]) -> float:
    """From the first run to the last; 0 if there are not two."""
    times = sorted(row.at_ns for row in ran)
    return (len(times) - 1) / ((times[-1] - times[0]) / 1e9) if len(times) > 1 else 0.0


def lateness_ms(ran: Sequence[Ran], percent: float) -> float:
    """This percentile of how late the jobs ran."""
    return percentile([(row.at_ns - row.due_ns) / 1e6 for row in ran], percent)
