"""How late a worker's event loop is beside handlers that compute: in processes, and in threads."""

from __future__ import annotations

import asyncio
import time

from streamdq import ProcessPool, Queue, Worker

from .figures import Figure
from .harness import Bench

_TICK_S = 0.002
_MOST_LATE_MS = 20.0
_HANDLERS = 2


def compute(seconds: float) -> int:
    """In pure Python, which keeps the interpreter's lock."""
    until, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        count += sum(range(1000))
    return count


def processes(bench: Bench) -> list[Figure]:
    """The loop's lateness while two handlers compute all the time."""
    seconds = bench.seconds(10.0)
    with bench.server() as server:
        late = {
            "idle": asyncio.run(_lateness(server.url, seconds, process=False, load=False)),
            "processes": asyncio.run(_lateness(server.url, seconds, process=True, load=True)),
            "threads": asyncio.run(_lateness(server.url, seconds, process=False, load=True)),
        }
    found = {name: (_percentile(times, 99), max(times)) for name, times in late.items()}
    (idle, _), (p99, longest), (threads, longest_threads) = found["idle"], found["processes"], found["threads"]
    what = f"event loop, {_HANDLERS} handlers compute"
    return [
        Figure(
            "processes", f"{what} in processes: late, p99", p99, "ms", idle, "idle", at_most=_MOST_LATE_MS, raw=found
        ),
        Figure("processes", "  longest", longest, "ms"),
        Figure("processes", f"{what} in threads: late, p99", threads, "ms", idle, "idle"),
        Figure("processes", "  longest", longest_threads, "ms"),
    ]


async def _lateness(url: str, seconds: float, *, process: bool, load: bool) -> list[float]:
    """How many ms late the loop was at each tick."""
    worker = Worker(url, pool=ProcessPool(_HANDLERS))
    worker.handler("compute", process=process, ttr="10m")(compute)
    begun = asyncio.Event()
    worker.on_startup(begun.set)
    serving = asyncio.create_task(worker.serve())
    await begun.wait()
    late: list[float] = []
    with Queue(url) as queue:
        if load:
            for _ in range(_HANDLERS):
                await asyncio.to_thread(queue.enqueue, "compute", 3 * seconds)
            await asyncio.to_thread(_wait_until_all_run, queue)
        until = time.perf_counter() + seconds
        while (now := time.perf_counter()) < until:
            await asyncio.sleep(_TICK_S)
            late.append(1000 * max(0.0, time.perf_counter() - now - _TICK_S))
        worker.stop()
        await serving
        await asyncio.to_thread(queue.delete_topic, "compute", force=True)
    return late


def _wait_until_all_run(queue: Queue) -> None:
    while sum(group.running for group in queue.stats("compute").topics["compute"].groups.values()) < _HANDLERS:
        time.sleep(0.1)


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]
