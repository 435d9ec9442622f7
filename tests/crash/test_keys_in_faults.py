"""Limits of keys while servers fail: nothing is lost, no key is stuck, and none has two jobs at once."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest

from streamdq import Queue
from tests.conftest import BINARIES, needs_server
from tests.crash.faults import FAULTS
from tests.crash.judge import Attempt, attempts_of
from tests.crash.load import TOPIC, Put
from tests.crash.scene import Fault, broken, tried
from tests.crash.worker_processes import Journal
from tests.crash.workers import Work
from tests.servers import Binary

KEYS = 20
LIMITS = {"key_concurrency": 1, "key_rate": "20/s"}
ENDED_S = 30
"""Until then all are done. What waits for its key is held up by its limit, so nothing is said about less."""
CHOSEN = {
    "worker_stopped", "mover_killed", "redis_killed_everysec", "replies_lost", "sentinel_failover", "cluster_failover",
    "slot_migrated", "clock_ahead", "clock_back", "memory_full", "groups_destroyed",
}  # fmt: skip
ROWS = [
    pytest.param(fault, binary, id=f"{fault.name}-{binary.name}")
    for fault in FAULTS
    if fault.name in CHOSEN
    for binary in BINARIES
]


class WithKeys:
    """A producer whose jobs have keys."""

    def __init__(self, url: str) -> None:
        self._queue = Queue(url)

    def __enter__(self) -> Put:
        return self._put

    def _put(self, id: str, work: Work, delay_s: float) -> float:
        return self._queue.enqueue(TOPIC, asdict(work), id=id, delay=delay_s, key=key_of(id)).due_ms

    def __exit__(self, *_: object) -> None:
        self._queue.close()


def key_of(id: str) -> str:
    return f"key-{random.Random(id).randrange(KEYS)}"


def overlaps(attempts: dict[str, list[Attempt]]) -> list[tuple[str, str]]:
    """Jobs of one key that ran at the same time. An attempt that was followed by another one before its end does not
    count: it had lost its claim, and the key went on without it.
    """
    spans = defaultdict(list)
    for id, every in attempts.items():
        if id.startswith("burst"):
            continue
        for attempt, after in zip(every, [*every[1:], None], strict=True):
            if after is None or attempt.ended <= after.begun:
                spans[key_of(id)].append((attempt.begun, attempt.ended, id))
    found = []
    for each in spans.values():
        each.sort()
        found += [(a[2], b[2]) for a, b in pairwise(each) if b[0] < a[1] and a[2] != b[2]]
    return found


@pytest.mark.chaos
@pytest.mark.parametrize(("fault", "binary"), ROWS or [needs_server])
def test_a_fault_under_a_load_with_keys(fault: Fault, binary: Binary, tmp_path: Path) -> None:
    if why := fault.needs(binary):
        pytest.skip(why)
    limited = fault.topic | LIMITS
    has_keys = replace(fault, producer=lambda scene: WithKeys(scene.place.url), topic=limited, within_s=ENDED_S)
    row = tried(has_keys, binary, tmp_path)
    assert broken(row) == []
    attempts = attempts_of(Journal(tmp_path / "journal").lines())
    assert sum(len(every) for id, every in attempts.items() if not id.startswith("burst")) > KEYS
    assert overlaps(attempts) == []


def test_the_names_are_those_of_faults() -> None:
    assert {fault.name for fault in FAULTS} >= CHOSEN
