"""Worker processes: this module started as a program, and a workload's handle of one.

A process imports everything, says so, and starts to serve when it is told to; so its start is not part of any figure.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from streamdq import Attempt, Job, Worker
from streamdq.worker.middleware import CallNext

from .harness import GROUP, NAMESPACE, TOPIC, Order
from .timers import measure, run

_ROOT = Path(__file__).parent.parent
_STOP_S = 15.0
LOADED = "loaded"


class WorkerProcess:
    """One worker process, ready to serve."""

    def __init__(self, url: str, role: str, log: Path, *options: object) -> None:
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.workers", url, role, str(log), *map(str, options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT, encoding="utf-8"
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        """CPU time that it has used so far."""
        used = psutil.Process(self.pid).cpu_times()
        return float(used.user + used.system)

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"worker process ended at its start: exit code {self._process.wait()}")

    def serve(self) -> None:
        """Lets it start to serve."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """Sends SIGTERM: it drains, writes its log, and ends. If others were so quick that it had not begun to serve,
        the signal ends it at once.
        """
        self._process.terminate()
        if self._process.wait(_STOP_S) not in (0, -signal.SIGTERM):
            raise RuntimeError(f"worker process ended with exit code {self._process.returncode}")

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def join(self) -> None:
        """Waits until it ends by itself."""
        if self._process.wait(_STOP_S * 4) != 0:
            raise RuntimeError(f"process ended with exit code {self._process.returncode}")

    def lines(self) -> list[Any]:
        """The lines that it has logged, without one that it was writing when it was killed."""
        if not self._log.exists():
            return []
        text = self._log.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def close(self) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def processes(url: str, role: str, count: int, *options: object) -> Iterator[list[WorkerProcess]]:
    """This many worker processes, ready; those that still run at the end are killed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamdq-bench-")))
        started = []
        for number in range(count):
            started.append(WorkerProcess(url, role, folder / f"{number}.log", *options))
            stack.callback(started[-1].close)
        for process in started:
            process.wait_ready()
        yield started


# -- in the process


def _noop(worker: Worker, _log: Path) -> None:
    """A handler that does nothing with its body, which pydantic has validated."""

    @worker.handler(TOPIC)
    async def close(_order: Order) -> None:
        return None

    worker.run()


def _around(worker: Worker, log: Path, count: str) -> None:
    """The same, with so many functions around each attempt that do nothing either."""

    async def passes(_attempt: Attempt, call_next: CallNext) -> None:
        await call_next()

    for _ in range(int(count)):
        worker.middleware(passes)
    _noop(worker, log)


def _stamp(worker: Worker, log: Path) -> None:
    """A handler that records when each attempt began. Redis runs on this machine, so the system's clock is Redis's own,
    with a finer resolution than Redis's milliseconds.
    """
    stamps: list[tuple[int, int]] = []

    @worker.handler(TOPIC)
    async def close(_order: Order, job: Job) -> None:
        stamps.append((job.due_ms, time.time_ns()))

    worker.run()
    log.write_text("".join(f"{json.dumps(stamp)}\n" for stamp in stamps), encoding="utf-8")


def _answering(worker: Worker, _log: Path) -> None:
    """Two handlers that answer: one returns what is kept, the other one pushes it to a list."""
    import redis.asyncio

    from .results import KEPT, PUSHED, REPLY

    @worker.on_startup
    async def connect() -> None:
        worker.state = redis.asyncio.Redis.from_url(worker.url or "")

    @worker.on_shutdown
    async def disconnect() -> None:
        await worker.state.aclose()

    @worker.handler(KEPT, result="10m")
    async def returns(order: Order) -> dict[str, int]:
        return {"order_id": order.order_id}

    @worker.handler(PUSHED)
    async def pushes(order: Order, job: Job) -> None:
        await worker.state.lpush(f"{REPLY}{job.id}", json.dumps({"order_id": order.order_id}))

    worker.run()


def _mover(worker: Worker, _log: Path) -> None:
    """A process whose mover may be active; it works on no job of the topic."""

    @worker.handler("none")
    async def never(_order: Order) -> None: ...

    worker.run()


def _witness(worker: Worker, log: Path, ttr_s: str, work_s: str) -> None:
    """A handler that records each start and end at once, so that they are known even if the process is killed."""
    logging.getLogger("streamdq").setLevel(logging.ERROR)  # a take-over, which is a warning, is what is measured
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    seconds = float(work_s)

    @worker.handler(TOPIC, ttr=float(ttr_s))
    async def close(_order: Order, job: Job) -> None:
        os.write(file, f"{json.dumps(['start', job.id, time.time_ns()])}\n".encode())
        await asyncio.sleep(seconds)
        os.write(file, f"{json.dumps(['end', job.id, time.time_ns()])}\n".encode())

    worker.run()


def _herd(worker: Worker, log: Path, count: str) -> None:
    """Many workers in one process, each with connections of its own; they record at once when each attempt began."""
    logging.getLogger("streamdq").setLevel(logging.ERROR)  # that Redis is gone is no news here
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def close(_order: Order, job: Job) -> None:
        os.write(file, f"{json.dumps([job.due_ms, time.time_ns()])}\n".encode())

    workers = [Worker(worker.url, worker.namespace, GROUP, worker.concurrency) for _ in range(int(count))]
    for each in workers:
        each.handler(TOPIC)(close)

    def stop() -> None:
        for each in workers:
            each.stop()

    async def serve() -> None:
        serving = asyncio.gather(*(each.serve() for each in workers))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        await serving

    run(serve())


def _loaded(worker: Worker, _log: Path, topics: str) -> None:
    """Handlers that do what their bodies say: for each attempt, so many ms, and how it ends."""

    async def work(works: list[tuple[float, str]], job: Job) -> None:
        ms, end = works[min(job.attempt, len(works)) - 1]
        await asyncio.sleep(60 if end == "hang" else ms / 1000)
        if end == "fail":
            raise ConnectionError("as the body says")

    logging.getLogger("streamdq").setLevel(logging.CRITICAL)  # failures are the load
    for topic in topics.split(","):
        worker.handler(topic)(work)
    worker.run()


def _callback(url: str) -> None:
    """Runs a callback worker."""
    from streamdq.callback import CallbackSettings, CallbackWorker

    CallbackWorker(url, NAMESPACE, topics=[TOPIC], callback=CallbackSettings(allow=("127.0.0.1",))).run()


_ROLES: dict[str, Callable[..., None]] = {
    "noop": _noop, "around": _around, "stamp": _stamp, "witness": _witness, "herd": _herd, "mover": _mover,
    "answering": _answering,
    LOADED: _loaded,
}  # fmt: skip


def _main(url: str, role: str, log: str, *options: str) -> None:
    others: dict[str, Callable[[], None]] = {
        "timers": lambda: _timers(url, Path(log), *options),
        "callback": lambda: _callback(url),
        **dict.fromkeys(("receive", "silent", "post"), lambda: _http(url, role, Path(log), *options)),
    }
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # before the worker listens, it has nothing to drain
    print("ready", flush=True)
    sys.stdin.readline()
    if role in others:
        others[role]()
        return
    concurrency, *rest = options or ("100",)
    _ROLES[role](Worker(url, NAMESPACE, GROUP, int(concurrency)), Path(log), *rest)


def _http(url: str, role: str, log: Path, *options: str) -> None:
    """Runs a receiver or the bare client; only these processes load what they need."""
    from .receivers import post, receive

    if role == "post":
        post(url, log, int(options[0]), int(options[1]), options[2])
    else:
        receive(url, silent=role == "silent")


def _timers(url: str, log: Path, count: str, per_second: str) -> None:
    log.write_text(f"{json.dumps(measure(url, int(count), float(per_second)))}\n", encoding="utf-8")


if __name__ == "__main__":
    _main(*sys.argv[1:])
