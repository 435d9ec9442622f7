"""Starts servers, producers and workers, and carries the workloads out. It judges what a peer has done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from streamdq.embedded.binary import ServerBinary

from .judge import Delivery, Ran, lateness_ms, per_second, rows
from .servers import SERVERS, Server, until
from .setup import Peer

HOURS_S = (3600.0, 7200.0)
DELAYS_S = (0.5, 5.0)
_READY_S, _ANSWER_S, _LOOK_S = 30.0, 300.0, 0.1
_PATIENCE_S = 20.0  # with jobs that should come at once
TAKEN_OVER_S = 120.0  # with those of a dead worker
_QUIET_S = 1.0  # for jobs that come twice
WORK_S = 0.05
_FIRST = -1  # the number of the job that shows that a worker serves

Measured = dict[str, Any]


class PeerProcess:
    """A process of a peer's adapter, with those that it starts itself."""

    def __init__(self, peer: Peer, errors: Path, *words: str, flows: bool = False) -> None:
        self._errors = errors
        with errors.open("ab") as file:
            self._process = subprocess.Popen(
                [*peer.command(), *words], env=peer.environment(flows), text=True, start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, encoding="utf-8"
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self, within_s: float) -> str:
        """The next one that it prints.

        Raises:
            RuntimeError: it has ended, or was killed because it took longer.
        """
        assert self._process.stdout is not None
        timer = threading.Timer(within_s, self._kill_all)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            raise RuntimeError(self._ended())
        return line

    def order(self, order: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self.line(_ANSWER_S))
        return found

    def must_live(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(self._ended())

    def error_text(self) -> str:
        """The end of what it wrote to standard error."""
        return self._errors.read_text(errors="replace", encoding="utf-8")[-800:].strip()

    def _ended(self) -> str:
        return f"its process ended with {self._process.wait()}: {self.error_text()}"

    def _kill_all(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        self._kill_all()
        with suppress(BrokenPipeError), self._process:  # closes its pipes
            pass


class Producer:
    """A peer's process that enqueues."""

    def __init__(self, process: PeerProcess) -> None:
        self._process = process
        self.about = process.order({"do": "about"})

    @property
    def pid(self) -> int:
        return self._process.pid

    def enqueue(self, count: int, how: str, *, first: int = 0, due_ns: int = 0, hours: bool = False) -> float:
        """Returns the seconds that it took. ``how``: one, or bulk if it can. The jobs are due in one to two hours, at
        ``due_ns``, or at once.
        """
        how = "one" if self.about["no_bulk"] else how
        when = {"between_s": HOURS_S} if hours else {"due_ns": due_ns}
        return float(self._process.order({"do": how, "first": first, "count": count, **when})["seconds"])

    def flow(self, count: int, first: int = 0) -> float:
        """Enqueues ``count`` jobs, numbered from ``first`` on, and one after all of them, with the next number. Returns
        the seconds that it took.
        """
        return float(self._process.order({"do": "flow", "first": first, "count": count})["seconds"])

    def results(self, count: int) -> float:
        """Enqueues jobs one by one, and waits for the result of each. Returns the seconds that it took."""
        return float(self._process.order({"do": "results", "first": 0, "count": count})["seconds"])

    def trickle(self, count: int, per_second: float) -> None:
        self._process.order(
            {"do": "trickle", "first": 0, "count": count, "between_s": DELAYS_S, "per_second": per_second}
        )


class Worker:
    """A peer's one worker process. What it did is in a log, to which the one after it appends."""

    def __init__(self, process: PeerProcess, log: Path) -> None:
        self._process, self._log = process, log
        if process.line(_READY_S) != "ready\n":
            raise RuntimeError("the worker said something else than ready")

    def all_ran(self) -> list[Ran]:
        return rows(self._log)

    def ran(self) -> list[Ran]:
        """Without the first job, which is none of the workload's."""
        return [row for row in rows(self._log) if row.number != _FIRST]

    def wait_for_half(self, count: int) -> None:
        until(lambda: self._numbers() >= count // 2, "half of the jobs ran", _ANSWER_S)

    def wait_for(self, count: int, patience_s: float = _PATIENCE_S) -> list[Ran]:
        """Waits until so many different jobs have run, or none has for ``patience_s``, and then a while for what comes
        twice. What is missing is counted.
        """
        seen, since = -1, time.monotonic()
        while (found := self._numbers()) < count and time.monotonic() < since + patience_s:
            if found > seen:
                seen, since = found, time.monotonic()
            self._process.must_live()
            time.sleep(_LOOK_S)
        time.sleep(_QUIET_S)
        self._process.must_live()
        if not found:
            raise RuntimeError(f"no job ran within {patience_s:g} s: {self._process.error_text()}")
        return self.ran()

    def _numbers(self) -> int:
        return len({row.number for row in self.ran()})

    def kill(self) -> None:
        self._process.kill()


def _keep_on(core: int, pid: int) -> None:
    """Keeps a process and its children on one core. The system puts two processes that call each other now on one core,
    now on two, which takes half of the time or twice as long, for any queue.
    """
    process = psutil.Process(pid)
    for one in (process, *process.children(recursive=True)):
        for thread in one.threads():
            os.sched_setaffinity(thread.id, {core})  # Linux's


class Bench:
    """One run of one workload of one peer, with a server of its own. ``scale``: 1 is what docs/comparison.md tells."""

    def __init__(self, peer: Peer, binary: ServerBinary, scale: float = 1.0) -> None:
        self.server_name = peer.server
        self._peer = peer
        self._binary = binary
        self._scale = scale

    def jobs(self, count: int) -> int:
        return max(20, int(count * self._scale))

    def many_jobs(self) -> int:
        return self.jobs(self._peer.most)

    @contextmanager
    def started(self, flows: bool = False) -> Iterator[tuple[Server, Producer, Callable[..., Worker]]]:
        """``flows``: jobs wait for others or have results, and Redis appends to a log."""
        with ExitStack() as stack:
            server = stack.enter_context(SERVERS[self._peer.server](self._binary, flows))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamdq-peers-")))

            def process(*words: str) -> PeerProcess:
                started = PeerProcess(self._peer, folder / "errors", *words, flows=flows)
                stack.callback(started.kill)
                return started

            def worker(work_s: float = 0.0, crash: bool = False) -> Worker:
                words = ("work", server.url, str(folder / "log"), str(work_s), str(int(crash)))
                return Worker(process(*words), folder / "log")

            yield server, Producer(process("produce", server.url)), worker

    def version(self) -> str:
        with self.started() as (_, producer, _):
            return str(producer.about["version"])

    # -- the workloads

    def one_by_one(self) -> Measured:
        """Server and producer are kept on a core each, and then both on one."""
        count, cores = self.jobs(2_000), sorted(os.sched_getaffinity(0))
        with self.started() as (server, producer, _):
            producer.enqueue(100, "one", hours=True)
            _keep_on(cores[-1], producer.pid)
            found = {}
            for figure, core, first in (("per_second", cores[0], 100), ("together_per_second", cores[-1], 100 + count)):
                _keep_on(core, server.pid)
                found[figure] = count / producer.enqueue(count, "one", first=first, hours=True)
            return found

    def bulk(self) -> Measured:
        count = self.jobs(20_000)
        with self.started() as (_, producer, _):
            if producer.about["no_bulk"]:
                return {"none": producer.about["no_bulk"]}
            producer.enqueue(500, "bulk", hours=True)
            return {"per_second": count / producer.enqueue(count, "bulk", first=500, hours=True)}

    def drain(self) -> Measured:
        count = self.many_jobs()
        with self.started() as (_, producer, start):
            producer.enqueue(count, "bulk")
            ran = start().wait_for(count)
        return {"per_second": per_second(ran), **asdict(Delivery.of(ran, count))}

    def stampede(self) -> Measured:
        """All jobs are due in the same millisecond, long after they were enqueued."""
        count = self.many_jobs()
        with self.started() as (_, producer, start):
            probe = min(count, 500)
            took_s = producer.enqueue(probe, "bulk", first=count, hours=True) / probe * count
            due_ns = (time.time_ns() // 1_000_000_000 + int(2 * took_s) + 8) * 1_000_000_000
            worker = self.serving(producer, start)
            producer.enqueue(count, "bulk", due_ns=due_ns)
            if time.time_ns() > due_ns:
                raise RuntimeError("enqueueing took longer than was planned for")
            time.sleep(max(0, due_ns - time.time_ns()) / 1e9)
            return self._punctuality(worker.wait_for(count), count)

    def serving(self, producer: Producer, start: Callable[..., Worker]) -> Worker:
        """A worker that has done a first job."""
        worker = start()
        producer.enqueue(1, "one", first=_FIRST)
        until(lambda: bool(worker.all_ran()), "the first job ran", 2 * _READY_S)
        return worker

    def _punctuality(self, ran: list[Ran], count: int) -> Measured:
        late = {f"{name}_ms": lateness_ms(ran, percent) for name, percent in _LATENESS.items()}
        return {**late, **asdict(Delivery.of(ran, count))}

    def trickle(self) -> Measured:
        """200 jobs a second with delays of 0.5 to 5 s."""
        count = self.jobs(4_000)
        with self.started() as (_, producer, start):
            worker = self.serving(producer, start)
            producer.trickle(count, 200.0)
            return self._punctuality(worker.wait_for(count), count)

    def idle(self) -> Measured:
        """A worker waits, and a job that is due in an hour."""
        with self.started() as (server, producer, start):
            if server.commands() is None:
                return {"none": "its workers wait in a call, or get jobs without asking"}
            self.serving(producer, start)
            producer.enqueue(1, "one", hours=True)
            time.sleep(5.0)
            seconds = max(2.0, 20.0 * self._scale)
            before = server.commands() or 0
            time.sleep(seconds)
            return {"per_second": ((server.commands() or 0) - before) / seconds}

    def memory(self) -> Measured:
        count = self.jobs(20_000)
        with self.started() as (server, producer, _):
            producer.enqueue(100, "bulk", hours=True)
            before = server.memory_bytes()
            producer.enqueue(count, "bulk", first=100, hours=True)
            return {"bytes": (server.memory_bytes() - before) / count}

    def crash(self) -> Measured:
        """A worker with 20 handlers of 50 ms is killed half way, and another one is started at once."""
        count = max(200, self.jobs(1_000))
        with self.started() as (_, producer, start):
            producer.enqueue(count, "bulk")
            worker = start(WORK_S, crash=True)
            worker.wait_for_half(count)
            worker.kill()
            killed_ns = time.time_ns()
            another = start(WORK_S, crash=True)
            ran = another.wait_for(count, TAKEN_OVER_S)
        first_ends = {row.number: row.at_ns for row in reversed(ran)}
        took_s = (max(killed_ns, *first_ends.values()) - killed_ns) / 1e9
        return {"seconds": took_s, **asdict(Delivery.of(ran, count))}


_LATENESS = {"first": 0, "p50": 50, "p99": 99, "last": 100}

WORKLOADS: dict[str, Callable[[Bench], Measured]] = {
    "one": Bench.one_by_one,
    "bulk": Bench.bulk,
    "drain": Bench.drain,
    "stampede": Bench.stampede,
    "trickle": Bench.trickle,
    "idle": Bench.idle,
    "memory": Bench.memory,
    "crash": Bench.crash,
}
