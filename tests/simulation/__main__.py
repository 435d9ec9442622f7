"""``python -m tests.simulation``: runs seeds for as long as wanted. One that breaks a promise is printed with the calls
that concern the job; ``--first SEED --seeds 1`` runs it again, exactly as it was.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from itertools import count, takewhile

from rich.console import Console

from tests.repeat import remember

from .coverage import never_happened
from .runs import Report, run_seeds

OUT = Console(highlight=False, soft_wrap=True, markup=False)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--first", type=int, help="the first seed; without it, new ones")
    parser.add_argument("--seeds", type=int, help="how many; without it, until the time is over")
    parser.add_argument("--only", type=int, nargs="+", metavar="SEED", help="these seeds")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long at most (10)")
    parser.add_argument("--processes", type=int, default=2, help="how many at once (2)")
    return parser.parse_args()


def seeds_of(first: int | None, number: int | None, only: list[int] | None) -> Iterable[int]:
    if only:
        return only
    start = int(time.time()) * 1000 if first is None else first
    return range(start, start + number) if number else count(start)


def tell(report: Report) -> None:
    command = f"make simulate FIRST={report.seed} SEEDS=1"
    OUT.print(f"seed {report.seed}: {report.broken}\n  to repeat it: {command}")
    remember(command)
    for line in report.story:
        OUT.print(f"  {line}")


def main() -> int:
    options = arguments()
    began = time.monotonic()
    until = began + options.minutes * 60
    seeds = seeds_of(options.first, options.seeds, options.only)
    happened: Counter[str] = Counter()
    done: list[int] = []
    broken = calls = 0
    simulated_s = 0.0
    for report in run_seeds(takewhile(lambda _: time.monotonic() < until, seeds), options.processes):
        done.append(report.seed)
        calls, simulated_s = calls + report.calls, simulated_s + report.simulated_s
        happened += report.happened
        if report.broken:
            broken += 1
            tell(report)
    if not done:
        OUT.print("no time for a single history")
        return 2
    OUT.print("What happened in them, and how often:")
    for what, times in sorted(happened.items()):
        OUT.print(f"{times:10,} {what}")
    for what in never_happened(happened):
        OUT.print(f"     never {what}")
    took_s = time.monotonic() - began
    OUT.print(
        f"seeds {min(done)} to {max(done)}: {broken} broke a promise; {len(done):,} histories, {calls:,} calls, "
        f"{simulated_s / 60:,.0f} simulated minutes\n"
        f"in {took_s:.0f} s: {took_s / len(done):.1f} s a history, {calls / took_s:,.0f} calls/s"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # it orders sets, and so what happens
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(command[0], command, os.environ | {"PYTHONHASHSEED": "0"})
    sys.exit(main())
