"""What a worker knows of its own health; health_checks.py publishes it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from ..metrics import declared

STALLED_S = 10.0
"""A worker is stalled when its event loop, or its whole process, has run nothing for so long; or when handlers hang in
all of its slots.
"""

State = Literal["starting", "ready", "draining"]


@dataclass(frozen=True, slots=True)
class Report:
    """The health of one worker process. ``stalled``: by what (process, loop or handlers), or empty; ``at``: when this
    was so, on the host's monotonic clock.
    """

    at: float
    state: State = "starting"
    stalled: str = ""
    consumer: str = ""
    pid: int = 0
    loop_blocked_s: float = 0.0
    hung: int = 0
    running: int = 0
    slots: int = 0
    last_claim_s: float | None = None

    @classmethod
    def of_process(cls) -> Report:
        """Of this process, which does not serve yet."""
        return cls(time.monotonic(), pid=os.getpid())

    @property
    def ready(self) -> bool:
        return self.state == "ready" and not self.stalled

    def seen_at(self, now: float) -> Report:
        """What it is worth later: a process that no longer reports stands still, or is gone."""
        return self if 0 <= now - self.at < STALLED_S else replace(self, stalled="process")


class WorkerHealth:
    """What a worker's threads know of its health. Any thread may write and read it."""

    def __init__(self, namespace: str, group: str, slots: int) -> None:
        self.state: State = "starting"
        self.slots = slots
        self.consumer = ""
        self._blocked_s = 0.0
        self._hung = 0
        self._claimed_at: float | None = None
        self._gauge = declared.STALLED.labels(namespace, group)
        self._gauge.set(0)

    @property
    def stalled(self) -> str:
        if self._blocked_s >= STALLED_S:
            return "loop"
        return "handlers" if self._hung >= self.slots else ""

    def blocked(self, seconds: float) -> None:
        """For so long the event loop has not answered."""
        self._blocked_s = seconds
        self._gauge.set(bool(self.stalled))

    def hang(self, handlers: int) -> None:
        """So many handlers go on beyond their TTR."""
        self._hung = handlers
        self._gauge.set(bool(self.stalled))

    def claimed(self) -> None:
        self._claimed_at = time.monotonic()

    def report(self, running: int) -> Report:
        now = time.monotonic()
        claim_s = None if self._claimed_at is None else round(now - self._claimed_at, 1)
        return Report(
            now, self.state, self.stalled, self.consumer, os.getpid(), round(self._blocked_s, 2), self._hung, running,
            self.slots, claim_s,
        )  # fmt: skip

    def close(self) -> None:
        self._gauge.set(0)


@dataclass(frozen=True, slots=True)
class Health:
    """Of all processes of a command; of none, when it has ended. Those of several are restarted one by one, so as long
    as one works, a restart of all of them helps nobody.
    """

    processes: Sequence[Report]

    @property
    def alive(self) -> bool:
        return not all(one.stalled for one in self.processes)

    @property
    def ready(self) -> bool:
        return any(one.ready for one in self.processes)

    def json(self) -> dict[str, Any]:
        return {"alive": self.alive, "ready": self.ready, "processes": [asdict(one) for one in self.processes]}
