"""``python -m benchmarks.peers``: measures streamdq and other queues side by side, and writes the results as JSON;
``--table`` prints those of a file as Markdown, ``--chart`` makes a picture of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from streamdq.embedded.binary import find_server

from .chart import chart
from .driver import WORKLOADS as SINGLE_JOBS
from .driver import Bench, Measured
from .flows import FLOW_WORKLOADS
from .setup import Missing, Peer, peers, prepare
from .table import markdown

WORKLOADS = SINGLE_JOBS | FLOW_WORKLOADS


def _names(text: str, known: Sequence[str]) -> list[str]:
    names = text.split()
    if unknown := set(names) - set(known):
        raise argparse.ArgumentTypeError(f"{sorted(unknown)} is none of {', '.join(known)}")
    return names or list(known)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    known = list(peers())
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--peers", type=lambda text: _names(text, known), default=known, help=" ".join(known))
    parser.add_argument(
        "--workloads",
        type=lambda text: _names(text, list(WORKLOADS)),
        default=list(WORKLOADS),
        help=" ".join(WORKLOADS),
    )
    parser.add_argument("--runs", type=int, default=3, help="of each workload (%(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="0.1: a tenth of the jobs; does it still run?")
    parser.add_argument("--json", type=Path, default=Path("bench-peers.json"), help="results (%(default)s); added to")
    parser.add_argument("--table", action="store_true", help="print the results of that file, and measure nothing")
    parser.add_argument("--chart", type=Path, metavar="SVG", help="draw the results of that file, and measure nothing")
    return parser.parse_args(arguments)


def _measured(peer: Peer, workload: str, options: argparse.Namespace) -> list[Measured]:
    runs: list[Measured] = []
    for _ in range(options.runs):
        try:
            runs.append(WORKLOADS[workload](Bench(peer, find_server(), options.scale)))
        except (OSError, RuntimeError, TimeoutError, ValueError) as error:
            print(f"{peer.name}: {workload}: {error}", file=sys.stderr)
            return [{"failed": str(error)}]
        if "none" in runs[0]:
            break
        print(f"{peer.name}: {workload}: {runs[-1]}", file=sys.stderr, flush=True)
    return runs


def _machine() -> str:
    server = find_server()
    return f"{os.cpu_count()} CPUs, {platform.machine()}, {server.path} {server.version}, {datetime.now(UTC):%Y-%m-%d}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 if a peer or a workload failed."""
    options = _arguments(arguments)
    results: dict[str, Any] = (
        json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {"peers": {}}
    )
    if options.chart:
        options.chart.write_text(chart(results), encoding="utf-8")
    if options.table:
        print(markdown(results))
    if options.chart or options.table:
        return 0
    failed = False
    for name in options.peers:
        peer = peers()[name]
        try:
            prepare(peer)
        except Missing as error:
            print(error, file=sys.stderr)
            failed = True
            continue
        found = results["peers"].setdefault(name, {"runs": {}})
        found |= {"version": Bench(peer, find_server()).version(), "language": peer.language, "settings": peer.settings}
        for workload in options.workloads:
            found["runs"][workload] = _measured(peer, workload, options)
            failed = failed or "failed" in found["runs"][workload][0]
            results["machine"] = _machine()
            options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(markdown(results))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
