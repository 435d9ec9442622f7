"""``python -m tests.docs.migrating``: both sides of docs/migrating/ run as printed, on one Redis, and what the guides
say of the other queues is tried. ``python -m tests.docs.migrating rq arq`` takes these alone.

The other queues are installed as for ``benchmarks.peers``. Their code names the port 6379, so all of it runs in a
network of its own (``unshare``), in which that is free.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO

from redis import Redis

from benchmarks.peers.setup import peers, prepare
from streamdq.embedded.binary import find_server
from tests.docs.reader import ROOT, Reader, blocks
from tests.docs.test_pages import FOLLOWED
from tests.waiting import until

PORT = 6379
INSIDE = "STREAMDQ_MIGRATING_INSIDE"


@dataclass
class Theirs:
    """The other queue's side, in a folder and an environment of its own."""

    name: str
    folder: Path
    redis: Redis = field(default_factory=lambda: Redis(port=PORT, decode_responses=True))
    _logs: int = 0

    def write(self, file: str, text: str) -> None:
        (self.folder / file).write_text(textwrap.dedent(text))

    def run(self, *words: str) -> str:
        """What a program of its environment printed; it must end well."""
        done = subprocess.run(
            self._found(words), cwd=self.folder, env=self._env(), capture_output=True, text=True, timeout=90
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def python(self, code: str) -> str:
        return self.run("python", "-c", textwrap.dedent(code))

    @contextmanager
    def worker(self, *words: str) -> Iterator[Callable[[], str]]:
        """Runs a worker; what it has printed so far."""
        self._logs += 1
        log = self.folder / f"worker-{self._logs}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                self._found(words), cwd=self.folder, env=self._env(), stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        try:
            yield log.read_text
        except BaseException:
            sys.stderr.write(log.read_text())
            raise
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _found(self, words: Sequence[str]) -> list[str]:
        program = peers()[self.name].folder / "bin" / words[0]
        return [str(program) if program.exists() else words[0], *words[1:]]

    def _env(self) -> dict[str, str]:
        return {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
        } | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(self.folder)}  # fmt: skip


def say(text: str, where: TextIO = sys.stdout) -> None:
    where.write(f"{text}\n")
    where.flush()


def sees(log: Callable[[], str], text: str, within_s: float = 30) -> None:
    until(lambda: text in f"\n{log()}", f"{text!r} is printed", within_s)


# -- Celery


def celery(theirs: Theirs) -> Iterator[str]:
    with theirs.worker("celery", "-A", "tasks", "worker", "--concurrency", "1", "--loglevel", "INFO") as log:
        sees(log, "ready.")
        theirs.run("python", "shop.py")
        sees(log, "ForkPoolWorker-1] 1\n")  # it prints each value in a line of its own
        sees(log, "ForkPoolWorker-1] 0\n")
        sees(log, "flagged as revoked")
        yield "the printed code runs, and the task is revoked"
        theirs.python("from tasks import close_order; close_order.apply_async((43,), countdown=1800)")
        sees(lambda: str(log().count("received")), "3")
        until(lambda: theirs.redis.hlen("unacked") > 0, "the delayed task is in the worker's memory")
        assert theirs.redis.llen("celery") == 0
        yield "a worker takes tasks with an ETA into its memory"
    theirs.redis.flushall()

    theirs.write("tasks.py", """
        from celery import Celery

        app = Celery("shop", broker="redis://localhost/0")
        app.conf.broker_transport_options = {
            "visibility_timeout": 1, "unacked_restore_interval": 1, "unacked_restore_throttle": 1,
        }

        @app.task(acks_late=True)
        def late() -> None:
            print("ran")

        @app.task(acks_late=True)
        def fails() -> None:
            raise ValueError("no")
        """)  # fmt: skip
    with theirs.worker("celery", "-A", "tasks", "worker", "--concurrency", "1", "--loglevel", "INFO") as log:
        sees(log, "ready.")
        theirs.python("from tasks import fails; fails.delay()")
        sees(log, "ValueError: no")
        until(lambda: not theirs.redis.hlen("unacked"), "it is acknowledged")
        assert theirs.redis.llen("celery") == 0
        yield "a task that failed for the last time is gone"
        theirs.python("from tasks import late; late.apply_async(countdown=15)")
        until(lambda: log().count("tasks.late[") >= 3, "it is delivered again and again", 60)
        until(lambda: log().count("] ran") >= 2, "it runs more than once", 60)
        yield "a task whose ETA lies behind the visibility timeout is delivered again and again"

    theirs.python("""
        from celery import Celery, chain, chord, Task
        app = Celery()
        assert {"task_always_eager", "task_reject_on_worker_lost", "beat_schedule"} <= {*app.conf}
        assert {"acks_late", "rate_limit", "priority", "expires"} <= {*dir(Task)}
        assert app.control.revoke and app.control.inspect and Task.retry
        """)
    yield "the names that the page compares exist"


# -- RQ


def rq(theirs: Theirs) -> Iterator[str]:
    with theirs.worker("rq", "worker", "orders", "--with-scheduler") as log:
        sees(log, "Listening on")
        theirs.run("python", "shop.py")
        sees(log, "\n1\n")
        assert theirs.redis.zscore("rq:canceled:orders", "order-42")
        yield "the printed code runs, and the job is cancelled"
        theirs.write("more.py", """
            import os

            def pid() -> None:
                print("pid", os.getpid())

            def fails() -> None:
                raise ValueError("no")
            """)  # fmt: skip
        theirs.python("""
            from redis import Redis
            from rq import Queue
            import more
            queue = Queue("orders", connection=Redis())
            for _ in range(2):
                queue.enqueue(more.pid)
            queue.enqueue(more.fails, job_id="fails")
            """)
        sees(log, "ValueError: no")
        pids = [line for line in log().splitlines() if line.startswith("pid ")]
        assert len({*pids}) == 2
        yield "it forks for each job"
        until(lambda: theirs.redis.zscore("rq:failed:orders", "fails"), "it is in the FailedJobRegistry")
        before = log().count("ValueError: no")
        theirs.run("rq", "requeue", "--queue", "orders", "--all")
        until(lambda: log().count("ValueError: no") > before, "it runs again")
        yield "rq requeue runs what is in the FailedJobRegistry"
    theirs.python("""
        import inspect, pickle, zlib
        from redis import Redis
        from rq.scheduler import RQScheduler
        assert inspect.signature(RQScheduler.__init__).parameters["interval"].default == 1
        pickle.loads(zlib.decompress(Redis().hget("rq:job:order-42", "data")))
        """)
    yield "the scheduler looks once a second, and arguments are pickled"
    assert "rq cron" in theirs.run("rq", "cron", "--help")
    assert "orders" in theirs.run("rq", "info")
    yield "rq cron and rq info exist"

    theirs.python("""
        import inspect
        from rq.job import Job
        from rq.queue import Queue
        assert Queue.enqueue_in and Queue.enqueue_at and Job.return_value
        assert "depends_on" in inspect.signature(Queue.enqueue_call).parameters
        """)
    yield "the names that the page compares exist"


# -- arq


def arq(theirs: Theirs) -> Iterator[str]:
    with theirs.worker("arq", "tasks.WorkerSettings") as log:
        sees(log, "Starting worker")
        theirs.run("python", "shop.py")
        assert "order-42" not in theirs.redis.zrange("arq:queue", 0, -1)
        sees(log, "aborted")
        yield "the printed code runs, and the job is aborted"
        sees(log, "\ncorner 1\n", 70)
        yield "it is retried after 15 and 30 s"
        assert "j_complete" in theirs.run("arq", "--check", "tasks.WorkerSettings")
        yield "arq --check"
    theirs.redis.flushall()
    theirs.write("tasks.py", """
        import asyncio

        async def fails(ctx):
            print("failing")
            raise ValueError("no")

        async def sleeps(ctx):
            print("sleeping")
            await asyncio.sleep(60)

        class WorkerSettings:
            functions = [fails, sleeps]
            job_timeout = 30
        """)  # fmt: skip
    with theirs.worker("arq", "tasks.WorkerSettings") as log:
        sees(log, "Starting worker")
        printed = theirs.python("""
            import asyncio
            from arq import create_pool
            from arq.connections import RedisSettings

            async def main() -> None:
                redis = await create_pool(RedisSettings())
                await redis.enqueue_job("fails", _job_id="fails")
                await redis.enqueue_job("sleeps", _job_id="sleeps")
                print(await redis.enqueue_job("sleeps", _job_id="sleeps"))

            asyncio.run(main())
            """)
        assert printed == "None\n"
        yield "a second job of an id is None"
        sees(log, "sleeping")
        until(lambda: theirs.redis.exists("arq:result:fails"), "it has failed")
        assert log().count("failing") == 1
        assert "fails" not in theirs.redis.zrange("arq:queue", 0, -1)
        yield "any other exception than Retry is the end of a job"
        assert 30_000 < theirs.redis.pttl("arq:in-progress:sleeps") <= 40_000
        yield "a killed worker's job waits until its in-progress key has run out, after its time-out"

    theirs.python("""
        import inspect
        from arq import ArqRedis, Worker
        from arq.jobs import Job
        asked = {"_job_id", "_defer_by", "_defer_until", "_expires"}
        assert asked <= {*inspect.signature(ArqRedis.enqueue_job).parameters}
        hooks = {"on_startup", "on_shutdown", "on_job_start", "on_job_end", "cron_jobs", "max_tries", "job_timeout"}
        assert hooks <= {*inspect.signature(Worker).parameters}
        assert Job.abort and Job.result
        """)
    yield "the names that the page compares exist"


# -- dramatiq


def dramatiq(theirs: Theirs) -> Iterator[str]:
    with theirs.worker("dramatiq", "tasks", "-p", "1", "-t", "2") as log:
        sees(log, "is ready for action")
        theirs.run("python", "shop.py")
        sees(log, "1\n")
        until(lambda: theirs.redis.llen("dramatiq:default.DQ") == 0, "the delayed message is in the worker's memory")
        assert theirs.redis.hlen("dramatiq:default.DQ.msgs") == 1
        yield "the printed code runs, and a worker takes delayed messages into its memory"
        theirs.python("from tasks import close_order; close_order.send('x')")
    theirs.redis.flushall()
    theirs.write("tasks.py", """
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker

        dramatiq.set_broker(RedisBroker(url="redis://localhost"))

        @dramatiq.actor(max_backoff=10)
        def fails() -> None:
            print("failing")
            raise ValueError("no")

        @dramatiq.actor(throws=(ValueError,))
        def throws() -> None:
            print("throwing")
            raise ValueError("no")

        @dramatiq.actor(max_retries=1, max_backoff=10)
        def dies() -> None:
            raise dramatiq.errors.Retry("later", delay=10)
        """)  # fmt: skip
    with theirs.worker("dramatiq", "tasks", "-p", "1", "-t", "2") as log:
        sees(log, "is ready for action")
        theirs.python("import tasks; tasks.throws.send(); tasks.fails.send(); tasks.dies.send()")
        until(lambda: log().count("failing") > 2, "it is retried")
        assert log().count("throwing") == 1
        yield "actors retry by default, but for what they throw"
        until(lambda: theirs.redis.zcard("dramatiq:default.XQ") >= 1, "it is in the dead-letter queue")
        yield "what has no retries left goes to the dead-letter queue"

    theirs.python("""
        import inspect
        import dramatiq.results
        from dramatiq import group, pipeline, rate_limits
        from dramatiq.brokers.redis import RedisBroker
        from dramatiq.brokers.stub import StubBroker
        from dramatiq.middleware import AgeLimit, Retries, TimeLimit
        assert "heartbeat_timeout" in inspect.signature(RedisBroker).parameters
        assert {"max_retries", "min_backoff", "max_backoff", "throws"} <= Retries().actor_options
        assert "max_age" in AgeLimit().actor_options and "time_limit" in TimeLimit().actor_options
        """)
    yield "the names that the page compares exist"


# -- BullMQ


def bullmq(theirs: Theirs) -> Iterator[str]:
    with theirs.worker("node", "shop.mjs") as log:
        sees(log, "1 0\n")
        until(lambda: not theirs.redis.exists("bull:order.close:order-42"), "it is removed")
        assert theirs.redis.zcard("bull:order.close:delayed") == 0
        yield "the printed code runs, and the job is removed"
    theirs.redis.flushall()
    theirs.write("more.mjs", """
        import { FlowProducer, Queue, QueueEvents, UnrecoverableError, Worker } from "bullmq";
        const connection = { host: "localhost", port: 6379 };
        const queue = new Queue("more", { connection });
        await queue.add("a", { n: 1 }, { jobId: "one", delay: 100000 });
        await queue.add("a", { n: 2 }, { jobId: "one", delay: 100000 });
        const delayed = await queue.getDelayed();
        const names = [UnrecoverableError, FlowProducer, QueueEvents, queue.upsertJobScheduler, queue.pause];
        names.push(delayed[0].changeDelay, delayed[0].retry, delayed[0].remove);
        if (names.some((one) => typeof one !== "function")) throw new Error("a name of the page is missing");
        console.log("delayed", delayed.map((job) => [job.id, job.data.n]));
        await queue.add("fails", {});
        const fails = async () => { console.log("failing"); throw new Error("no"); };
        const worker = new Worker("more", fails, { connection });
        worker.on("failed", (job) => console.log("failed", job.attemptsMade));
        """)  # fmt: skip
    with theirs.worker("node", "more.mjs") as log:
        sees(log, "failed 1\n")
        assert "delayed [ [ 'one', 1 ] ]" in log()
        yield "a second add of an id is ignored, and getDelayed() has what is delayed"
        assert theirs.redis.zcard("bull:more:failed") == 1
        assert log().count("failing") == 1
        yield "a job that fails is not repeated unless `attempts` says so"


GUIDES: dict[str, Callable[[Theirs], Iterator[str]]] = {
    "celery": celery, "rq": rq, "arq": arq, "dramatiq": dramatiq, "bullmq": bullmq,
}  # fmt: skip


def try_guide(name: str, folder: Path) -> None:
    page = ROOT / f"docs/migrating/{name}.md"
    (folder / "theirs").mkdir()
    (folder / "ours").mkdir()
    theirs = Theirs(name, folder / "theirs")
    if name == "bullmq":
        (theirs.folder / "node_modules").symlink_to(peers()[name].folder / "node_modules")
    for block in blocks(page):
        if block.is_of_another_queue:
            theirs.write(block.file or "shop.mjs", block.text)
    ours = Reader(folder / "ours", f"redis://localhost:{PORT}")
    try:
        for what in GUIDES[name](theirs):
            say(f"{name}: {what}")
        ours.follow(page)
        for text in FOLLOWED[f"migrating/{name}"]:
            until(partial(ours.sees, text), f"{text!r} is printed", 30)
    except BaseException:
        ours.kill()
        raise
    ours.stop()
    say(f"{name}: streamdq's side runs")


@contextmanager
def redis_at_6379(folder: Path) -> Iterator[None]:
    words = [str(find_server().path), "--port", str(PORT), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        until(_answers, "Redis answers")
        yield
    finally:
        process.terminate()
        process.wait()


def _answers() -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", PORT)) == 0


def main(names: Sequence[str]) -> int:
    if unknown := set(names) - GUIDES.keys():
        say(f"{sorted(unknown)} is none of {', '.join(GUIDES)}", sys.stderr)
        return 2
    names = names or list(GUIDES)
    if INSIDE not in os.environ:
        for name in names:
            prepare(peers()[name])
        if shutil.which("unshare") is None or shutil.which("ip") is None:
            say("needs unshare and ip (Debian: util-linux, iproute2)", sys.stderr)
            return 2
        inside = f"ip link set lo up && exec {sys.executable} -m tests.docs.migrating {' '.join(names)}"
        return subprocess.run(["unshare", "-rn", "sh", "-c", inside], env={**os.environ, INSIDE: "1"}).returncode
    failed = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder, redis_at_6379(Path(folder)):
            try:
                try_guide(name, Path(folder))
            except (AssertionError, TimeoutError) as error:
                failed += 1
                say(f"{name}: {error}", sys.stderr)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
