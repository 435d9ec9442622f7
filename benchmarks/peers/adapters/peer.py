"""What every adapter in Python shares. It runs in the environment of its queue, so it imports nothing but the standard
library, and uvloop where that is installed.

    PROGRAM produce URL     reads orders from standard input, one line of JSON each, and answers each with one line
    PROGRAM work URL LOG WORK_S CRASH     works until it is killed

A worker appends a line to its log for each job that it runs: number, due time and the time now in ns. A job that takes
WORK_S is logged at its end.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import sys
import time

BODY_BYTES = 165
BATCH = 500
MS = 1_000_000
FLOWS = os.environ.get("PEER_FLOWS") == "1"  # jobs wait for others, or have results


def body(number: int, due_ns: int) -> dict:
    """Its JSON has exactly 165 bytes."""
    plain = {"n": number, "due": due_ns, "pad": ""}
    return {**plain, "pad": "x" * (BODY_BYTES - len(dumped(plain)))}


def dumped(job: dict) -> str:
    return json.dumps(job, separators=(",", ":"))


def now_ms() -> int:
    return time.time_ns() // MS


def delay_ms(due_ns: int) -> int:
    """From now until then, and never less: for queues that take no moment but a delay."""
    return max(0, -((time.time_ns() - due_ns) // MS))


class Log:
    """Keeps what a worker did. One write for each job, which outlives the process."""

    def __init__(self, path: str, work_s: float) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.work_s = work_s

    def note(self, job: dict) -> None:
        """The first thing that a handler does, or the last if the job takes time."""
        if self.work_s:
            time.sleep(self.work_s)
        self.ended(job)

    async def note_async(self, job: dict) -> None:
        """As ``note``, in a handler that is a coroutine."""
        if self.work_s:
            await asyncio.sleep(self.work_s)
        self.ended(job)

    def ended(self, job: dict) -> None:
        os.write(self._file, b"%d %d %d\n" % (job["n"], job["due"], time.time_ns()))


def ready() -> None:
    """Tells the driver that the worker serves."""
    print("ready", flush=True)


class Producer:
    """Subclasses enqueue: ``one(job, due_ns)``, where None is at once, and ``bulk(jobs, dues)`` or the reason why there
    is none. ``flow(jobs, last)``: enqueues jobs and one after all of them; ``result(job)``: enqueues one and waits for
    its result; or the reason why there is none. All may be coroutine functions; so may ``start``. ``version``: of the
    queue.
    """

    version = ""
    bulk: object = "it enqueues one job in a call"
    flow: object = "no job can wait for others"
    result: object = "its producer can't wait for a result"

    def __init__(self, url: str) -> None:
        self.url = url

    def start(self) -> object:
        """Called once, in the event loop."""

    def one(self, job: dict, due_ns: int | None) -> object:
        raise NotImplementedError

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        await _awaited(self.start())
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(await self._carry_out(json.loads(line))), flush=True)

    async def _carry_out(self, order: dict) -> dict:
        do = order.pop("do")
        if do == "about":
            optional = {"no_bulk": self.bulk, "no_flow": self.flow, "no_result": self.result}
            why_not = {name: one if isinstance(one, str) else "" for name, one in optional.items()}
            return {"version": self.version, **why_not}
        carry_out = {
            "trickle": self._trickle,
            "bulk": self._bulk,
            "one": self._one,
            "flow": self._flow,
            "results": self._results,
        }[do]
        return {"seconds": await carry_out(**order)}

    async def _one(self, **order: object) -> float:
        jobs = _jobs(**order)
        began = time.perf_counter()
        for job, due_ns in jobs:
            await _awaited(self.one(job, due_ns))
        return time.perf_counter() - began

    async def _bulk(self, **order: object) -> float:
        jobs = _jobs(**order)
        began = time.perf_counter()
        for start in range(0, len(jobs), BATCH):
            batch = jobs[start : start + BATCH]
            await _awaited(self.bulk([job for job, _ in batch], [due_ns for _, due_ns in batch]))
        return time.perf_counter() - began

    async def _flow(self, first: int, count: int) -> float:
        jobs = [job for job, _ in _jobs(first, count + 1)]
        began = time.perf_counter()
        await _awaited(self.flow(jobs[:-1], jobs[-1]))
        return time.perf_counter() - began

    async def _results(self, first: int, count: int) -> float:
        jobs = [job for job, _ in _jobs(first, count)]
        began = time.perf_counter()
        for job in jobs:
            await _awaited(self.result(job))
        return time.perf_counter() - began

    async def _trickle(self, first: int, count: int, between_s: list, per_second: float) -> float:
        """One after the other, at an even pace."""
        chance = random.Random(1)
        began = time.perf_counter()
        for i in range(count):
            await asyncio.sleep(max(0.0, began + i / per_second - time.perf_counter()))
            due_ns = (now_ms() + round(chance.uniform(*between_s) * 1000)) * MS
            await _awaited(self.one(body(first + i, due_ns), due_ns))
        return time.perf_counter() - began


async def _awaited(found: object) -> None:
    if found is not None and inspect.isawaitable(found):
        await found


def _jobs(first: int, count: int, due_ns: int = 0, between_s: list | None = None) -> list:
    """Jobs with their due times: none, all the same, or spread over a time. They are whole milliseconds: what most
    queues take. They are made before the clock runs.
    """
    now = now_ms()
    if between_s:
        least, most = (round(s * 1000) for s in between_s)
        dues = [(now + least + number * 7919 % (most - least)) * MS for number in range(first, first + count)]
        return [(body(first + i, due), due) for i, due in enumerate(dues)]
    return [(body(number, due_ns or now * MS), due_ns or None) for number in range(first, first + count)]


def loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(producer: object, work: object) -> None:
    """The program. ``producer(url)`` makes a Producer; ``work(url, log, crash)`` serves until it is killed. It may be a
    coroutine function.
    """
    role, url, *rest = sys.argv[1:]
    if role == "produce":
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(producer(url).serve())
        return
    log, work_s, crash = rest
    found = work(url, Log(log, float(work_s)), crash == "1")
    if inspect.isawaitable(found):
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(found)
