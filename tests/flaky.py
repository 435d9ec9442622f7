"""``make flaky RUNS=20``: runs ``make test`` again and again, every other time on a busy machine.

Beside a run on a busy machine there are two endless loops and a process that writes to the disk. At the end stands
which tests ever failed, in which runs, and which were the slowest.

Each run is recorded with its commit. Started again on the same commit, this goes on after the last whole run: twenty
take hours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from rich.console import Console

OUT = Console(highlight=False, soft_wrap=True, markup=False)
SLOWEST = 15
_LOOP = "while True: pass"
_WRITER = """
import os, sys
data = os.urandom(1 << 20)
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.seek(0)
        for _ in range(64):
            file.write(data)
        os.fsync(file.fileno())
"""


class Run(NamedTuple):
    commit: str
    number: int
    busy: bool
    status: int
    wall_s: float
    cpu_s: float
    tests: int
    failed: list[str]
    slowest: dict[str, float]

    def __str__(self) -> str:
        where = "on a busy machine" if self.busy else "by itself"
        reported = f"{len(self.failed)} failed" if self.failed else f"exit {self.status}"
        return (
            f"run {self.number:2}, {where:17}: {self.tests:,} tests, {reported}; "
            f"{self.wall_s:.0f} s, of CPU {self.cpu_s:.0f} s"
        )


@contextmanager
def busy_machine(folder: Path) -> Iterator[None]:
    """Keeps both cores and the disk of a small machine busy."""
    programs = [["-c", _LOOP], ["-c", _LOOP], ["-c", _WRITER, str(folder / "written")]]
    processes = [subprocess.Popen([sys.executable, *program]) for program in programs]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run(commit: str, number: int, busy: bool, command: Sequence[str], folder: Path) -> Run:
    """``command`` is pytest's; what it prints goes into the folder. The CPU time includes its children's, of those that
    have been waited for.
    """
    report, out = folder / f"{commit}-{number}.xml", folder / f"{commit}-{number}.txt"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    with out.open("wb") as stdout:
        tests = subprocess.Popen([*command, f"--junitxml={report}"], stdout=stdout, stderr=subprocess.STDOUT)
        with tempfile.TemporaryDirectory() as written, busy_machine(Path(written)) if busy else nullcontext():
            _, status, used = os.wait4(tests.pid, 0)
            tests.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.monotonic() - began
    seconds, failed = outcomes(report)
    slowest = dict(sorted(seconds.items(), key=lambda each: -each[1])[:SLOWEST])
    cpu_s = used.ru_utime + used.ru_stime
    return Run(commit, number, busy, tests.returncode, wall_s, cpu_s, len(seconds), failed, slowest)


def outcomes(report: Path) -> tuple[dict[str, float], list[str]]:
    """How long each test took, and those that failed, of a report in JUnit's format."""
    seconds: dict[str, float] = {}
    failed: list[str] = []
    if not report.exists():
        return seconds, ["(pytest itself)"]
    for case in ET.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        seconds[name] = float(case.get("time") or 0)
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
    return seconds, failed


def summary(runs: Sequence[Run]) -> list[str]:
    """What to print at the end."""
    where: dict[str, list[int]] = defaultdict(list)
    longest: dict[str, float] = defaultdict(float)
    for one in runs:
        for name in one.failed or (["(pytest itself)"] if one.status else []):
            where[name].append(one.number)
        for name, took_s in one.slowest.items():
            longest[name] = max(longest[name], took_s)
    lines = [f"{len(runs)} runs, {sum(bool(one.status) for one in runs)} failed; {len(where)} tests ever failed"]
    lines += [f"  {len(numbers)} × {name}: in {numbers}" for name, numbers in sorted(where.items())]
    lines.append("the slowest, in their slowest run:")
    slowest = sorted(longest, key=lambda name: -longest[name])[:SLOWEST]
    return [*lines, *(f"  {longest[name]:6.1f} s {name}" for name in slowest)]


def tried() -> str:
    """The commit that is checked out, and whether it was changed since."""
    git = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()


def recorded(file: Path) -> list[Run]:
    return [Run(**each) for each in json.loads(file.read_text())] if file.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.flaky", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="how many, with those that are recorded of this commit")
    parser.add_argument("--out", type=Path, default=Path("build/flaky"), help="where the runs' output is kept")
    parser.add_argument("--record", type=Path, default=Path("build/flaky.json"), help="where runs are recorded")
    parser.add_argument("command", nargs="+", help="how pytest is called")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    commit = tried()
    every = recorded(options.record)
    runs = [each for each in every if each.commit == commit]
    for each in runs:
        show(each)
    for number in range(len(runs) + 1, options.runs + 1):
        runs.append(run(commit, number, number % 2 == 0, options.command, options.out))
        every.append(runs[-1])
        options.record.write_text(json.dumps([each._asdict() for each in every], indent=1))
        show(runs[-1])
    for line in summary(runs):
        OUT.print(line)
    OUT.print(f"what they printed: {os.path.relpath(options.out)}")
    return 1 if any(one.status for one in runs) else 0


def show(run: Run) -> None:
    for line in (str(run), *(f"    {name}" for name in run.failed)):
        OUT.print(line)


if __name__ == "__main__":
    sys.exit(main())
