"""Starts servers, producers and workers, and carries the workloads out. Whatever is told of a peer is judged here."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import psutil

from benchmarks.server import RedisServer, free_port
from streamdq.embedded.binary import ServerBinary

from .judge import Delivery, Ran, lateness_ms, per_second, rows
from .setup import Peer

HOUR_S = 3600.0
_READY_S, _ALL_S, _LOOK_S = 30.0, 180.0, 0.02
_GIVEN_UP_S = 15.0
_WORK_S = 0.05

Measured = dict[str, Any]


class Server(Protocol):
    url: str

    def memory_bytes(self) -> int: ...

    def commands(self) -> int | None: ...


class Redis:
    """Redis without persistence."""

    def __init__(self, server: RedisServer) -> None:
        self.url, self._server = server.url, server

    def memory_bytes(self) -> int:
        return int(self._server.info("memory")["used_memory"])

    def commands(self) -> int | None:
        """Commands so far, those that scripts send among them, without the question for them."""
        stats = self._server.info("commandstats")
        return sum(int(row["calls"]) for name, row in stats.items() if "info" not in name)


class Beanstalkd:
    """A beanstalkd without a log on disk."""

    def __init__(self) -> None:
        port = free_port()
        self.url = f"beanstalk://127.0.0.1:{port}"
        self._process = psutil.Popen(["beanstalkd", "-l", "127.0.0.1", "-p", str(port)])
        until(lambda: _answers(port), "beanstalkd answers", _READY_S)

    def memory_bytes(self) -> int:
        return int(self._process.memory_info().rss)

    def commands(self) -> int | None:
        return None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def until(condition: Callable[[], bool], what: str, within_s: float) -> None:
    """Waits.

    Raises:
        TimeoutError
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:.0f} s: {what}")
        time.sleep(_LOOK_S)


class Producer:
    """A peer's process that enqueues."""

    def __init__(self, peer: Peer, url: str) -> None:
        command = [*peer.command(), "produce", url]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=peer.environment()
        )
        self.about = self._ask({"do": "about"})

    def _ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the producer ended: exit code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def enqueue(self, count: int, how: str, *, first: int = 0, delay_s: float = 0.0, due_ns: int = 0) -> float:
        """Returns the seconds that it took. ``how``: one, or bulk if it can."""
        how = how if self.about["bulk"] else "one"
        order = {"do": how, "first": first, "count": count, "delay_s": delay_s, "due_ns": due_ns}
        return float(self._ask(order)["seconds"])

    def trickle(self, count: int, per_second: float, delay_s: float) -> None:
        order = {"first": 0, "count": count, "delay_s": delay_s, "due_ns": 0, "per_second": per_second}
        self._ask({"do": "trickle", **order})

    def close(self) -> None:
        with self._process:  # closes its pipes
            self._process.kill()


class Worker:
    """A peer's one worker process, with those that it starts itself."""

    def __init__(self, peer: Peer, url: str, log: Path, work_s: float = 0.0, crash: bool = False) -> None:
        self.log = log
        command = [*peer.command(), "work", url, str(log), str(work_s), str(int(crash))]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=peer.environment(), start_new_session=True
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the worker ended: exit code {self._process.wait()}")

    def ran(self) -> list[Ran]:
        return rows(self.log)

    def wait_for(self, count: int, within_s: float = _ALL_S) -> list[Ran]:
        """Waits until so many jobs have run."""
        with suppress(TimeoutError):  # what is missing is counted
            until(lambda: _lines(self.log) >= count, "all jobs ran", within_s)
        return self.ran()

    def wait_until_nothing_comes(self, count: int) -> list[Ran]:
        """Waits until all jobs have run, or none has for a quarter of a minute: then what is missing is lost."""
        seen, since = 0, time.monotonic()
        while len({row.number for row in self.ran()}) < count and time.monotonic() < since + _GIVEN_UP_S:
            time.sleep(0.1)
            if (lines := _lines(self.log)) > seen:
                seen, since = lines, time.monotonic()
        return self.ran()

    def kill(self) -> None:
        with self._process, suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


class Bench:
    """One run of one workload of one peer, with a server of its own. ``scale``: 1 is what docs/benchmarks.md tells."""

    def __init__(self, peer: Peer, binary: ServerBinary, scale: float = 1.0) -> None:
        self._peer = peer
        self._binary = binary
        self._scale = scale

    def jobs(self, count: int) -> int:
        return max(20, int(count * self._scale))

    @contextmanager
    def _started(self) -> Iterator[tuple[Server, Producer, Callable[..., Worker]]]:
        with ExitStack() as stack:
            server: Server
            if self._peer.server == "beanstalkd":
                server = stack.enter_context(closing(Beanstalkd()))
            else:
                server = Redis(stack.enter_context(RedisServer(self._binary)))
            producer = stack.enter_context(closing(Producer(self._peer, server.url)))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamdq-peers-")))

            def worker(work_s: float = 0.0, crash: bool = False) -> Worker:
                started = Worker(self._peer, server.url, folder / "log", work_s, crash)
                stack.callback(started.kill)
                return started

            yield server, producer, worker

    def version(self) -> str:
        with self._started() as (_, producer, _):
            return str(producer.about["version"])

    # -- the workloads

    def one_by_one(self) -> Measured:
        count = self.jobs(2_000)
        with self._started() as (_, producer, _):
            producer.enqueue(100, "one", delay_s=HOUR_S)
            return {"per_second": count / producer.enqueue(count, "one", first=100, delay_s=HOUR_S)}

    def bulk(self) -> Measured:
        count = self.jobs(20_000)
        with self._started() as (_, producer, _):
            if not producer.about["bulk"]:
                return {"none": "it enqueues one job in a call"}
            producer.enqueue(500, "bulk", delay_s=HOUR_S)
            return {"per_second": count / producer.enqueue(count, "bulk", first=500, delay_s=HOUR_S)}

    def drain(self) -> Measured:
        count = self.jobs(20_000)
        with self._started() as (_, producer, start):
            producer.enqueue(count, "bulk")
            ran = start().wait_for(count)
        return {"per_second": per_second(ran), **asdict(Delivery.of(ran, count))}

    def stampede(self) -> Measured:
        """All jobs are due in the same millisecond, long after they were enqueued."""
        count = self.jobs(20_000)
        with self._started() as (_, producer, start):
            probe = min(count, 500)
            took_s = producer.enqueue(probe, "bulk", first=count, delay_s=HOUR_S) / probe * count
            due_ns = (time.time_ns() // 1_000_000_000 + int(2 * took_s) + 6) * 1_000_000_000
            worker = start()
            producer.enqueue(count, "bulk", due_ns=due_ns)
            if time.time_ns() > due_ns:
                raise RuntimeError("enqueueing took longer than was planned for")
            ran = worker.wait_for(count, (due_ns - time.time_ns()) / 1e9 + _ALL_S)
        return {
            "first_ms": lateness_ms(ran, 0), "p99_ms": lateness_ms(ran, 99), **asdict(Delivery.of(ran, count))
        }  # fmt: skip

    def trickle(self) -> Measured:
        """200 jobs a second, each due after a second."""
        count = self.jobs(2_000)
        with self._started() as (_, producer, start):
            worker = start()
            producer.trickle(count, 200.0, 1.0)
            ran = worker.wait_for(count)
        return {
            "p50_ms": lateness_ms(ran, 50), "p99_ms": lateness_ms(ran, 99), **asdict(Delivery.of(ran, count))
        }  # fmt: skip

    def idle(self) -> Measured:
        """A worker waits, and a job that is due in an hour."""
        with self._started() as (server, producer, start):
            before = server.commands()
            if before is None:
                return {"none": "its workers wait in a call"}
            producer.enqueue(1, "one", delay_s=HOUR_S)
            start()
            time.sleep(5.0)
            seconds = max(2.0, 20.0 * self._scale)
            before = server.commands() or 0
            time.sleep(seconds)
            return {"per_second": ((server.commands() or 0) - before) / seconds}

    def memory(self) -> Measured:
        count = self.jobs(20_000)
        with self._started() as (server, producer, _):
            producer.enqueue(100, "bulk", delay_s=HOUR_S)
            before = server.memory_bytes()
            producer.enqueue(count, "bulk", first=100, delay_s=HOUR_S)
            return {"bytes": (server.memory_bytes() - before) / count}

    def crash(self) -> Measured:
        """A worker with 20 handlers of 50 ms is killed half way, and another one is started at once."""
        count = self.jobs(1_000)
        with self._started() as (_, producer, start):
            producer.enqueue(count, "bulk")
            worker = start(_WORK_S, crash=True)
            worker.wait_for(count // 2)
            worker.kill()
            killed_ns = time.time_ns()
            another = start(_WORK_S, crash=True)
            ran = another.wait_until_nothing_comes(count)
        first_ends = {row.number: row.at_ns for row in reversed(ran)}
        took_s = (max(killed_ns, *first_ends.values()) - killed_ns) / 1e9
        return {"seconds": took_s, **asdict(Delivery.of(ran, count))}


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
