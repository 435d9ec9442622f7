"""What every adapter in Python shares. It runs in the environment of its queue, so it imports nothing but the standard
library.

    PROGRAM produce URL     reads orders from standard input, one line of JSON each, and answers each with one line
    PROGRAM work URL LOG WORK_S CRASH     works until it is killed

A worker appends a line to its log for each job that it runs: number, due time and the time now in ns. A job that takes
WORK_S is logged at its end.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time

BODY_BYTES = 165


def body(number: int, due_ns: int) -> dict:
    """Its JSON has exactly 165 bytes."""
    plain = {"n": number, "due": due_ns, "pad": ""}
    return {**plain, "pad": "x" * (BODY_BYTES - len(json.dumps(plain, separators=(",", ":"))))}


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

    def ended(self, job: dict) -> None:
        os.write(self._file, b"%d %d %d\n" % (job["n"], job["due"], time.time_ns()))


def ready() -> None:
    """Tells the driver that the worker serves."""
    print("ready", flush=True)


class Producer:
    """Subclasses enqueue. ``version``: of the queue. ``bulk`` None: it has no way to enqueue several jobs in a call."""

    version = ""
    bulk = None

    def one(self, job: dict, delay_s: float) -> None:
        raise NotImplementedError

    def _carry_out(self, order: dict) -> dict:
        if order["do"] == "about":
            return {"version": self.version, "bulk": self.bulk is not None}
        first, count, delay_s, due_ns = (order[name] for name in ("first", "count", "delay_s", "due_ns"))
        began = time.time_ns()
        if order["do"] == "trickle":
            self._trickle(first, count, delay_s, order["per_second"])
        elif order["do"] == "bulk":
            for start in range(first, first + count, 500):
                numbers = range(start, min(start + 500, first + count))
                left_s = _left_s(delay_s, due_ns)
                self.bulk([body(number, due_ns or began + int(delay_s * 1e9)) for number in numbers], left_s)
        else:
            for number in range(first, first + count):
                self.one(body(number, due_ns or began + int(delay_s * 1e9)), _left_s(delay_s, due_ns))
        return {"seconds": (time.time_ns() - began) / 1e9}

    def _trickle(self, first: int, count: int, delay_s: float, per_second: float) -> None:
        began = time.monotonic()
        for i in range(count):
            time.sleep(max(0.0, began + i / per_second - time.monotonic()))
            # Taken after the delay is known to begin: what starts before it is early.
            self.one(body(first + i, time.time_ns() + int(delay_s * 1e9)), delay_s)

    def serve(self) -> None:
        for line in sys.stdin:
            print(json.dumps(self._carry_out(json.loads(line))), flush=True)


def _left_s(delay_s: float, due_ns: int) -> float:
    """In whole milliseconds, rounded up: what most queues take."""
    return delay_s if not due_ns else max(0, math.ceil((due_ns - time.time_ns()) / 1e6)) / 1000


def run(producer: object, work: object) -> None:
    """The program. ``producer(url)`` makes a Producer; ``work(url, log, crash)`` serves until it is killed."""
    role, url, *rest = sys.argv[1:]
    if role == "produce":
        producer(url).serve()
    else:
        log, work_s, crash = rest
        work(url, Log(log, float(work_s)), crash == "1")
