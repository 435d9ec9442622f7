"""``python -m benchmarks.scale``: what a load needs, from the measured cost of each step; and a discrete simulation of
it, from which follows how late jobs start. ``--json`` writes everything, ``--costs`` takes the costs from such a file.

The simulation knows servers, movers and workers, each of which does one thing at a time, and the network between them.
Servers carry out calls in the order in which they arrive; a call's cost is what was measured. On each server one mover
goes from shard to shard and moves what is due; workers claim from the shards of their server that have ready jobs, run
handlers that do nothing, and finish them. Producers send batches. What handlers cost comes on top.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console
from rich.table import Table

from streamdq.config import MAX_BATCH, MAX_CLAIM
from streamdq.embedded.binary import find_server

from .__main__ import environment
from .costs import Cost, Step, measure
from .harness import Bench

Steps = Mapping[str, Step]

_RTT_S = 0.0002  # there and back between hosts of one network
_LOOPBACK_S = 0.00005
_FIRST_BATCH = 8  # of a shard, so that the first jobs start before the others are moved
_PRODUCED = 100  # jobs in a producer's batch
_IN_WORKER = ("claim", "run", "finish")
_BUSY = 0.6  # of a server's time, for what is planned
_USED_BYTES = 32e9  # of a server's memory, by jobs
_PLANS = ((10_000, 10e6), (100_000, 100e6), (1e6, 1e9), (1e6, 10e9))  # jobs a second, jobs that wait
_SEED = 20261125


@dataclass(frozen=True, slots=True)
class Load:
    """``per_s`` jobs are enqueued and become due each second, for ``seconds``; ``at_once`` are due in the first
    millisecond.
    """

    masters: int
    workers: int  # processes
    shards: int = 8  # a master
    per_s: float = 0.0
    seconds: float = 2.0
    at_once: int = 0
    rtt_s: float = _RTT_S


@dataclass(frozen=True, slots=True)
class ScaleResult:
    """Lateness of the starts, ms; how busy servers and workers were; from the first due time to the last end, s."""

    jobs: int
    p50_ms: float
    p99_ms: float
    most_ms: float
    servers: float
    workers: float
    took_s: float


class _One:
    """Does one thing at a time, in the order in which it is asked."""

    __slots__ = ("busy_s", "free")

    def __init__(self) -> None:
        self.free = self.busy_s = 0.0

    def do(self, now: float, cost_s: float) -> float:
        """When it will be done."""
        self.free = max(now, self.free) + cost_s
        self.busy_s += cost_s
        return self.free


class _Shard:
    """Groups of jobs, each with one due time."""

    __slots__ = ("due", "ready", "ready_jobs")

    def __init__(self) -> None:
        self.due: deque[tuple[float, int]] = deque()
        self.ready: deque[tuple[float, int]] = deque()
        self.ready_jobs = 0

    def move(self, now: float, most: int) -> int:
        moved = 0
        while self.due and self.due[0][0] <= now and moved < most:
            moved += _take(self.due, self.ready, most - moved)
        self.ready_jobs += moved
        return moved

    def claim(self, most: int) -> list[tuple[float, int]]:
        claimed: deque[tuple[float, int]] = deque()
        taken = 0
        while self.ready and taken < most:
            taken += _take(self.ready, claimed, most - taken)
        self.ready_jobs -= taken
        return list(claimed)


def _take(source: deque[tuple[float, int]], target: deque[tuple[float, int]], most: int) -> int:
    """Moves the first group, or so much of it."""
    when, jobs = source.popleft()
    if jobs > most:
        source.appendleft((when, jobs - most))
        jobs = most
    target.append((when, jobs))
    return jobs


class _Master:
    """A server, its mover, and its shards, which the mover visits in turn."""

    def __init__(self, shards: int) -> None:
        self.server, self.mover = _One(), _One()
        self.shards = [_Shard() for _ in range(shards)]
        self.next, self.moving, self.fresh = 0, False, True


class Simulation:
    """Simulates one load."""

    def __init__(self, steps: Steps, load: Load) -> None:
        self._steps, self._load = steps, load
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = count()
        self._random = Random(_SEED)
        self._masters = [_Master(load.shards) for _ in range(load.masters)]
        self._workers = [_One() for _ in range(load.workers)]
        self._idle = list(self._workers)
        self._ready: deque[tuple[_Master, _Shard]] = deque()  # shards with ready jobs
        self._late: list[tuple[float, int]] = []  # lateness in s, of so many jobs
        self._ended = 0.0

    def run(self) -> ScaleResult:
        self._produce()
        while self._events:
            when, _, act = heappop(self._events)
            act(when)
        return self._outcome()

    def _at(self, when: float, act: Callable[[float], None]) -> None:
        heappush(self._events, (when, next(self._number), act))

    def _call(self, now: float, master: _Master, cost: Cost, jobs: int, act: Callable[[float], None]) -> None:
        """A call under way: ``act`` is called when the server has carried it out."""
        arrives = now + self._load.rtt_s / 2
        self._at(arrives, lambda there: self._at(master.server.do(there, cost.of(jobs)), act))

    # -- producers

    def _produce(self) -> None:
        load, shards = self._load, [(master, shard) for master in self._masters for shard in master.shards]
        for i, (master, shard) in enumerate(shards):
            share = load.at_once * (i + 1) // len(shards) - load.at_once * i // len(shards)
            if share:
                shard.due.append((0.0, share))
                self._at(0.0, lambda now, master=master: self._wake(now, master))  # type: ignore[misc]
        batches = round(load.per_s * load.seconds / _PRODUCED)
        for i in range(batches):
            master, shard = shards[i % len(shards)]
            self._at(i * load.seconds / batches, lambda now, m=master, s=shard: self._enqueue(now, m, s))  # type: ignore[misc]

    def _enqueue(self, now: float, master: _Master, shard: _Shard) -> None:
        """A producer's batch; as many jobs that were put in before become due here within the time of a batch."""
        self._call(now, master, self._steps["enqueue"].server, _PRODUCED, lambda _: None)
        load = self._load
        within = _PRODUCED * load.masters * load.shards / load.per_s
        for due in sorted(now + self._random.random() * within for _ in range(_PRODUCED)):
            self._at(due, lambda when: self._due(when, master, shard))

    def _due(self, now: float, master: _Master, shard: _Shard) -> None:
        shard.due.append((now, 1))
        self._wake(now, master)

    # -- movers

    def _wake(self, now: float, master: _Master) -> None:
        if not master.moving:
            master.moving, master.fresh = True, True
            self._move(now, master)

    def _move(self, now: float, master: _Master) -> None:
        """Moves the due jobs of the next shard that has some."""
        shard = self._next_due(now, master)
        if shard is None:
            master.moving = False
            return
        step, most = self._steps["move"], _FIRST_BATCH if master.fresh else MAX_BATCH
        sent = master.mover.do(now, step.caller.call_us / 1e6)
        jobs = min(most, sum(jobs for due, jobs in shard.due if due <= now))
        self._call(sent, master, step.server, jobs, lambda done: self._moved(done, master, shard, most))

    def _next_due(self, now: float, master: _Master) -> _Shard | None:
        for _ in master.shards:
            shard = master.shards[master.next]
            master.next = (master.next + 1) % len(master.shards)
            if shard.due and shard.due[0][0] <= now:
                return shard
        return None

    def _moved(self, now: float, master: _Master, shard: _Shard, most: int) -> None:
        had, master.fresh = shard.ready_jobs, False
        shard.move(now, most)
        arrived = now + self._load.rtt_s / 2
        self._at(arrived, lambda when: self._move(when, master))
        if shard.ready_jobs and not had:
            self._ready.append((master, shard))
            if self._idle:  # Redis answers one blocked read
                worker = self._idle.pop()
                self._at(arrived, lambda when: self._claim(when, worker))

    # -- workers

    def _claim(self, now: float, worker: _One) -> None:
        """Claims from the shard whose turn it is. Other workers get what it leaves."""
        if not self._ready:
            self._idle.append(worker)
            return
        master, shard = self._ready.popleft()
        claimed = shard.claim(MAX_CLAIM)
        if shard.ready_jobs:
            self._ready.append((master, shard))
        step, jobs = self._steps["claim"], sum(some for _, some in claimed)
        worker.do(now, step.caller.call_us / 1e6)
        self._call(now, master, step.server, jobs, lambda done: self._claimed(done, worker, master, claimed))

    def _claimed(self, now: float, worker: _One, master: _Master, claimed: list[tuple[float, int]]) -> None:
        """Runs the jobs one after the other, and finishes them with one call. Claims the next when it begins."""
        jobs, arrived = sum(some for _, some in claimed), now + self._load.rtt_s / 2
        finish = self._steps["finish"]
        each_s = sum(self._steps[name].caller.job_us for name in _IN_WORKER) / 1e6
        starts = begins = max(arrived, worker.free)
        for due, some in claimed:
            starts += each_s * some
            self._late.append((starts - due, some))
        ended = worker.do(arrived, each_s * jobs + finish.caller.call_us / 1e6)
        self._call(ended, master, finish.server, jobs, self._finished)
        self._at(begins, lambda when: self._claim(when, worker))

    def _finished(self, now: float) -> None:
        self._ended = max(self._ended, now)

    def _outcome(self) -> ScaleResult:
        late = sorted(self._late)
        jobs = sum(some for _, some in late)
        took_s = max(self._ended, self._load.seconds if self._load.per_s else 0.0)
        return ScaleResult(
            jobs,
            _share(late, jobs * 0.5) * 1000,
            _share(late, jobs * 0.99) * 1000,
            late[-1][0] * 1000,
            sum(master.server.busy_s for master in self._masters) / took_s / len(self._masters),
            sum(worker.busy_s for worker in self._workers) / took_s / len(self._workers),
            took_s,
        )


def _share(late: Sequence[tuple[float, int]], jobs: float) -> float:
    """The least lateness that so many jobs do not exceed."""
    seen = 0
    for seconds, some in late:
        seen += some
        if seen >= jobs:
            return seconds
    raise ValueError("no jobs")


# -- the table


def masters_for(steps: Steps, per_s: float) -> int:
    """Servers that so many jobs a second keep busy for 60 % of their time, in full batches."""
    each_s = sum(step.server.of(MAX_CLAIM) for step in steps.values()) / MAX_CLAIM
    return max(1, -int(-per_s * each_s // _BUSY))


def workers_for(steps: Steps, per_s: float) -> int:
    """Worker processes likewise, without what their handlers do."""
    each_s = sum(steps[name].caller.of(MAX_CLAIM) for name in _IN_WORKER) / MAX_CLAIM
    return max(1, -int(-per_s * each_s // _BUSY))


@dataclass(frozen=True, slots=True)
class Need:
    """What so many jobs a second, and so many that wait, need: servers for the CPU time, servers for the memory, and
    worker processes.
    """

    per_s: float
    waiting: float
    cpu: int
    memory: int
    workers: int


def needs(steps: Steps, waiting_bytes: float, per_s: float, waiting: float) -> Need:
    """Each server has 64 GB, of which half is left to Redis for writing snapshots, and to buffers."""
    memory = max(1, -int(-waiting * waiting_bytes // _USED_BYTES))
    return Need(per_s, waiting, masters_for(steps, per_s), memory, workers_for(steps, per_s))


def loads(steps: Steps) -> dict[str, Load]:
    """What is simulated: the one that is measured too (benchmarks stampede), and those that no one machine takes."""

    def planned(per_s: float) -> Load:
        return Load(masters_for(steps, per_s), workers_for(steps, per_s), per_s=per_s)

    burst = replace(planned(1e6), per_s=0.0, at_once=1_000_000)
    return {
        "20 k due at once, this machine": Load(1, 1, shards=1, at_once=20_000, rtt_s=_LOOPBACK_S),
        "200 a second, this machine": Load(1, 1, shards=1, per_s=200, seconds=10.0, rtt_s=_LOOPBACK_S),
        "20 k a second": planned(20_000),
        "100 k a second": planned(100_000),
        "1 M a second": planned(1e6),
        "1 M due at once": burst,
        "1 M due at once, fewer servers": replace(burst, masters=-(-burst.masters // 3)),
    }


def _table(results: Mapping[str, tuple[Load, ScaleResult]]) -> Table:
    table = Table("load", "servers, busy", "workers, busy", "lateness p50", "p99", "most", "took", title="simulated")
    for name, (load, out) in results.items():
        late = (f"{ms:,.1f} ms" for ms in (out.p50_ms, out.p99_ms, out.most_ms))
        busy = (f"{load.masters}  {out.servers:.0%}", f"{load.workers}  {out.workers:.0%}")
        table.add_row(name, *busy, *late, f"{out.took_s:.2f} s")
    return table


def _costs_table(steps: Steps) -> Table:
    table = Table("step", "server: a call", "each job", "caller: a call", "each job", title="µs of CPU time")
    for name, step in steps.items():
        table.add_row(name, *(f"{us:.1f}" for cost in (step.server, step.caller) for us in (cost.call_us, cost.job_us)))
    return table


def _needs_table(plans: Sequence[Need], waiting_bytes: float) -> Table:
    title = f"needed; {waiting_bytes:.0f} bytes for each job that waits"
    table = Table("jobs a second", "jobs that wait", "servers: for CPU", "for memory", "worker processes", title=title)
    for plan in plans:
        table.add_row(*(f"{number:,.0f}" for number in (plan.per_s, plan.waiting, plan.cpu, plan.memory, plan.workers)))
    return table


def _read(path: Path) -> tuple[dict[str, Step], float]:
    found = json.loads(path.read_text(encoding="utf-8"))
    steps = {name: Step(Cost(**step["server"]), Cost(**step["caller"])) for name, step in found["costs"].items()}
    return steps, found["waiting_bytes"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, simulates and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write costs and results")
    parser.add_argument("--costs", type=Path, metavar="FILE", help="take the costs from what --json has written")
    options = parser.parse_args(arguments)
    bench, console = Bench(find_server()), Console()
    steps, waiting_bytes = _read(options.costs) if options.costs else measure(bench)
    plans = [needs(steps, waiting_bytes, *plan) for plan in _PLANS]
    console.print(_costs_table(steps), _needs_table(plans, waiting_bytes))
    results = {name: (load, Simulation(steps, load).run()) for name, load in loads(steps).items()}
    console.print(_table(results))
    if options.json:
        found: dict[str, Any] = {
            "costs": {name: asdict(step) for name, step in steps.items()},
            "waiting_bytes": waiting_bytes,
            "needed": [asdict(plan) for plan in plans],
            "simulated": {name: [asdict(load), asdict(out)] for name, (load, out) in results.items()},
            "environment": environment(bench),
        }
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
