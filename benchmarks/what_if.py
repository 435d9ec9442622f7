"""``python -m benchmarks.what_if``: how well `streamdq what-if` replays what real workers did.

Worker processes work on four loads, one after the other, each on a Redis of its own: handlers of up to two seconds,
with failures, retries, timeouts and bursts, that share few slots; one of which workers are full most of the time; one
with many handlers that hang; and handlers of some 20 ms. The history is dumped, and replayed with the settings as they
were: median and 99th percentile of the lateness of each topic, as seen and as replayed. It fails if a replay is worse
than what `streamdq what-if` says of one to be trusted.

Each load is run with another number of workers, too, and compared with what the replay of the first run predicts.

``--repeat 4`` runs each load four times instead, with the same jobs, workers and settings, and compares what happened:
how far one run is from another is how well any of them can be foretold.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet
from rich.console import Console

from streamdq import NewJob, Queue
from streamdq.dump import Dumper, require_manifest
from streamdq.dump.arrow import parquet_options
from streamdq.dump.local import LocalFolder
from streamdq.embedded.binary import find_server
from streamdq.terminal import table
from streamdq.times.durations import show_ms
from streamdq_spark.events import read_events
from streamdq_spark.session import session, settings_for
from streamdq_spark.whatif import Answer, Change, QueueAnswer, what_if
from streamdq_spark.whatif.answer import Figures

from .harness import must, until
from .server import RedisServer
from .workers import LOADED, processes

_SOON_S = 10.0  # until all jobs are enqueued


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs of a topic: so many in a second, besides so many in each burst; their handlers take between ``least_ms`` and
    some times ``mean_ms``; shares of attempts that fail, and that hang until their TTR.
    """

    topic: str
    each_s: float
    burst: int
    least_ms: float
    mean_ms: float
    fails: float = 0.0
    hangs: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    workers: int
    concurrency: int
    kinds: tuple[Kind, ...]
    bursts_every_s: float
    retry: str = "300ms 2s 4s"
    ttr: str = "2s"


LOADS = (
    Load(
        "long", 2, 6,
        (
            Kind("orders", 50, 250, 5, 35, 0.02), Kind("mails", 12, 60, 40, 160, 0.2),
            Kind("reports", 5, 10, 100, 250, 0.05, 0.02),
        ),
        20,
    ),
    Load("full", 2, 4, (Kind("orders", 25, 900, 5, 35, 0.02), Kind("mails", 6, 200, 40, 160, 0.2, 0.01)), 20),
    Load("hung", 2, 8, (Kind("calls", 25, 100, 5, 60, 0.05, 0.04), Kind("mails", 12, 40, 40, 160, 0.1)), 15),
    Load("short", 2, 10, (Kind("clicks", 120, 900, 5, 10), Kind("views", 40, 250, 8, 20, 0.05)), 15),
)  # fmt: skip
OTHER_WORKERS = 3


def jobs_of(kind: Kind, load: Load, seconds: float, seed: int, begin: datetime) -> list[NewJob]:
    """The topic's jobs, each with its due time and what its attempts do, whatever the workers."""
    chance = random.Random(f"{seed} {kind.topic}")
    moments = []
    at = 0.0
    while (at := at + chance.expovariate(kind.each_s)) < seconds:
        moments.append(at)
    bursts = int(seconds / load.bursts_every_s)
    for number in range(bursts):
        middle = (number + 0.3) * load.bursts_every_s
        moments += [middle + chance.expovariate(2.0) for _ in range(kind.burst)]
    made = []
    for number, moment in enumerate(sorted(moments)):
        works = []
        for _ in range(6):
            took, drawn = kind.least_ms + chance.expovariate(1 / kind.mean_ms), chance.random()
            end = "hang" if drawn < kind.hangs else "fail" if drawn < kind.hangs + kind.fails else "done"
            works.append([round(took, 1), end])
        made.append(NewJob(works, at=begin + timedelta(seconds=moment), id=f"{kind.topic}-{number}"))
    return made


def run(load: Load, workers: int, seconds: float, folder: Path, seed: int) -> None:
    """Lets real workers do it, and dumps the history into the folder."""
    with RedisServer(find_server()) as server, Queue(server.url) as queue:
        for kind in load.kinds:
            queue.configure(kind.topic, retry=load.retry, ttr=load.ttr)
        options = load.concurrency, ",".join(kind.topic for kind in load.kinds)
        with processes(server.url, LOADED, workers, *options) as started:
            for process in started:
                process.serve()
            must(lambda: server.blocked() >= workers, "the workers wait for jobs")
            begin = datetime.now(UTC) + timedelta(seconds=_SOON_S)
            for kind in load.kinds:
                jobs = jobs_of(kind, load, seconds, seed, begin)
                for first in range(0, len(jobs), 500):
                    queue.enqueue_many(kind.topic, jobs[first : first + 500])
            if not until(lambda: _is_empty(queue), seconds + 60, every_s=0.5):
                raise TimeoutError("the jobs have not all ended in time")
            for process in started:
                process.stop()
        with Dumper(LocalFolder(folder), server.url).opened() as dumper:
            dumper.dump()


def _is_empty(queue: Queue) -> bool:
    now = queue.stats()
    return not (now.delayed or now.ready or now.running)


def record(loads: list[Load], seconds: float, keep: Path, folder: Path, seed: int) -> None:
    """A short history of each load, for tests: one file each."""
    for load in loads:
        dump = keep / f"{load.name}-recorded"
        if not dump.exists():
            run(load, load.workers, seconds, dump, seed)
        opened = LocalFolder(dump)
        files = [parquet.ParquetFile(opened.root / file.path).read() for file in require_manifest(opened).files]
        folder.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.concat_tables(files), folder / f"{load.name}.parquet", **parquet_options())


def _judged(name: str, answer: Answer) -> Iterator[tuple[bool, list[str]]]:
    for queue in answer.queues:
        if queue.judged:
            remark = "by chance" if queue.p99_by_chance else "" if queue.good else "too far"
            yield queue.good, [*_cells(name, queue.topic, queue.seen, queue.replayed), remark]


def _foretold(name: str, before: Answer, after: Answer) -> Iterator[list[str]]:
    really = {queue.topic: queue.seen for queue in after.queues}
    for queue in before.queues:
        yield [*_cells(name, queue.topic, really[queue.topic], queue.changed), ""]


def _cells(name: str, topic: str, real: Figures, predicted: Figures) -> list[str]:
    median, p99 = (_off(a, b) for a, b in ((real.p50_ms, predicted.p50_ms), (real.p99_ms, predicted.p99_ms)))
    shown = [show_ms(value or 0) for value in (real.p50_ms, predicted.p50_ms, real.p99_ms, predicted.p99_ms)]
    return [name, topic, f"{real.attempts:,}", *shown[:2], f"{median:.1%}", *shown[2:], f"{p99:.1%}"]


def _off(real: float | None, predicted: float | None) -> float:
    return max(abs((predicted or 0) - (real or 0)) - 1, 0) / max(real or 0, 1)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.what_if", description=__doc__)
    parser.add_argument("--seconds", type=float, default=100, help="how long jobs come (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=[load.name for load in LOADS], help="only this load")
    parser.add_argument("--keep", type=Path, help="a folder for the dumps; those that are there already are used")
    parser.add_argument("--record", type=Path, help="only write a history of each load into this folder, for tests")
    parser.add_argument("--repeat", type=int, metavar="N", help="run each load so often, and compare these runs")
    options = parser.parse_args(arguments)
    loads = [load for load in LOADS if options.only in (None, load.name)]
    with tempfile.TemporaryDirectory() as own:
        keep = options.keep or Path(own)
        if options.record:
            record(loads, options.seconds, keep, options.record, options.seed)
            return 0
        if options.repeat:
            return _compare(loads, options.seconds, keep, options.seed, options.repeat)
        return _measure(loads, options.seconds, keep, options.seed)


def _measure(loads: list[Load], seconds: float, folder: Path, seed: int) -> int:
    runs = [(load, workers) for load in loads for workers in (load.workers, OTHER_WORKERS)]
    for load, workers in runs:
        dump = folder / f"{load.name}-{workers}"
        if not dump.exists():
            run(load, workers, seconds, dump, seed)
    shown = table("load", "topic", "attempts", "p50", "replayed", "off", "p99", "replayed", "off", "")
    well = True
    with session("local[2]", settings=settings_for(1)) as spark:
        for load in loads:
            other = Change(workers=OTHER_WORKERS)
            before, after = (
                what_if(spark, read_events(spark, str(folder / f"{load.name}-{n}")), other)
                for n in (load.workers, OTHER_WORKERS)
            )
            for good, cells in _judged(load.name, before):
                shown.add_row(*cells)
                well &= good
            for cells in _foretold(f"{load.name}, {load.workers} → {OTHER_WORKERS} workers", before, after):
                shown.add_row(*cells)
            for good, cells in _judged(f"{load.name}, {OTHER_WORKERS} workers", after):
                shown.add_row(*cells)
                well &= good
    Console(width=140).print(shown)
    return 0 if well else 1


def _compare(loads: list[Load], seconds: float, folder: Path, seed: int, times: int) -> int:
    """Runs each load several times, and shows how far the runs are from each other, and from their replays."""
    shown = table(
        "load", "topic", "attempts", "p50 of each run", "p99 of each run", "apart", "replayed", "farthest off"
    )
    with session("local[2]", settings=settings_for(1)) as spark:
        for load in loads:
            answers = []
            for number in range(1, times + 1):
                dump = folder / f"{load.name}-{load.workers}-run-{number}"
                if not dump.exists():
                    run(load, load.workers, seconds, dump, seed)
                answers.append(what_if(spark, read_events(spark, str(dump)), Change(workers=load.workers)))
            for same in zip(*(answer.queues for answer in answers), strict=True):
                shown.add_row(load.name, *_apart(same))
    Console(width=180).print(shown)
    return 0


def _apart(same: tuple[QueueAnswer, ...]) -> Iterator[str]:
    """Of a topic in several runs: how far one is at most from another, and how far one is at most from its replay."""
    p99 = [queue.seen.p99_ms for queue in same]
    yield from (same[0].topic, f"{same[0].seen.attempts:,}")
    yield " ".join(show_ms(queue.seen.p50_ms or 0) for queue in same)
    yield " ".join(show_ms(ms or 0) for ms in p99)
    yield f"{max(_off(a, b) for a in p99 for b in p99):.1%}"
    yield " ".join(show_ms(queue.replayed.p99_ms or 0) for queue in same)
    yield f"{max(queue.errors[1] for queue in same):.1%}"


if __name__ == "__main__":
    sys.exit(main())
