"""What every workload stands on: how large to be, a Redis of its own, how to wait, what to make of samples."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import BaseModel

from streamdq import NewJob
from streamdq.embedded.binary import ServerBinary
from streamdq.keys import NamespaceKeys, ShardKeys

from .figures import Figure
from .server import RedisServer

NAMESPACE = "streamdq"
TOPIC = "order.close"
GROUP = "default"
BATCH = 500
SHARD: ShardKeys = NamespaceKeys(NAMESPACE).shard(TOPIC, 0)
DONE = f"done:{GROUP}"


@dataclass(frozen=True, slots=True)
class Bench:
    """One run: the server's binary, how it is reached, and how large workloads are (1: as the README's figures)."""

    binary: ServerBinary
    unix: bool = False
    scale: float = 1.0

    def jobs(self, full: int, least: int = BATCH) -> int:
        """A round number of batches, if it is more than one."""
        count = max(least, int(full * self.scale))
        return count - count % BATCH if count > BATCH else count

    def seconds(self, full: float, least: float = 1.0) -> float:
        return max(least, full * self.scale)

    def rounds(self, full: int) -> int:
        return max(1, round(full * min(1.0, self.scale * 3)))

    def server(self) -> RedisServer:
        """A new, empty one; use it in a with statement."""
        return RedisServer(self.binary, self.unix)


Workload = Callable[[Bench], list[Figure]]


@dataclass(slots=True)
class Results:
    """What a run found out."""

    figures: list[Figure] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # workload -> why it gave no figures

    @property
    def missed(self) -> list[Figure]:
        return [figure for figure in self.figures if figure.met is False]

    @property
    def passed(self) -> bool:
        return not self.missed and not self.failures


class Order(BaseModel):
    """What the handlers take. As JSON it is 100 bytes long."""

    order_id: int
    sku: str
    quantity: int
    note: str


def body(number: int) -> dict[str, object]:
    note = "leave it at the door, ring us twice"
    return {"order_id": 1_000_000_000 + number, "sku": "A-100-BLUE", "quantity": 2, "note": note}


def new_jobs(count: int, delay: Callable[[int], float] | None = None, first: int = 0) -> list[NewJob]:
    """Jobs with ids of streamdq's making; ``delay`` tells each one's, in seconds."""
    return [NewJob(body(i), delay=None if delay is None else delay(i)) for i in range(first, first + count)]


def hours(number: int) -> float:
    """A delay between one and two hours, spread so that jobs do not come in the order in which they are due."""
    return 3600 + number * 7919 % 3_600_000 / 1000


def until(done: Callable[[], bool], within_s: float, every_s: float = 0.005) -> bool:
    """Asks again and again until it is so, or ``within_s`` has passed; tells which."""
    deadline = time.monotonic() + within_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


def must(done: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
    """As ``until``; a workload that hangs is a failure.

    Raises:
        TimeoutError: it did not come about.
    """
    if not until(done, within_s):
        raise TimeoutError(f"not within {within_s:g} s: {what}")


@contextmanager
def set_env(environment: dict[str, str]) -> Iterator[None]:
    """For the processes that are started meanwhile."""
    os.environ.update(environment)
    try:
        yield
    finally:
        for name in environment:
            del os.environ[name]


def in_turn(rounds: int, *runs: Callable[[], float]) -> list[list[float]]:
    """Each run's results. Every round calls them all, each second one backwards, so that noise hits each alike."""
    results: list[list[float]] = [[] for _ in runs]
    order = list(range(len(runs)))
    for _ in range(rounds):
        for i in order:
            results[i].append(runs[i]())
        order.reverse()
    return results


def timed(run: Callable[[], object]) -> float:
    """Seconds that it took."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that ``percent`` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]


def spread(values: Sequence[float]) -> dict[str, object]:
    """Samples for the JSON."""
    return {"median": median(values), "least": min(values), "most": max(values), "samples": list(values)}
