"""Worker processes for these tests: `python -m tests.crash.workers URL JOURNAL OPTIONS`, OPTIONS being JSON.

A job's body says what its handler does (`Work`); each handler call writes to the journal, a file that survives every
kill, when it starts and how it ends. So attempts, duplicates and losses can be counted exactly. A list of OPTIONS
makes a process for each of them.
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
from typing import Any

import structlog

from streamdq import Bury, Job, Snooze, Worker
from streamdq.link.command import Command
from streamdq.link.connection import AsyncLink
from streamdq.mover import reclaim as reclaim_module
from streamdq.store.assembly import load_script

FAULT_EXIT = 77


@dataclass(frozen=True)
class Work:
    """A job's body: what happens in its handler, after `ms`."""

    ms: int = 0
    fail: int = 0  # how many of its first attempts raise
    bury: bool = False
    deaf: bool = False  # continues after it was cancelled
    block: int = 0  # blocks its event loop for so many ms,
    only: int = 0  # in this process alone, if it is given
    die: bool = False  # kills its process at once
    stop: int = 0  # stops this process until SIGCONT, if it is the one that runs it
    company: int = 0  # put off, and not counted, while it is alone in this process: no other waits for a slot
    note: str = ""


@dataclass(frozen=True)
class Fault:
    """The process exits abruptly right before or after its `nth` call of a script (or of XREADGROUP), or is stopped
    there until SIGCONT. Calls that return no jobs don't count.
    """

    call: str
    nth: int = 1
    before: bool = True
    stop: bool = False


@dataclass(frozen=True)
class Options:
    """One worker process."""

    topics: Sequence[str] = ("work",)
    namespace: str = "streamdq"
    group: str = "default"
    concurrency: int = 20
    threads: bool = False
    ttr: str = "1s"  # "": the topic's
    retry: str = "0"
    burst: bool = False
    stop_after_starts: int = 0  # drains by itself once so many handlers have started, which end when they are cancelled
    watch_s: float = 0  # replaces how long reclaim watches a shard
    fault: Fault | None = None

    def encode(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def decode(cls, fields: dict[str, Any]) -> "Options":
        fault = fields.pop("fault", None)
        return cls(**fields, fault=Fault(**fault) if fault else None)


class Writer:
    """Appends lines to the journal; one write each, so that those of several processes don't mix. Their times are those
    of the test, also where this process has another clock: the clock that counts from the machine's start is the same.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._started_at = float(os.environ["JOURNAL_STARTED_AT"])
        self.starts = 0

    def write(self, what: str, job: Job) -> None:
        self.starts += what == "start"
        at = self._started_at + time.monotonic()
        line = [what, job.topic, job.id, job.attempt, os.getpid(), at]
        os.write(self._file, (json.dumps(line) + "\n").encode())


def inject(fault: Fault) -> None:
    """Makes the fault happen: every call to Redis passes AsyncLink.send."""
    send = AsyncLink.send
    wanted = {fault.call} if fault.call == "XREADGROUP" else {load_script(fault.call).sha}
    if fault.stop:
        wanted.add(load_script(fault.call).source)  # as it is called the first time on a server
    calls = 0

    def happen() -> None:
        nonlocal calls
        calls += 1
        if calls == fault.nth:
            if not fault.stop:
                os._exit(FAULT_EXIT)
            os.kill(os.getpid(), signal.SIGSTOP)

    def hits(commands: Sequence[Command], blocking: bool) -> bool:
        names = {name for command in commands for name in command.args[:2]}
        return not wanted.isdisjoint(names) and (blocking or fault.call != "XREADGROUP")

    def brought(reply: Any) -> bool:
        """Whether the call returned jobs; a blocked read without entries does not count."""
        return bool(reply[4]) if fault.stop and isinstance(reply, list) else reply is not None

    async def crashing(
        link: AsyncLink, commands: Sequence[Command], timeout_s: float, blocking: bool = False
    ) -> list[Any]:
        hit = hits(commands, blocking)
        if hit and fault.before:
            happen()
        replies = await send(link, commands, timeout_s, blocking)
        if hit and not fault.before and brought(replies[0]) and not (fault.stop and isinstance(replies[0], Exception)):
            happen()
        return replies

    AsyncLink.send = crashing  # type: ignore[assignment, method-assign]


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


async def sleep(work: Work) -> None:
    if work.block and work.only in (0, os.getpid()):
        time.sleep(work.block / 1000)  # noqa: ASYNC251  # real time: as told
    try:
        await asyncio.sleep(work.ms / 1000)  # real time: as told
    except asyncio.CancelledError:
        if not work.deaf:
            raise
        await asyncio.sleep(work.ms / 1000)  # real time: as told


def make(url: str, writer: Writer, options: Options) -> Worker:
    """The worker, with one handler for all its topics."""
    worker = Worker(url, options.namespace, options.group, options.concurrency)

    def started(work: Work, job: Job) -> None:
        if work.company == os.getpid() and worker._serving is not None and not worker._serving._runner._waiting:
            raise Snooze("1ms")
        writer.write("start", job)
        signal_itself(work)
        if writer.starts == options.stop_after_starts:
            os.kill(os.getpid(), signal.SIGTERM)

    async def handle(work: Work, job: Job) -> None:
        started(work, job)
        try:
            await (asyncio.Event().wait() if options.stop_after_starts else sleep(work))  # real time: as told
            act(work, job)
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
    if options.watch_s:
        reclaim_module._WATCH_S = options.watch_s
        reclaim_module._TICK_S = options.watch_s / 4
    if options.fault:
        inject(options.fault)
    make(url, Writer(journal), options).run(options.burst)


def fork(url: str, journal: str, each: Sequence[Options]) -> int:
    """A process for each, all started with what this one has imported; its last line is how each of them ended."""
    children = []
    for options in each:
        child = os.fork()
        if child == 0:
            work(url, journal, options)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    # Alone on its line: only now does no child write any more, and one that died may have left half a line.
    print(f"\n{json.dumps(codes)}", flush=True)  # noqa: T201
    return 0


def main(url: str, journal: str, text: str) -> int:
    structlog.configure(processors=[structlog.processors.LogfmtRenderer(bool_as_flag=False)])
    decoded = json.loads(text)
    if isinstance(decoded, list):
        return fork(url, journal, [Options.decode(fields) for fields in decoded])
    work(url, journal, Options.decode(decoded))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
