"""Starts worker processes, ends them in every possible way, and reads from their journal what they did."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import psutil
import pytest
import redis

from streamdq import NewJob, Queue
from streamdq.keys import NamespaceKeys
from streamdq.operations.checks.audit import Audit
from streamdq.store.jobs.progress import Phase, progress_in
from tests.crash.workers import Options, Work
from tests.forked import ROOT, Forked
from tests.servers import Server
from tests.waiting import HANG_S, until

LEASE_S = 1.3
IN_TURNS = [pytest.mark.thorough]
"""Of most files here. Each change is tried with ``test_killed.py``."""
LONG_MS = 3_600_000
"""A handler that takes so long ends by something else."""


@dataclass(frozen=True)
class Line:
    """One line of the journal; `at` is this machine's time."""

    what: str  # start, and then end, raised or cancelled; or none of them
    topic: str
    id: str
    attempt: int
    pid: int
    at: float


class Journal:
    """What the handlers of all workers of a test did."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.touch()

    def lines(self, what: str | None = None, pid: int | None = None) -> list[Line]:
        text = self.path.read_text()
        every = (Line(*json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines())
        return [line for line in every if what in (None, line.what) and pid in (None, line.pid)]

    def of(self, id: str) -> list[Line]:
        return [line for line in self.lines() if line.id == id]

    def ids(self, what: str, pid: int | None = None) -> set[str]:
        return {line.id for line in self.lines(what, pid)}

    def count(self, what: str) -> Counter[str]:
        return Counter(line.id for line in self.lines(what))

    def running(self, pid: int) -> set[str]:
        """Jobs whose handlers the process was in when it wrote its last line."""
        open_ = Counter(line.id for line in self.lines("start", pid))
        open_.subtract(line.id for line in self.lines(pid=pid) if line.what != "start")
        return set(+open_)


class WorkerProcess:
    """One process; its output goes to a file that a failed test shows. With a ``program``, it is this one's process,
    which begins as any process does; without, it is forked from one that has imported everything.
    """

    def __init__(
        self, url: str, journal: Path, text: str, environment: dict[str, str], program: Sequence[str | Path] = ()
    ) -> None:
        self.text = text
        self.log = journal.with_name(f"worker-{time.monotonic_ns()}.log")
        arguments = (url, str(journal), text)
        with self.log.open("wb") as output:
            streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": output, "stderr": subprocess.STDOUT}
            rest: dict[str, Any] = {"cwd": ROOT, "env": {**os.environ, **environment}, "start_new_session": True}
            self._process: subprocess.Popen[Any] = (
                subprocess.Popen([*program, *arguments], **streams, **rest)
                if program
                else Forked("tests.crash.workers", *arguments, **streams, **rest)
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return self.log.read_text()

    @property
    def stopped(self) -> bool:
        """Whether it waits for SIGCONT."""
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> float:
        """-9, and until it is gone; returns when it was sent."""
        at = time.time()
        self._process.kill()
        self._process.wait()
        return at

    def wait(self, within_s: float = HANG_S) -> int:
        return self._process.wait(within_s)

    def close(self) -> None:
        # It may have children that it forked; all are in a session of their own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


class Host(Protocol):
    """Where jobs are kept: a server, a Cluster, or servers behind Sentinel."""

    @property
    def url(self) -> str: ...

    def client(self, **options: Any) -> Any: ...


class WorkerProcesses:
    """The workers of one test in one place, and the queue that feeds them. ``url``: how the workers get there."""

    def __init__(self, place: Host, directory: Path, url: str | None = None) -> None:
        self.place = place
        self.url = url or place.url
        self.journal = Journal(directory / "journal")
        self.queue = Queue(place.url)
        self.workers: list[WorkerProcess] = []

    @property
    def server(self) -> Server:
        """The place, if it is a single server."""
        assert isinstance(self.place, Server)
        return self.place

    def start(
        self,
        options: Options,
        grace_s: float = 10,
        lease_s: float = LEASE_S,
        call_timeout_s: float = 30,
        worker_timeout_s: float = 60,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str | Path] = (),
    ) -> WorkerProcess:
        """``environment`` needs a ``program``."""
        variables = {
            "STREAMDQ_GRACE_S": str(grace_s),
            "STREAMDQ_LEASE_MS": str(int(lease_s * 1000)),
            "STREAMDQ_CALL_TIMEOUT_S": str(call_timeout_s),
            "STREAMDQ_WORKER_TIMEOUT_S": str(worker_timeout_s),
            "PYTHONUNBUFFERED": "1",
            "JOURNAL_STARTED_AT": str(time.time() - time.monotonic()),
            **(environment or {}),
        }
        worker = WorkerProcess(self.url, self.journal.path, json.dumps(asdict(options)), variables, program)
        self.workers.append(worker)
        return worker

    def serving(self, worker: WorkerProcess) -> WorkerProcess:
        until(lambda: "worker started" in worker.output, "the worker serves")
        return worker

    def fill(self, count: int, work: Work, topic: str = "work", **fields: Any) -> list[str]:
        """Enqueues jobs; their ids are their numbers."""
        ids = [f"{topic}-{number}" for number in range(count)]
        self.queue.enqueue_many(topic, (NewJob(body=asdict(work), id=id, **fields) for id in ids))
        return ids

    def put(self, id: str, work: Work, topic: str = "work", **fields: Any) -> str:
        self.queue.enqueue(topic, asdict(work), id=id, **fields)
        return id

    def started(self, id: str, attempts: int = 1, within_s: float = HANG_S) -> list[Line]:
        """Waits until a handler was called for the job ``attempts`` times; returns these calls."""
        until(lambda: self.journal.count("start")[id] >= attempts, f"start {attempts} of {id}", within_s)
        return [line for line in self.journal.of(id) if line.what == "start"]

    def emptied(self, within_s: float = HANG_S) -> Audit:
        """Waits until no job is left, and checks that every account balances."""
        until(lambda: not self.live(), "no job is left", within_s)
        audit = self.queue.audit()
        assert audit.balanced, audit
        return audit

    def live(self) -> int:
        stats = self.queue.stats()
        return stats.delayed + stats.ready + stats.running

    def held(self, topic: str = "work") -> dict[str, int]:
        """{job: pid of the process that has claimed it}, according to Redis."""
        claims = {}
        with self.place.client() as client:
            for field, value in client.hgetall(NamespaceKeys("streamdq").shard(topic, 0).progress).items():
                progress = progress_in(value)
                if progress.phase is Phase.RUNNING:
                    claims[field.decode().rpartition("\x1f")[2]] = int(progress.consumer.rsplit("-", 2)[1])
        return claims

    def leader(self) -> int | None:
        """The pid of the process whose mover is active."""
        with self.place.client(decode_responses=True) as client, contextlib.suppress(redis.ConnectionError):
            holder = client.get(NamespaceKeys("streamdq").mover)
            return int(holder.rsplit("-", 2)[1]) if holder else None
        return None

    def counts(self, topic: str = "work") -> Any:
        return self.queue.stats(topic).topics[topic].groups["default"]

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.queue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is not None:
            for worker in self.workers:
                print(f"--- worker {worker.pid}\n{worker.output[-4000:]}")  # noqa: T201


def half_way(processes: WorkerProcesses, jobs: int) -> None:
    until(lambda: len(processes.journal.ids("end")) >= jobs // 2, "half of the jobs are done")


def stop_at_work(processes: WorkerProcesses, worker: WorkerProcess) -> list[str]:
    """Has it stopped by one of its own handlers, and not between a claim and its start: it is to die there. Returns the
    ids of the jobs that were enqueued for that.
    """
    ids: list[str] = []

    def is_stopped() -> bool:
        if psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED:
            return True
        ids.append(processes.put(f"stop-{len(ids)}", Work(ms=10, stop=worker.pid)))
        return False

    until(is_stopped, "it runs one of these jobs")
    return ids


def left_in(server: Server, topic: str) -> dict[str, int]:
    """Data that a topic without live jobs must not have: {key: how much is in it}; empty if it is clean."""
    shard = NamespaceKeys("streamdq").shard(topic, 0)
    with server.client(decode_responses=True) as client:
        sizes = {
            shard.bucket: client.zcard(shard.bucket),
            shard.jobs: client.hlen(shard.jobs),
            shard.progress: client.hlen(shard.progress),
            shard.dead_of("default"): client.zcard(shard.dead_of("default")),
        }
        for stream in (shard.ready, shard.ready_of("default")):
            sizes[stream] = client.xlen(stream)
            sizes[f"{stream} pending"] = client.xpending(stream, "default")["pending"]
    return {key: size for key, size in sizes.items() if size}
