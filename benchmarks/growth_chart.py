"""``python -m benchmarks.growth_chart``: what a call costs Redis while more and more jobs wait, up to twenty million,
compared with ten thousand. ``--json`` writes the figures, ``--chart`` draws them, ``--from`` takes those of a file.

Twenty million take 8 GB of memory and some minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from html import escape
from math import log10
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from streamdq import Queue
from streamdq.embedded.binary import ServerBinary, find_server

from .__main__ import environment
from .growth import ALWAYS, ANYWHERE, FEW, Calls, Topic, fill, in_turns
from .harness import BATCH, NAMESPACE, Bench, median
from .peers.chart import STYLE
from .server import RedisServer

Results = dict[str, Any]

# Pairs: one that a power of two is just ahead of, and one that Redis's hash tables have just begun to grow at.
SIZES = (100_000, 300_000, 1_000_000, 1_200_000, 2_000_000, 2_400_000, 4_000_000, 5_000_000, 8_000_000, 10_000_000,
         16_000_000, 20_000_000)  # fmt: skip
_PRODUCERS = 2
_ROUNDS, _OF_EACH = 16, 4  # so many rounds with the same few jobs, before their hash table grows as well

# name -> samples of a topic; how many jobs a call has; the class of its line
_LINES: dict[str, tuple[Callable[[Topic], list[float]], int, str]] = {
    "bare HSET + ZADD, random": (lambda topic: topic.bare_us, BATCH, "bare"),
    "enqueue_many, random dues": (lambda topic: topic.many_us[ANYWHERE], BATCH, "us"),
    "enqueue, random dues": (lambda topic: topic.one_us[ANYWHERE], 1, "one"),
    "enqueue_many, one delay": (lambda topic: topic.many_us[ALWAYS], BATCH, "us thin"),
    "enqueue, one delay": (lambda topic: topic.one_us[ALWAYS], 1, "one thin"),
}


def is_rehashing(jobs: int) -> bool:
    """Redis moves a hash's entries to a table of twice the size, a few with each call, once it has as many as a power
    of two. HSETNX does three such steps, so a third as many new jobs complete it.
    """
    began: int = 1 << (jobs.bit_length() - 1)
    return began < jobs < began * 4 / 3


def measure(bench: Bench, up_to: int, tell: Callable[[str], None] = lambda _: None) -> Results:
    """One topic that is filled step by step. At each size its calls and those of a topic with few jobs take turns."""
    points: list[dict[str, Any]] = []
    processes = ProcessPoolExecutor(_PRODUCERS, get_context("spawn"))
    with bench.server() as server, Queue(server.url, NAMESPACE) as queue, processes:
        calls, waiting = Calls(server, queue), 0
        for size in [*(size for size in SIZES if size < up_to), up_to]:
            parts = range(waiting, size, max(1, (size - waiting) // _PRODUCERS))
            filling = [processes.submit(_produce, server.url, i, min(i + parts.step, size)) for i in parts]
            for part in filling:
                part.result()
            taken = _turns(bench, queue, calls, size)
            waiting = size + bench.rounds(_ROUNDS) * Calls.ADDED
            points.append(_point(server, size, *taken))
            tell(f"{size:,}: " + ", ".join(f"{name} {was['ratio']:.2f}" for name, was in points[-1]["calls"].items()))
        calls.close()
    return {"few": FEW, "points": points, "environment": environment(bench)}


def _produce(url: str, first: int, until: int) -> None:
    """In a process of its own: two of them keep Redis busy."""
    with Queue(url, NAMESPACE) as queue:
        fill(queue, "many", first, until)


def _turns(bench: Bench, queue: Queue, calls: Calls, size: int) -> tuple[list[Topic], Topic]:
    """The topics with few jobs, which are new ones every few rounds; and the one with many."""
    fews, many = [], Topic("many", size)
    left = bench.rounds(_ROUNDS)
    calls.warm_up(many)
    while left > 0:
        few, rounds = Topic("few", FEW), min(left, _OF_EACH)
        fill(queue, few.name, 0, FEW)
        calls.warm_up(few)
        in_turns(rounds, calls.both, few, many)
        in_turns(rounds, calls.bare, few, many)
        queue.delete_topic(few.name, force=True)
        fews.append(few)
        left -= rounds
    return fews, many


def _point(server: RedisServer, size: int, fews: Sequence[Topic], many: Topic) -> dict[str, Any]:
    found: dict[str, dict[str, float]] = {}
    for name, (of, jobs, _) in _LINES.items():
        us, few_us = median(of(many)) / jobs, median(us for few in fews for us in of(few)) / jobs
        found[name] = {"us": us, "few_us": few_us, "ratio": us / few_us}
    memory = server.info("memory")["used_memory"]
    return {"waiting": size, "rehashing": is_rehashing(size), "used_memory": memory, "calls": found}


def table(results: Results) -> Table:
    """Redis's µs for a job, and times as much as with few."""
    out = Table("jobs wait", *_LINES, title="Redis's µs for a job (× of 10,000)")
    few = {name: median(point["calls"][name]["few_us"] for point in results["points"]) for name in _LINES}
    out.add_row(short(results["few"]), *(f"{us:.1f}" for us in few.values()))
    for point in results["points"]:
        found = [point["calls"][name] for name in _LINES]
        size = f"{short(point['waiting'])}{' *' * point['rehashing']}"
        out.add_row(size, *(f"{was['us']:.1f} ({was['ratio']:.2f})" for was in found))
    out.caption = "* while Redis's hash tables grow"
    return out


def short(jobs: int) -> str:
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if jobs >= unit:
            return f"{jobs / unit:g} {name}"
    return str(jobs)


_WIDTH, _LEFT, _EDGE, _TOP, _FLOOR = 860, 48, 590, 66, 366
_OWN_STYLE = """
    .l { fill: none; stroke-width: 2 } .l.us { stroke: #d9601a } .l.one { stroke: #3478b5 } .l.bare { stroke: #9fb3c4 }
    .l.thin { stroke-dasharray: 5 4 } .e { stroke-width: 2 }
    .e.us { fill: #d9601a; stroke: #d9601a } .e.one { fill: #3478b5; stroke: #3478b5 }
    .e.bare { fill: #9fb3c4; stroke: #9fb3c4 } .e.open { fill: #ffffff }
    text.one { font-weight: 600; fill: #24618f } text.thin { font-weight: 400 }
    @media (prefers-color-scheme: dark) {
      .l.us, .e.us { stroke: #f58a45 } .l.one, .e.one { stroke: #6aaee6 } .l.bare, .e.bare { stroke: #4f667a }
      .e.us { fill: #f58a45 } .e.one { fill: #6aaee6 } .e.bare { fill: #4f667a } .e.open { fill: #12181d }
      text.one { fill: #8cc3f0 }
    }"""


class _Plane(NamedTuple):
    """Where a point of the chart is: jobs from left to right on a logarithmic scale, ratios upwards from 1."""

    few: int
    most: int
    top: int

    def x(self, jobs: float) -> float:
        return round(_LEFT + log10(jobs / self.few) / log10(self.most / self.few) * (_EDGE - _LEFT), 1)

    def y(self, ratio: float) -> float:
        return round(_FLOOR - (ratio - 1) / (self.top - 1) * (_FLOOR - _TOP), 1)

    def grid(self) -> list[str]:
        sizes = sorted({self.most, *(10**power for power in range(9) if self.few <= 10**power < self.most)})
        ratios = range(1, self.top + 1)
        return [
            *(f'<path class="g" d="M{_LEFT} {self.y(n)}H{_EDGE}"/>' for n in ratios),
            *(f'<text class="v" text-anchor="end" x="{_LEFT - 8}" y="{self.y(n) + 4}">{n} ×</text>' for n in ratios),
            *(f'<path class="g" d="M{self.x(n)} {_TOP}V{_FLOOR}"/>' for n in sizes),
            *(f'<text class="v" text-anchor="middle" x="{self.x(n)}" y="{_FLOOR + 26}">{short(n)}</text>'
              for n in sizes),
        ]  # fmt: skip

    def line(self, points: Sequence[Mapping[str, Any]], name: str, kind: str) -> list[str]:
        places = [(self.x(p["waiting"]), self.y(p["calls"][name]["ratio"]), p["rehashing"]) for p in points]
        path = f"M{self.x(self.few)} {self.y(1)}" + "".join(f"L{x} {y}" for x, y, _ in places)
        dots = [f'<circle class="e {kind}{" open" * hollow}" cx="{x}" cy="{y}" r="3.5"/>' for x, y, hollow in places]
        return [f'<path class="l {kind}" d="{path}"/>', *dots]


def chart(results: Results) -> str:
    """SVG: a line for each call; hollow dots while the hash tables grow."""
    points: list[dict[str, Any]] = results["points"]
    last = points[-1]
    highest = max(was["ratio"] for point in points for was in point["calls"].values())
    plane = _Plane(results["few"], last["waiting"], max(2, -int(-highest // 1)))
    labels = _apart({name: plane.y(last["calls"][name]["ratio"]) for name in _LINES})
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_FLOOR + 44}" role="img">',
            f"<title>What a call costs Redis while up to {short(plane.most)} jobs wait</title>",
            f"<style>{STYLE}{_OWN_STYLE}\n</style>",
            '<rect class="b" width="100%" height="100%" rx="6"/>',
            f'<text class="h" x="16" y="28">Time in Redis, compared with {short(plane.few)} waiting jobs</text>',
            '<text class="v" x="16" y="48">hollow: while its hash tables grow</text>',
            *plane.grid(),
            *(part for name, (*_, kind) in _LINES.items() for part in plane.line(points, name, kind)),
            *(f'<text class="{kind}" x="{_EDGE + 14}" y="{labels[name] + 4}">{escape(name)} '
              f'{last["calls"][name]["ratio"]:.1f}</text>' for name, (*_, kind) in _LINES.items()),
            "</svg>\n",
        ]
    )  # fmt: skip


def _apart(places: Mapping[str, float], space: float = 18) -> dict[str, float]:
    """Labels moved down where they would cover each other."""
    found: dict[str, float] = {}
    lowest = -space
    for name, place in sorted(places.items(), key=lambda item: item[1]):
        lowest = found[name] = max(place, lowest + space)
    return found


def jobs_in(text: str) -> int:
    units = {"k": 1_000, "M": 1_000_000}
    try:
        jobs = int(float(text.rstrip("kM")) * units.get(text[-1:], 1))
    except ValueError:
        jobs = 0
    if jobs <= FEW:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number such as 500k or 20M, above {short(FEW)}")
    return jobs


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth_chart", description=__doc__)
    parser.add_argument("--up-to", type=jobs_in, default=2_000_000, metavar="JOBS", help="such as 20M (2M)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--from", type=Path, dest="source", metavar="FILE", help="measure nothing, take these figures")
    parser.add_argument("--chart", type=Path, metavar="SVG", help="draw them")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None, binary: ServerBinary | None = None) -> int:
    """The program; returns its exit code."""
    given = _arguments(words)
    console = Console(width=None if sys.stdout.isatty() else 140)
    if given.source:
        results = json.loads(given.source.read_text(encoding="utf-8"))
    else:
        results = measure(Bench(binary or find_server()), given.up_to, lambda line: console.print(line, style="dim"))
    console.print(table(results))
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if given.chart:
        given.chart.write_text(chart(results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
