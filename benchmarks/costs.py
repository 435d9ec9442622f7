"""What each step of a job costs: CPU time of the server and of the calling process, for one call and for one job in it.

A call's cost is taken as a part that every call has and a part for each job. Both follow from calls with one job and
with as many as a call may carry. CPU time is Redis's own (INFO cpu) and the process's, reading and writing sockets
included.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from streamdq import NewJob, Queue
from streamdq.config import MAX_CLAIM
from streamdq.link.connection import Link
from streamdq.link.opening import open_session
from streamdq.link.session import run
from streamdq.operations.attempts.claimed import ClaimedJob, held_in
from streamdq.operations.attempts.ends import AttemptResult, End, send_ends
from streamdq.store.redis_store import RedisStore

from .drain import Drained, drained
from .harness import GROUP, NAMESPACE, SHARD, TOPIC, Bench, body, hours, must, new_jobs
from .server import RedisServer

_CALLS = {1: 1_000, MAX_CLAIM: 16}  # jobs in a call -> calls in a round
_ROUNDS = 3
_WAITING = 100_000  # as benchmarks memory: Redis's tables are three quarters full
_DUE_IN_S = 2.0  # all have been enqueued before
_TTR_MS = 600_000


@dataclass(frozen=True, slots=True)
class Cost:
    """µs of CPU time: of a call whatever it carries, and for each job in it."""

    call_us: float
    job_us: float

    def of(self, jobs: int) -> float:
        """Seconds that a call with so many jobs costs."""
        return (self.call_us + self.job_us * jobs) / 1e6


@dataclass(frozen=True, slots=True)
class Step:
    """Of one step: what it costs the server, and the process that calls it."""

    server: Cost
    caller: Cost


class Measured:
    """A topic whose jobs go through all steps, in calls of one size."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._queue = Queue(server.url, NAMESPACE)
        self._link, session = open_session(server.url, NAMESPACE, None, None, Link)
        self._store, self._consumer = RedisStore(session), session.consumer

    def close(self) -> None:
        self._queue.close()
        self._link.close()

    def round(self, jobs: int, calls: int) -> dict[str, tuple[float, float]]:
        """For each step: CPU seconds of the server and of this process in one call."""
        self._server.empty()
        self._queue.configure(TOPIC, create=True)
        held: list[list[ClaimedJob]] = []
        due_ms = int((time.time() + _DUE_IN_S) * 1000)
        batches = [[NewJob(body(i), at=due_ms) for i in range(jobs)] for _ in range(calls)]
        steps: dict[str, Callable[[int], object]] = {
            "enqueue": lambda i: self._queue.enqueue_many(TOPIC, batches[i]),
            "move": lambda _: run(self._link, self._store.scripts.move(SHARD, (GROUP,), jobs)),
            "claim": lambda _: held.append(self._claim(jobs)),
            "finish": lambda i: self._finish(held[i]),
        }
        taken = {}
        for name, step in steps.items():
            if name == "move":
                must(lambda: time.time() * 1000 > due_ms, "all jobs are due")
            taken[name] = self._cpu_s(partial(_each, step, calls), calls)
        if self._server.count(SHARD.counts, f"done:{GROUP}") != jobs * calls:
            raise RuntimeError("not all jobs went through all steps")
        return taken

    def bytes_of_waiting(self, jobs: int) -> float:
        """Redis's memory for each of so many jobs that wait, all of them with ids of streamdq's making."""
        self._server.empty()
        self._queue.enqueue(TOPIC, body(0), delay="3h")
        before = self._server.memory_bytes()
        self._queue.enqueue_many(TOPIC, new_jobs(jobs, hours))
        return (self._server.memory_bytes() - before) / jobs

    def _claim(self, jobs: int) -> list[ClaimedJob]:
        asked = time.monotonic()
        claim = self._store.scripts.claim(SHARD, GROUP, self._consumer, jobs, _TTR_MS)
        return held_in(SHARD, GROUP, run(self._link, claim), asked)

    def _finish(self, held: list[ClaimedJob]) -> None:
        run(
            self._link,
            send_ends(
                self._store.scripts, SHARD, GROUP, self._consumer, [End(one, AttemptResult.DONE) for one in held]
            ),
        )

    def _cpu_s(self, calls: Callable[[], None], count: int) -> tuple[float, float]:
        server_s, here_s = self._server.cpu_s(), time.process_time()
        calls()
        here_s = time.process_time() - here_s
        return (self._server.cpu_s() - server_s) / count, here_s / count


def _each(step: Callable[[int], object], calls: int) -> None:
    for i in range(calls):
        step(i)


def measure(bench: Bench) -> tuple[dict[str, Step], float]:
    """The cost of each step, of all rounds the least, as other processes can only add to it; and the bytes of a job
    that waits. ``run`` is what else a worker process does for a job whose handler does nothing.
    """
    rounds: dict[int, list[dict[str, tuple[float, float]]]] = {jobs: [] for jobs in _CALLS}
    drains: list[Drained] = []
    with bench.server() as server:
        measured = Measured(server)
        for _ in range(bench.rounds(_ROUNDS) + 1):  # the first one loads scripts, and is left out
            for jobs, calls in _CALLS.items():
                rounds[jobs].append(measured.round(jobs, calls))
        waiting_bytes = measured.bytes_of_waiting(bench.jobs(_WAITING))
        measured.close()
        for _ in range(bench.rounds(_ROUNDS)):
            drained(server, 1, drains, new_jobs(bench.jobs(50_000)))
    steps = {
        name: Step(_cost(rounds, name, 0), _cost(rounds, name, 1)) for name in ("enqueue", "move", "claim", "finish")
    }
    others_us = sum(steps[name].caller.of(MAX_CLAIM) for name in ("claim", "finish")) * 1e6 / MAX_CLAIM
    in_all_us = min(drain.workers_us for drain in drains)
    return {**steps, "run": Step(Cost(0.0, 0.0), Cost(0.0, in_all_us - others_us))}, waiting_bytes


def _cost(rounds: dict[int, list[dict[str, tuple[float, float]]]], name: str, side: int) -> Cost:
    one, many = (min(taken[name][side] for taken in rounds[jobs][1:]) * 1e6 for jobs in (1, MAX_CLAIM))
    job_us = (many - one) / (MAX_CLAIM - 1)
    return Cost(one - job_us, job_us)
