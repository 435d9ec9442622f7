"""A fault and what goes on around it: one place, its workers, and a load; then the judgement."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from streamdq.operations.checks.audit import Audit
from tests.crash.judge import Verdict, judge
from tests.crash.load import RETRY_S, SLOTS, TOPIC, TTR_S, WORKER, Load, Put, Through
from tests.crash.worker_processes import Host, WorkerProcess, WorkerProcesses
from tests.servers import Binary, Server
from tests.waiting import until

IN_HAND = 4 * SLOTS
"""How many jobs two workers may have in hand that have started: a slot each, and outcomes that are not sent yet."""


class Scene:
    """One run."""

    def __init__(self, place: Any, directory: Path, fault: Fault) -> None:
        self.place = place
        self.directory = directory
        self.processes = WorkerProcesses(place, directory)
        self.load = Load(self.processes, partial(fault.producer, self), seed=7)
        self.workers: list[WorkerProcess] = []
        self.clocks: list[Path] = []  # files that say how far ahead the workers' clocks are
        self.lost_by_redis: list[tuple[float, float]] = []
        self._clock: list[tuple[float, float]] = [(0.0, 0.0)]  # from when on, how far ahead

    def start_worker(self, **how: Any) -> WorkerProcess:
        self.workers.append(self.processes.start(WORKER, grace_s=2, **how))
        return self.workers[-1]

    def leading(self, leads: bool) -> WorkerProcess:
        """A worker whose mover is active, or one whose mover is not."""
        until(lambda: self.processes.leader() is not None, "a mover is active")
        leader = self.processes.leader()
        return next(worker for worker in self.workers if (worker.pid == leader) is leads)

    # -- what the judge has to know

    def redis_lost(self, since: float, till: float) -> None:
        """Redis loses what it accepted between these moments, and nobody can know it any more."""
        self.lost_by_redis.append((since, till))

    def clock_is(self, ahead_s: float, since: float) -> None:
        """From this moment on, Redis's clock is so far ahead."""
        self._clock.append((since, ahead_s))

    def redis_ms(self, at: float) -> float:
        """Redis's clock; the later one of two within the time from a claim to its start."""
        ahead = [ahead for (since, ahead), after in zip(self._clock, [*self._clock[1:], (at + 1, 0.0)], strict=True)
                 if since <= at and at - 0.2 < after[0]]  # fmt: skip
        return (at + max(ahead)) * 1000

    def excused(self, ids: frozenset[str]) -> frozenset[str]:
        accepted = self.load.accepted
        return frozenset(
            id for id in ids if any(a <= accepted[id].at and accepted[id].called <= b for a, b in self.lost_by_redis)
        )


@dataclass(frozen=True)
class Fault:
    """A row of the table. ``strike`` lets it happen, returns when it is over, and may say from when recovery counts."""

    name: str
    what: str
    strike: Callable[[Any], float | None]
    within_s: float  # nothing is held up longer
    place: Callable[[Binary], AbstractContextManager[Host]] = Server
    again: int = IN_HAND
    loses: str = ""  # what Redis itself loses of what it had accepted
    books: str = "balanced"  # what the audit says in the end; "missing": all that is lost, and what ran unannounced
    needs: Callable[[Binary], str] = lambda _: ""  # why it can't be tried here
    workers: Callable[[Any], object] | None = None
    producer: Callable[[Any], AbstractContextManager[Put]] = lambda scene: Through(scene.place.url)
    topic: dict[str, Any] = field(default_factory=dict)  # its settings
    quick: bool = False  # is part of every run of the suite


@dataclass(frozen=True)
class Tried:
    """A row's figures."""

    fault: Fault
    binary: Binary
    verdict: Verdict
    refused: int
    excused: frozenset[str]
    audit: Audit
    missing: int  # jobs that are lost by Redis's own books


def tried(fault: Fault, binary: Binary, directory: Path) -> Tried:
    """Lets the fault happen under load, and judges."""
    with fault.place(binary) as place:
        scene = Scene(place, directory, fault)
        with scene.processes:
            usual: dict[str, Any] = {"ttr": f"{TTR_S}s", "max_deliveries": 100}
            scene.processes.queue.configure(TOPIC, **(usual | fault.topic))
            if fault.workers:
                fault.workers(scene)
            else:
                for _ in range(2):
                    scene.start_worker()
            for worker in scene.workers:
                scene.processes.serving(worker)
            scene.load.begin()
            try:
                scene.load.go_on(100)
                scene.load.every_state()
                since = fault.strike(scene)
                over = time.time()
                scene.load.go_on(100)
            finally:
                scene.load.end()
            return _judged(fault, binary, scene, since or over, over)


def _judged(fault: Fault, binary: Binary, scene: Scene, since: float, over: float) -> Tried:
    processes = scene.processes

    def verdict() -> Verdict:
        return judge(scene.load.accepted, processes.journal.lines(), since, over, RETRY_S, scene.redis_ms)

    def all_done() -> bool:
        return not processes.live() and verdict().lost <= scene.excused(verdict().lost)

    with contextlib.suppress(TimeoutError):  # the verdict tells what is not done
        until(all_done, "all is done")
    audit, found = processes.queue.audit(), verdict()
    missing = sum(balance.imbalance for balance in audit.balances)
    return Tried(fault, binary, found, len(scene.load.refused), scene.excused(found.lost), audit, missing)


def broken(row: Tried, timed: bool = True) -> list[str]:
    """What a row promised and did not hold; if it is not ``timed``, however long it took."""
    fault, verdict = row.fault, row.verdict
    lost, gone = verdict.lost - row.excused, len(row.excused)
    said = [
        (bool(lost), f"{len(lost)} lost: {sorted(lost)[:10]}"),
        (bool(verdict.early), f"{len(verdict.early)} early: {verdict.early[:10]}"),
        (
            sum(verdict.again.values()) > fault.again,
            f"{sum(verdict.again.values())} ran again, of at most {fault.again}",
        ),
        (
            timed and verdict.recovered_s > fault.within_s,
            f"recovered after {verdict.recovered_s:.1f} s, not {fault.within_s} s",
        ),
        (bool(gone) and not fault.loses, f"{gone} lost by Redis: {sorted(row.excused)[:10]}"),
        (row.audit.left > 0, f"{row.audit.left} jobs are left: {row.audit.balances}"),
        (fault.books == "balanced" and not row.audit.balanced, f"not balanced: {row.audit}"),
        (
            fault.books == "missing" and row.missing < len(row.excused),
            f"{row.missing} missing, {len(row.excused)} lost",
        ),
    ]
    return [text for is_so, text in said if is_so]
