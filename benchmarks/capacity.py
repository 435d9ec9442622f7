"""``python -m benchmarks.capacity``: whether the table `capacity` names enough slots, and not many too many.

Three weeks of made-up attempts are analysed, and the next day is played through as many slots as the table names for
the pool in each hour, first come, first served. Beside them: as many as somebody needs who knows what comes. Aims: the
objective is held in 95 % of the hours, with at most 1.5 times the slots of that. An hour holds it if all of its
attempts do, and those of each queue that are enough for one of them to be late.
"""

from __future__ import annotations

import argparse
import heapq
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from streamdq.dump.arrow import arrow_schema, write_parquet
from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import DumpFile, path_of, update_manifest
from streamdq.terminal import table
from streamdq_spark.analysis import analyze, plan
from streamdq_spark.engines.duck import DuckDB
from streamdq_spark.measures import BUSY, OBJECTIVE, SLO_MS
from streamdq_spark.report import load_tables
from streamdq_spark.report.parts import grouped
from streamdq_spark.report.pools import pools

HOUR_MS, DAY_H, DAYS = 3_600_000, 24, 22
START_H = 490_992  # Monday, 2026-01-05
BY_HOUR = (2, 1, 1, 1, 1, 2, 4, 7, 10, 12, 13, 14, 15, 14, 13, 13, 14, 16, 18, 20, 19, 14, 8, 4)
HELD, TIMES = 0.95, 1.5


@dataclass(frozen=True, slots=True)
class Queue:
    """`per_hour`: jobs on average; `burst`: more of them at the full hour, from nine to five."""

    per_hour: float
    run_ms: float
    burst: int = 0


def independent(count: int) -> list[Queue]:
    """With 1 to 400 jobs an hour and runs of 80 ms to 20 s."""
    chance = np.random.default_rng(count)
    return [Queue(400 ** chance.random(), 80 * 250 ** chance.random()) for _ in range(count)]


SCENARIOS: dict[str, list[Queue]] = {
    "one queue, 80 ms": [Queue(150, 80)],
    "one queue, 30 s": [Queue(200, 30_000)],
    "one queue, 4 an hour": [Queue(4, 5000)],
    "one queue, bursts": [Queue(60, 3000, 50)],
    "5 queues": independent(5),
    "30 queues": independent(30),
    "300 small queues": [Queue(1, 2000)] * 300,
    "300 small queues, 30 s": [Queue(1, 30_000)] * 300,
    "5 queues, bursts together": [Queue(60, 3000, 20)] * 5,
    "20 queues, one with bursts": [*independent(19), Queue(60, 3000, 50)],
}


@dataclass(slots=True)
class Figures:
    """Of hours: `held` is how many of them met the objective; `held_by_workers`: with the slots of as many workers as
    are advised, which are to be busy for 80 % of the time. `apart`: slots if each queue had workers of its own.
    `late`: of all `jobs`.
    """

    hours: int = 0
    held: int = 0
    held_by_workers: int = 0
    slots: int = 0
    needed: int = 0
    of_workers: int = 0
    apart: int = 0
    jobs: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class Jobs:
    """As they come due: when, how long each takes, and the number of its queue."""

    due: Any
    took: Any
    queue: Any

    def within(self, first_hour: int, end_hour: int) -> Jobs:
        own = (self.due >= first_hour * HOUR_MS) & (self.due < end_hour * HOUR_MS)
        return Jobs(self.due[own], self.took[own], self.queue[own])

    def by_queue(self) -> Counter[int]:
        return Counter(self.queue.tolist())


def made(queues: Sequence[Queue], seed: int) -> Iterator[tuple[int, Any, Any]]:
    """Of each queue: its number, when its jobs are due, in ms since the start, and how long they take."""
    chance = np.random.default_rng([seed, len(queues), int(queues[0].run_ms)])
    mean = np.array(BY_HOUR) / np.mean(BY_HOUR)
    for number, queue in enumerate(queues):
        jobs = chance.poisson(queue.per_hour * np.tile(mean, DAYS + 1))
        due = np.repeat(np.arange(len(jobs)) * HOUR_MS, jobs) + chance.integers(0, HOUR_MS, jobs.sum())
        bursts = [h * HOUR_MS for h in range(len(jobs)) if 9 <= h % DAY_H < 17]
        due = np.sort(np.concatenate([due, np.repeat(bursts, queue.burst).astype("i8")]))
        yield number, due, np.rint(chance.exponential(queue.run_ms, len(due))).astype("i8") + 1


def write(folder: LocalFolder, jobs: Sequence[tuple[int, Any, Any]]) -> None:
    """A dump of those due on the first days; each starts at once."""
    due = np.concatenate([one for _, one, _ in jobs])
    took = np.concatenate([one for _, _, one in jobs])
    topic = np.concatenate([np.full(len(one), number) for number, one, _ in jobs])
    known = due + took < DAYS * DAY_H * HOUR_MS
    due, took, topic = due[known], took[known], topic[known]
    order = np.argsort(due + took, kind="stable")
    due, took, topic = due[order], took[order], topic[order]
    files = []
    days = (due + took) // (DAY_H * HOUR_MS)
    for day in range(DAYS):
        own = days == day
        path = path_of(START_H + day * DAY_H, f"s{day + 1:09}")
        with folder.writing(path, durable=False) as file:
            write_parquet(_rows(due[own], took[own], topic[own], int(own.argmax())), file)
        files.append(DumpFile(path=path, rows=int(own.sum()), bytes=folder.size(path)))

    def fill(manifest: Any) -> None:
        manifest.id, manifest.namespace, manifest.files = "made-up", "made-up", files

    update_manifest(folder, fill, new=True)


def _rows(due: Any, took: Any, topic: Any, first: int) -> pa.Table:
    at = (due + START_H * HOUR_MS) * 1000
    count = len(due)
    times = {"created": at, "due": at, "moved": at, "started": at, "finished": at + took * 1000}
    numbers = {"shard": 0, "attempt": 1, "step": 0, "body_bytes": 100}
    texts = {
        "topic": [f"t{number:03}" for number in topic.tolist()],
        "group": ["default"] * count,
        "event": ["done"] * count,
        "consumer": [f"w-{n % 4}-000000000{n % 4}" for n in range(count)],
        "id": [f"{first + n}" for n in range(count)],
        "entry": [f"{(ms + START_H * HOUR_MS)}-{n}" for n, ms in enumerate((due + took).tolist())],
    }
    columns: dict[str, Any] = {name: pa.array(values, pa.timestamp("us", "UTC")) for name, values in times.items()}
    columns |= {name: [value] * count for name, value in numbers.items()} | texts
    schema = arrow_schema()
    arrays = [pa.array(columns.get(field.name, [None] * count)).cast(field.type) for field in schema]
    return pa.table(arrays, schema=schema)


def advised(dump: Path) -> tuple[list[float], list[float]]:
    """The slots of the pool in each hour of the next day, and those of its queues, added up."""
    with tempfile.TemporaryDirectory() as out:
        made_plan = plan(str(dump), out)
        summary = analyze(DuckDB(), made_plan, questions=["capacity"])
        rows = load_tables(made_plan.target, ["capacity"], summary.first_day, summary.last_day)["capacity"]
    (pool,) = pools(rows)
    apart = [sum(row["slots"] or 0.0 for row in own) for _, own in sorted(grouped(rows, "hour").items())]
    return [hour.slots or 0.0 for hour in pool.hours], apart


def late(jobs: Jobs, slots: Sequence[int], first_hour: int) -> list[Counter[int]]:
    """How many of each queue start later than the SLO in each hour, first come, first served."""
    busy: list[int] = []
    found: list[Counter[int]] = [Counter() for _ in slots]
    for at, run, queue in zip(jobs.due.tolist(), jobs.took.tolist(), jobs.queue.tolist(), strict=True):
        hour = at // HOUR_MS - first_hour
        while busy and busy[0] <= at:
            heapq.heappop(busy)
        start = at
        while len(busy) >= slots[hour]:
            start = max(start, heapq.heappop(busy))
        heapq.heappush(busy, start + run)
        if start - at > SLO_MS:
            found[hour][queue] += 1
    return found


def holds(came: Counter[int], missed: Counter[int]) -> bool:
    """Whether an hour holds the objective: all that came, and each queue with enough for one of them to be late."""
    may = 1 - OBJECTIVE
    enough = (queue for queue, count in came.items() if round(count * may, 6) >= 1)
    return missed.total() <= came.total() * may and all(missed[queue] <= came[queue] * may for queue in enough)


def needed(jobs: Jobs, hour: int) -> int:
    """The fewest slots with which the objective is held in this hour, after one with as many."""
    own, came = jobs.within(hour - 1, hour + 1), jobs.within(hour, hour + 1).by_queue()
    slots = max(1, int(own.took.sum() / 2 / HOUR_MS * 0.8))
    while not holds(came, late(own, [slots] * 2, hour - 1)[1]):
        slots += 1
    return slots


def measure(name: str, seeds: int) -> Figures:
    figures = Figures()
    for seed in range(seeds):
        queues = list(made(SCENARIOS[name], seed))
        due, took = (np.concatenate([one[part] for one in queues]) for part in (1, 2))
        order = np.argsort(due, kind="stable")
        numbers = np.repeat([one[0] for one in queues], [len(one[1]) for one in queues])
        jobs = Jobs(due[order], took[order], numbers[order])
        with tempfile.TemporaryDirectory() as scratch:
            write(LocalFolder(Path(scratch)), queues)
            some, apart = advised(Path(scratch))
        first = DAYS * DAY_H  # the forecast begins with the hour of the last event, which the next day follows
        slots = [max(1, math.ceil(value)) for value in some][1:]
        of_workers = [max(1, math.ceil(value / BUSY)) for value in some][1:]
        ahead = jobs.within(first, first + len(slots))
        found = (late(ahead, there, first) for there in (slots, of_workers))
        for number, (missed, by_workers) in enumerate(zip(*found, strict=True)):
            if came := jobs.within(first + number, first + number + 1).by_queue():
                figures.hours += 1
                figures.held += holds(came, missed)
                figures.held_by_workers += holds(came, by_workers)
                figures.slots += slots[number]
                figures.needed += needed(jobs, first + number)
                figures.of_workers += of_workers[number]
                figures.apart += math.ceil(apart[number + 1])
                figures.jobs += came.total()
                figures.late += missed.total()
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capacity", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="days of each history, by default 3")
    parser.add_argument("--only", action="append", choices=list(SCENARIOS), help="only these queues")
    asked = parser.parse_args()
    columns = ("hours", "needed", "slots", "times", "late", "held", "at 80 %: times", "held", "times, apart")
    shown = table("queues", *columns, numbers=columns, title="slots of a pool for the next day")
    good = True
    for name in asked.only or SCENARIOS:
        f = measure(name, asked.seeds)
        held, times = f.held / f.hours, f.slots / f.needed
        good &= held >= HELD and times <= TIMES
        cells = (
            f.hours, f.needed, f.slots, f"{times:.2f}", f"{f.late / f.jobs:.1%}", f"{held:.0%}",
            f"{f.of_workers / f.needed:.2f}", f"{f.held_by_workers / f.hours:.0%}", f"{f.apart / f.needed:.2f}",
        )  # fmt: skip
        shown.add_row(name, *map(str, cells))
    Console(width=120).print(shown)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
