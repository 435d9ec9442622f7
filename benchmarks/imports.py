"""``python -m benchmarks.imports``: what it costs to import streamdq, beside the libraries that it stands on.

CPU time of fresh interpreters in turn, the median of each; exit code 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

from rich.console import Console
from rich.table import Table

_LIBRARIES = "import redis, pydantic"
_PROGRAMS = {
    _LIBRARIES: None,
    "import streamdq": 1.3,
    "from streamdq import Queue": 1.3,
    f"{_LIBRARIES}; from streamdq import Queue": 1.3,
    "from streamdq import Queue; Queue('redis://127.0.0.1:1').enqueue": None,
    "from streamdq import Worker": None,
}
"""A program, and how much longer than the libraries' it may take."""
_TIMED = "import time; began = time.process_time(); {}; print(time.process_time() - began)"


def _took_s(program: str) -> float:
    ran = subprocess.run(
        [sys.executable, "-c", _TIMED.format(program)], capture_output=True, check=True, text=True, encoding="utf-8"
    )
    return float(ran.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.imports", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    for program in _PROGRAMS:
        _took_s(program)  # compiles what is not compiled yet
    took: dict[str, list[float]] = {program: [] for program in _PROGRAMS}
    for _ in range(rounds):
        for program, times in took.items():
            times.append(_took_s(program))
    libraries_s = statistics.median(took[_LIBRARIES])
    shown, missed = Table("program", "CPU time", "× the libraries", "bound"), False
    for program, bound in _PROGRAMS.items():
        median_s = statistics.median(took[program])
        ratio = median_s / libraries_s
        missed = missed or (bound is not None and ratio > bound)
        shown.add_row(program, f"{median_s * 1000:.0f} ms", f"{ratio:.2f}", "" if bound is None else f"{bound:g}")
    Console().print(shown)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
