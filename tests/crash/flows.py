"""Flows under faults: `python -m tests.crash.flows [--flows N] [NAME ...]` prints the table in docs/reliability.md.

Producers build flows of eight parts and a join while the fault strikes again and again. In some rows, two of the parts
add two jobs each to their flow, which the join waits for, too. In every twentieth flow one part fails permanently. What
is judged comes from the handlers' journal: each join runs, none before its parts, and each flow that can't go on says
so. Ends with 1 if a row did not hold what it promises.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from streamdq import NewJob, Queue
from streamdq.errors import FlowExists, FlowWithdrawn, ServerError
from tests.crash.faults import fail_over, keeping, owner_of
from tests.crash.judge import Attempt, attempts_of
from tests.crash.table import say
from tests.crash.worker_processes import WorkerProcess, WorkerProcesses
from tests.crash.workers import Options, Work
from tests.sentinels import Sentinels
from tests.servers import Binary, Cluster, Server, binaries
from tests.waiting import until

PARTS = 8
ADDING = (1, 4)
"""The parts that add jobs, in some rows."""
BROKEN_EACH = 20
PART, JOIN = "part", "join"
SLOTS = 10
RUN = Options(topics=(PART, JOIN), ttr="2s", retry="0.1s", concurrency=SLOTS)
WORKERS = 3
LONG_S = 1800.0
"""Thousands of flows take minutes; what hangs is given up only then."""

HEADER = (
    "| fault, again and again | faults | flows | joins lost | joins early | joins run again "
    "| blocked, and reported | test |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


@dataclass
class Run:
    """One row while it is tried."""

    place: Any
    processes: WorkerProcesses
    dice: random.Random
    adds: int = 0  # jobs that each of the parts adds which do so
    built: dict[str, tuple[float, float]] = field(default_factory=dict)  # name -> when it was called for, and complete
    lost_by_redis: list[tuple[float, float]] = field(default_factory=list)
    workers: list[WorkerProcess] = field(default_factory=list)
    strikes: int = 0

    def start_worker(self) -> None:
        self.workers.append(self.processes.start(RUN, grace_s=2))

    def replace(self, worker: WorkerProcess) -> None:
        worker.kill()
        self.workers.remove(worker)
        self.start_worker()

    # -- what `fail_over` asks for

    def redis_lost(self, since: float, till: float) -> None:
        self.lost_by_redis.append((since, till))

    def excused(self, name: str) -> bool:
        """Whether Redis may have lost some of the flow."""
        called, complete = self.built[name]
        return any(since <= complete and called <= till for since, till in self.lost_by_redis)


@dataclass(frozen=True)
class Row:
    """A fault. ``times``: how often it strikes at most; ``every_s``: the pause between two."""

    what: str
    strike: Callable[[Run], object]
    place: Callable[[Binary], AbstractContextManager[Any]] = Server
    times: int = 1_000_000
    every_s: float = 1.0
    shards: int = 1
    adds: int = 0


def kill_worker(run: Run) -> None:
    run.replace(run.dice.choice(run.workers))


def kill_mover(run: Run) -> None:
    until(lambda: run.processes.leader() in {worker.pid for worker in run.workers}, "a mover is active")
    leader = run.processes.leader()
    for worker in [worker for worker in run.workers if worker.pid == leader]:
        run.replace(worker)


def kill_redis(run: Run) -> None:
    run.place.kill()
    run.place.start()


def sentinel_failover(run: Run) -> None:
    fail_over(run, run.place.primary, run.place.replica)


def cluster_failover(run: Run) -> None:
    port = owner_of(run, "streamdq:{join:0}:bucket")
    number = next(n for n, node in enumerate(run.place.nodes) if node.port == port)
    fail_over(run, run.place.nodes[number], run.place.replicas[number])


ROWS = {
    "worker_killed": Row("a worker is killed (-9), and another started", kill_worker),
    "mover_killed": Row("the worker with the active mover is killed (-9), and another started", kill_mover, every_s=3),
    "redis_killed": Row(
        "Redis is killed (-9) and started, appendfsync always", kill_redis, keeping("always"), every_s=5
    ),
    "worker_killed_children": Row("a worker is killed (-9) while handlers add jobs", kill_worker, adds=2),
    "redis_killed_children": Row(
        "Redis is killed (-9) while handlers add jobs", kill_redis, keeping("always"), every_s=5, adds=2
    ),
    "sentinel_failover": Row(
        "the primary is killed (-9), Sentinel names its replica", sentinel_failover, Sentinels, times=1
    ),
    "cluster_failover": Row(
        "a Cluster's primary is killed (-9), its replica takes its place", cluster_failover,
        lambda binary: Cluster(binary, replicas=True), times=1, shards=6,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What a row shows. ``silent``: flows that can't go on, and don't say so."""

    flows: int
    strikes: int
    excused: int
    lost: list[str]
    early: list[str]
    again: int
    blocked: int
    silent: list[str]

    @property
    def broken(self) -> list[str]:
        limit = 2 * SLOTS * WORKERS * max(self.strikes, 1)  # a slot each, and outcomes that are not sent yet
        said = [
            (self.lost, f"{len(self.lost)} joins never ran: {self.lost[:5]}"),
            (self.early, f"{len(self.early)} joins began before a part had ended: {self.early[:5]}"),
            (self.silent, f"{len(self.silent)} flows can't go on, and are not blocked: {self.silent[:5]}"),
            (self.again > limit, f"{self.again} joins ran again, of at most {limit} in hand"),
        ]
        return [text for is_so, text in said if is_so]


def is_broken(number: int) -> bool:
    return number % BROKEN_EACH == 7


def build(run: Run, url: str, numbers: Iterator[int]) -> None:
    """A producer: builds each flow until it is complete, as the docs say."""
    with Queue(url) as queue:
        for number in numbers:
            name, called = f"f{number}", time.time()
            while name not in run.built:
                try:
                    with queue.flow(name) as flow:
                        parts = flow.enqueue_many(PART, (part(name, number, n, run.adds) for n in range(PARTS)))
                        flow.enqueue(JOIN, asdict(Work()), id=f"{name}-join", after=parts)
                except FlowExists:
                    run.built[name] = called, time.time()
                except (
                    FlowWithdrawn,
                    ServerError,
                ):  # withdrawn: its beginning is lost, as Redis had not yet written it
                    continue
                else:
                    run.built[name] = called, time.time()


def part(name: str, number: int, n: int, adds: int) -> NewJob:
    fails_once = n == 3 and number % 10 == 0
    work = Work(
        ms=5 * (n % 3), fail=int(fails_once), bury=n == 5 and is_broken(number), adds=adds if n in ADDING else 0
    )
    return NewJob(asdict(work), id=f"{name}-{n}")


def tried(row: Row, flows: int, binary: Binary, directory: Path) -> Found:
    with row.place(binary) as place, WorkerProcesses(place, directory) as processes:
        run = Run(place, processes, random.Random(7), row.adds)
        for topic in (PART, JOIN):
            processes.queue.configure(topic, shards=row.shards, max_deliveries=100)
        for _ in range(WORKERS):
            run.start_worker()
        for worker in run.workers:
            processes.serving(worker)
        numbers = iter(range(flows))
        lock = threading.Lock()

        def next_number() -> Iterator[int]:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                yield number

        producers = [
            threading.Thread(target=build, args=(run, place.url, next_number()), daemon=True) for _ in range(2)
        ]
        for producer in producers:
            producer.start()
        until(lambda: len(run.built) >= flows // 10, "flows are built", LONG_S)
        pause = threading.Event()
        while any(producer.is_alive() for producer in producers) or joined(processes) < 0.9 * flows:
            if run.strikes < row.times:
                row.strike(run)
                run.strikes += 1
            pause.wait(row.every_s)
        return judged(run)


def joined(processes: WorkerProcesses) -> int:
    return sum(line.topic == JOIN for line in processes.journal.lines("end"))


def judged(run: Run) -> Found:
    """Waits until all is done that can be done, and counts."""
    names = [name for name in run.built if not run.excused(name)]
    broken = {name for name in names if is_broken(int(name[1:]))}
    journal, queue = run.processes.journal, run.processes.queue
    whole = {f"{name}-join" for name in names if name not in broken}
    stuck: list[str] = []
    try:
        until(lambda: whole <= journal.ids("end"), "each join has run", LONG_S / 10)
    except TimeoutError:
        stuck = sorted(whole - journal.ids("end"))

    def not_blocked() -> list[str]:
        states = {name: queue.flow_status(name) for name in broken}
        return [name for name, status in states.items() if status is None or status.state != "blocked"]

    silent: list[str] = []
    try:
        until(lambda: not not_blocked(), "what can't go on is blocked", LONG_S / 10)
    except TimeoutError:
        silent = not_blocked()
    found = {job.id for job in itertools.islice(queue.find(JOIN, state="blocked"), len(broken) * 2 + 1000)}
    silent += [name for name in broken if f"{name}-join" not in found and name not in silent]
    attempts = attempts_of(journal.lines())
    joins = {name: attempts.get(f"{name}-join", []) for name in names}
    early = [name for name, began in joins.items() if began and began[0].begun < last_end(attempts, name, run.adds)]
    again = sum(
        max(0, len(began) - 1 - sum(one.how in ("raised", "cancelled") for one in began)) for began in joins.values()
    )
    return Found(
        len(names), run.strikes, len(run.built) - len(names), stuck, early, again, len(broken) - len(silent), silent
    )


def last_end(attempts: dict[str, list[Attempt]], name: str, adds: int) -> float:
    """When each part of the flow, and each job that one has added, had ended for the first time; infinite if one never
    has.
    """
    parts = [f"{name}-{n}" for n in range(PARTS)]
    added = [f"{name}-{n}-{i}" for n in ADDING for i in range(adds)]
    ends = (
        min((one.ended for one in attempts.get(id, []) if one.how == "end"), default=float("inf"))
        for id in (*parts, *added)
    )
    return max(ends)


def markdown(name: str, row: Row, found: Found) -> str:
    flows = f"{found.flows}" + (f" and {found.excused} that Redis may have lost" if found.excused else "")
    return (
        f"| {row.what} | {found.strikes} | {flows} | {len(found.lost)} | {len(found.early)} | {found.again} "
        f"| {found.blocked} of {found.blocked + len(found.silent)} | `{name}` |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of the rows; without, all of them")
    parser.add_argument("--flows", type=int, default=5000)
    options = parser.parse_args()
    say(HEADER)
    failed = False
    for name, row in ROWS.items():
        if options.names and name not in options.names:
            continue
        with tempfile.TemporaryDirectory(prefix="streamdq-flows-") as directory:
            found = tried(row, options.flows, binaries()[-1], Path(directory))
        say(markdown(name, row, found))
        for text in found.broken:
            failed = True
            say(f"BROKEN {name}: {text}", sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
