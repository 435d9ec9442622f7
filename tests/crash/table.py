"""Tries the faults under load, and prints the table of docs/reliability.md: `python -m tests.crash.table [NAME ...]`.

Ends with 1 if a row did not hold what it promises.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from tests.crash.faults import FAULTS
from tests.crash.scene import Tried, broken, tried
from tests.servers import binaries

HEADER = (
    "| fault | Redis | accepted | lost | ran again | early | recovered after | bound | test |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def markdown(row: Tried) -> str:
    verdict, fault = row.verdict, row.fault
    lost = f"{len(verdict.lost)}: {fault.loses}" if fault.loses else f"{len(verdict.lost)}"
    return (
        f"| {fault.what} | {row.binary.name.partition('-')[2]} | {verdict.accepted} | {lost} "
        f"| {sum(verdict.again.values())} | {len(verdict.early)} | {verdict.recovered_s:.1f} s | {fault.within_s:g} s "
        f"| `{fault.name}` |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of the faults; without, all of them")
    names = parser.parse_args().names
    say(HEADER)
    failed = False
    for fault in FAULTS:
        if names and fault.name not in names:
            continue
        binary = next((binary for binary in reversed(binaries()) if not fault.needs(binary)), None)
        if binary is None:
            say(f"{fault.name}: {fault.needs(binaries()[0])}", sys.stderr)
            continue
        with tempfile.TemporaryDirectory(prefix="streamdq-fault-") as directory:
            row = tried(fault, binary, Path(directory))
        say(markdown(row))
        for text in broken(row):
            failed = True
            say(f"BROKEN {fault.name}: {text}", sys.stderr)
    return failed


def say(text: str, to: TextIO = sys.stdout) -> None:
    print(text, file=to, flush=True)


if __name__ == "__main__":
    sys.exit(main())
