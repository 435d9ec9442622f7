"""Worker processes for these tests: `python -m tests.crash.workers URL JOURNAL OPTIONS`, OPTIONS being JSON.

A job's body says what its handler does (`Work`); each handler call writes to the journal, a file that survives every
kill, when it starts and how it ends. So attempts, duplicates and losses can be counted exactly.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import structlog

from streamdq import Bury, Job, NewJob, RunningJob, Snooze, Worker


@dataclass(frozen=True)
class Work:
    """A job's body: what happens in its handler, after `ms`."""

    ms: int = 0
    fail: int = 0  # how many of its first attempts raise
    bury: bool = False
    block: int = 0  # blocks its event loop for so many ms
    die: bool = False  # kills its process at once
    stop: int = 0  # stops this process until SIGCONT, if it is the one that runs it
    adds: int = 0  # so many jobs to its flow, which the flow's join waits for
    company: int = 0  # put off, and not counted, while it is alone in this process: no other waits for a slot


@dataclass(frozen=True)
class Options:
    """One worker process."""

    topics: Sequence[str] = ("work",)
    group: str = "default"
    concurrency: int = 20
    threads: bool = False
    ttr: str = "1s"  # "": the topic's
    retry: str = "0"


class Writer:
    """Appends lines to the journal; one write each, so that those of several processes don't mix. Their times are those
    of the test, also where this process has another clock: the clock that counts from the machine's start is the same.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._started_at = float(os.environ["JOURNAL_STARTED_AT"])

    def write(self, what: str, job: Job) -> None:
        at = self._started_at + time.monotonic()
        line = [what, job.topic, job.id, job.attempt, os.getpid(), at]
        os.write(self._file, (json.dumps(line) + "\n").encode())


def signal_itself(work: Work) -> None:
    if work.die:
        os.kill(os.getpid(), signal.SIGKILL)
    if work.stop == os.getpid():
        os.kill(work.stop, signal.SIGSTOP)


def act(work: Work, job: Job) -> None:
    if job.attempt <= work.fail:
        raise ValueError("as told")
    if work.bury:
        raise Bury("as told")


async def add(work: Work, job: RunningJob) -> None:
    if work.adds:
        jobs = [NewJob(asdict(Work()), id=f"{job.id}-{n}") for n in range(work.adds)]
        await job.async_flow.enqueue_many(job.topic, jobs, before=("join", f"{job.id.rpartition('-')[0]}-join"))


async def sleep(work: Work) -> None:
    if work.block:
        time.sleep(work.block / 1000)  # noqa: ASYNC251  # real time: as told
    await asyncio.sleep(work.ms / 1000)  # real time: as told


def make(url: str, writer: Writer, options: Options) -> Worker:
    """The worker, with one handler for all its topics."""
    worker = Worker(url, group=options.group, concurrency=options.concurrency)

    def started(work: Work, job: Job) -> None:
        if work.company == os.getpid() and worker._run is not None and not worker._run._slots.is_any_waiting:
            raise Snooze("1ms")
        writer.write("start", job)
        signal_itself(work)

    async def handle(work: Work, job: RunningJob) -> None:
        started(work, job)
        try:
            await sleep(work)  # real time: as told
            act(work, job)
            await add(work, job)
        except asyncio.CancelledError:
            writer.write("cancelled", job)
            raise
        except Exception:
            writer.write("raised", job)
            raise
        writer.write("end", job)

    def handle_in_thread(work: Work, job: Job) -> None:
        started(work, job)
        time.sleep(work.ms / 1000)  # real time: as told
        try:
            act(work, job)
        except Exception:
            writer.write("raised", job)
            raise
        writer.write("end", job)

    for topic in options.topics:
        register = worker.handler(topic, ttr=options.ttr or None, retry=options.retry)
        register(handle_in_thread if options.threads else handle)
    return worker


def end_with_test() -> None:
    """Ends this process when the test's process, which holds the other end of stdin, is killed."""

    def watch() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def work(url: str, journal: str, options: Options) -> None:
    end_with_test()
    make(url, Writer(journal), options).run()


def main(url: str, journal: str, text: str) -> int:
    structlog.configure(processors=[structlog.processors.LogfmtRenderer(bool_as_flag=False)])
    work(url, journal, Options(**json.loads(text)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
