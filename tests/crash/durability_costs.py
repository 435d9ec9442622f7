"""What each level of durability costs: the median of single calls, and the rate of batches.

    python -m tests.crash.durability_costs [--calls 500]

A primary with one replica and an append-only file, all on this machine. The levels take turns; `memory` is the floor.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable

from streamdq import NewJob, Queue
from streamdq.config import Settings
from tests.redis.replicated import replicated
from tests.servers import Binary, binaries, recent_binary

LEVELS = ("memory", "replicas:1", "disk")
SETTINGS = Settings(url="memory://unused")
BATCHES = 4
BATCH = 500


def timed_s(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measure(binary: Binary, fsync: str, calls: int) -> None:
    with (
        replicated(binary, appendonly=True, fsync=fsync) as servers,
        Queue(servers.primary.url, "costs", settings=SETTINGS) as queue,
    ):
        single: dict[str, list[float]] = defaultdict(list)
        rates: dict[str, list[float]] = defaultdict(list)
        # WAITAOF waits for the next write to disk, once a second; another server can't tell.
        slow = fsync == "everysec"
        levels = LEVELS if not slow or binary.version >= (8,) else LEVELS[:2]
        for level in levels:
            queue.enqueue("t", 0, delay="1h", durable=level)
        for _ in range(10):
            for level in levels:
                for _ in range(1 if slow and level == "disk" else calls // 10):
                    single[level].append(timed_s(lambda: queue.enqueue("t", 1, delay="1h", durable=level)))  # noqa: B023
        for _ in range(3):
            for level in levels:
                jobs = [NewJob(n, delay="1h") for n in range(BATCHES * BATCH)]
                took_s = timed_s(lambda: queue.enqueue_many("t", jobs, durable=level))  # noqa: B023
                rates[level].append(len(jobs) / took_s)
    for level in levels:
        p50_ms, p99_ms = (statistics.quantiles(single[level], n=100)[at] * 1000 for at in (49, 98))
        floor_ms = statistics.median(single["memory"]) * 1000
        sys.stdout.write(
            f"| {binary.name}, {fsync} | `{level}` | {p50_ms:.2f} ms ({p50_ms / floor_ms:.1f} ×) | {p99_ms:.1f} ms "
            f"| {statistics.median(rates[level]) / 1000:.1f} k/s |\n"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=500)
    given = parser.parse_args()
    sys.stdout.write(
        "| server, appendfsync | level | enqueue, p50 | p99 | enqueue_many |\n| --- | --- | --- | --- | --- |\n"
    )
    found = {binary.name: binary for binary in (recent_binary(), *binaries()) if binary}
    for binary in list(found.values())[:2]:
        for fsync in ("always", "everysec"):
            measure(binary, fsync, given.calls)
    return 0


if __name__ == "__main__":
    sys.exit(main())
