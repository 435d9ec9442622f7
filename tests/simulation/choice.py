"""``python -m tests.simulation.choice --first 6000 --seeds 150``: chooses the seeds of the fixed set (WIDE in
test_simulation.py) from these: few calls, and everything in them that happens in any. To be done again when changes of
the product have shifted the histories, and things that must happen no longer do.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .coverage import EXPECTED, never_happened
from .runs import Report, run_seeds

_CALLS = 3000
"""What a seed costs besides its calls, as if they were so many more."""


def chosen(reports: Sequence[Report]) -> list[int]:
    """One after the other: which has most, for its calls, of what the others lack."""
    left, seeds = EXPECTED & {what for report in reports for what in report.happened}, list[int]()
    while left:
        best = max(reports, key=lambda report: len(left & report.happened.keys()) / (report.calls + _CALLS))
        seeds.append(best.seed)
        left -= best.happened.keys()
    return sorted(seeds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.choice", description=__doc__)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=150)
    parser.add_argument("--also", type=int, nargs="+", default=[], metavar="SEED")
    given = parser.parse_args()
    seeds = [*given.also, *range(given.first, given.first + given.seeds)]
    reports = list(run_seeds(seeds, 2))
    for report in reports:
        if report.broken:
            sys.stdout.write(f"seed {report.seed}: {report.broken}\n")
    found = chosen([report for report in reports if not report.broken])
    lacked = never_happened({what for report in reports for what in report.happened})
    sys.stdout.write(f"WIDE = {tuple(found)}\nRARE: {lacked}\n")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # it orders sets, and so what happens
        command = [sys.executable, "-m", "tests.simulation.choice", *sys.argv[1:]]
        os.execve(command[0], command, os.environ | {"PYTHONHASHSEED": "0"})
    main()
