"""Handlers with ``process=True``: like ``def`` handlers, but a crash or a TTR ends their process, and nothing else."""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import psutil
import pytest

from streamdq import Attempt, InvalidInput, JobState, NewJob, ProcessPool, Queue, Worker
from streamdq.codec.zstd import Zstd
from streamdq.errors import HandlerProcessDied, JobFailed, ResultNotKept, ResultTooLarge
from streamdq.worker import children
from streamdq.worker.child import Setup
from streamdq.worker.children import Child, ProcessCall
from tests.docs.reader import blocks
from tests.redis import process_handlers as handlers
from tests.redis.harness import NAMESPACE, SETTINGS, Seen, Space, recorder
from tests.redis.process_handlers import Unpicklable
from tests.servers import Server
from tests.waiting import HANG_S, eventually, until


@pytest.fixture
def server(newest: Server) -> Server:
    return newest


@asynccontextmanager
async def serving(
    server: Server,
    function: Callable[..., Any],
    *,
    pool: ProcessPool | None = None,
    settings: Any = None,
    **options: Any,
) -> AsyncIterator[tuple[Worker, Queue]]:
    """A worker that has the handler for the topic ``t``, in processes, and keeps its results."""
    worker = Worker(server.url, NAMESPACE, pool=pool or ProcessPool(1), settings=settings or SETTINGS, codec=[Zstd()])
    # A busy machine needs long to start a process, which is a part of the job's time.
    worker.handler("t", process=True, result="1h", **{"ttr": "10m"} | options)(function)
    with Queue(server.url, NAMESPACE, settings=SETTINGS, codec=[Zstd()]) as queue:
        async with Space(server.url).serving(worker):
            yield worker, queue


async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    return await asyncio.to_thread(function, *args)


async def result_of(queue: Queue, id: str) -> Any:
    return await in_thread(lambda: queue.result("t", id, timeout=HANG_S))


async def error_of(queue: Queue, id: str) -> str:
    await eventually(lambda: state_of(queue, id) is JobState.DEAD, f"{id} is a dead letter")
    job = queue.get("t", id)
    assert job is not None
    return job.groups["default"].error or ""


def state_of(queue: Queue, id: str) -> JobState | None:
    job = queue.get("t", id)
    return None if job is None else job.groups["default"].state


def has_ended(queue: Queue, id: str) -> bool:
    return queue.get("t", id) is None


def fifo_in(folder: Path, name: str = "fifo") -> Path:
    os.mkfifo(folder / name)
    return folder / name


def pid_of(fifo: Path) -> int:
    """Of the process that reads there, once it does."""
    file = fifo.with_name(f"{fifo.name}.pid")
    until(lambda: file.exists() and file.read_text(), "the handler runs")
    return int(file.read_text())


def is_gone(pid: int) -> bool:
    """With all of its threads: the last one closes its pipes, and may end later than the first."""
    try:
        process = psutil.Process(pid)
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    except psutil.NoSuchProcess:
        return True


async def test_it_can_do_what_a_def_handler_can(server: Server) -> None:
    async with serving(server, handlers.add, version=2) as (_, queue):
        body = {"number": 41, "name": "x" * 5000}
        queue.enqueue("t", body, id="a", version=2)
        result = await result_of(queue, "a")
        assert result.pop("pid") != os.getpid()
        assert result == {"number": 42, "attempt": 1, "version": 2, "has_time": True, "body": body}
        assert queue.get("follow-up", "after-a") is not None


@pytest.mark.thorough
async def test_middleware_is_around_it_in_the_worker(server: Server) -> None:
    worker = Worker(server.url, NAMESPACE, settings=SETTINGS)
    worker.handler("t", process=True, retry="none")(handlers.fail)
    seen = Seen()

    @worker.middleware
    async def around(attempt: Attempt, call_next: Any) -> None:
        try:
            await call_next()
        except HandlerProcessDied as error:
            seen.add((attempt.jobs[0].id, os.getpid(), type(error)))
            raise

    with Queue(server.url, NAMESPACE, settings=SETTINGS) as queue:
        async with Space(server.url).serving(worker):
            queue.enqueue("t", "killed", id="a")
            assert await seen.count(1) == [("a", os.getpid(), HandlerProcessDied)]


DIED = "HandlerProcessDied: the process of the handler"


async def test_each_failure_is_that_of_its_attempt(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(server, handlers.fail, pool=ProcessPool(2), retry="none") as (_, queue):
        for how in ("killed", "raises", "unpicklable", "buries", "retries", "lazy", "fine"):
            queue.enqueue("t", how, id=how)
        assert await result_of(queue, "fine") == "fine"
        assert f"{DIED} was killed by SIGKILL, as when memory is full" in await error_of(queue, "killed")
        assert await error_of(queue, "raises") == "ValueError: no such order"
        assert await error_of(queue, "unpicklable") == "Unpicklable: order 7"
        assert await error_of(queue, "buries") == "not ours"
        assert "with process=True a handler can't return a generator" in await error_of(queue, "lazy")
        await eventually(lambda: state_of(queue, "retries") is JobState.DELAYED, "it comes again later")
        with pytest.raises(JobFailed):
            await result_of(queue, "raises")
    (traceback,) = {record.exc_text for record in caplog.records if "no such order" in str(record.exc_text)} or {""}
    assert "in fail" in caplog.text
    assert traceback is not None


@pytest.mark.thorough
async def test_other_ends_of_the_process_are_failures_of_its_attempt(server: Server) -> None:
    async with serving(server, handlers.fail, pool=ProcessPool(2, memory_bytes=8 * 2**30), retry="none") as (_, queue):
        for how in ("exits", "crashes", "too large"):
            queue.enqueue("t", how, id=how)
        assert f"{DIED} ended (exit code 3)" in await error_of(queue, "exits")
        assert f"{DIED} was killed by SIGSEGV" in await error_of(queue, "crashes")
        assert (await error_of(queue, "too large")).startswith("MemoryError")


@pytest.mark.thorough
async def test_the_worker_gets_the_json_of_what_a_handler_returns(server: Server) -> None:
    settings = SETTINGS.model_copy(update={"max_decoded_bytes": 1_000_000})
    async with serving(server, handlers.fail, settings=settings) as (_, queue):
        for how in ("receipt", "no result", "large result"):
            queue.enqueue("t", how, id=how)
        assert await result_of(queue, "receipt") == {"number": 7}
        with pytest.raises(ResultNotKept, match=r"Unable to serialize unknown type: <class '_thread\.lock'>"):
            await result_of(queue, "no result")
        with pytest.raises(ResultTooLarge, match="5000002 bytes of JSON, 1000000 are read at most"):
            await result_of(queue, "large result")


@pytest.mark.thorough
async def test_a_batch_returns_a_result_for_each_job(server: Server) -> None:
    async with serving(server, handlers.too_few, batch=10) as (_, queue):
        queue.enqueue("t", 1, id="a")
        with pytest.raises(ResultNotKept, match="returned 0 results for a batch of 1 jobs"):
            await result_of(queue, "a")


async def test_a_crash_takes_no_other_job_along_and_a_ttr_ends_the_process(server: Server, tmp_path: Path) -> None:
    async with serving(server, handlers.wait, pool=ProcessPool(2), retry="none") as (_, queue):
        first, second = fifo_in(tmp_path, "first"), fifo_in(tmp_path, "second")
        queue.enqueue("t", str(first), id="first")
        queue.enqueue("t", str(second), id="second", ttr="1s")
        pids = await in_thread(pid_of, first), await in_thread(pid_of, second)
        assert "TTR 1s passed" in await error_of(queue, "second")
        await eventually(lambda: is_gone(pids[1]), "the process is killed")
        assert not is_gone(pids[0])
        third = fifo_in(tmp_path, "third")
        queue.enqueue("t", str(third), id="third")
        os.kill(await in_thread(pid_of, third), signal.SIGKILL)
        assert "killed by SIGKILL" in await error_of(queue, "third")
        await in_thread(first.write_text, "go on")
        assert await result_of(queue, "first") == pids[0]


@pytest.mark.thorough
async def test_a_child_of_a_handler_holds_no_process_up(server: Server, tmp_path: Path) -> None:
    """It has inherited the pipe to the worker, and keeps it open when the handler's process is killed."""
    fifo, of_child = fifo_in(tmp_path), fifo_in(tmp_path, "fifo.child")
    async with serving(server, handlers.leave_a_child, retry="none") as (_, queue):
        queue.enqueue("t", str(fifo), id="a")
        assert "TTR 1s passed" in await error_of(queue, "a")
        queue.enqueue("t", "none", id="b")
        assert await result_of(queue, "b")
        await in_thread(of_child.write_text, "end")


@pytest.mark.thorough
async def test_a_process_that_has_not_answered_gets_no_other_call(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = fifo_in(tmp_path, "first"), fifo_in(tmp_path, "second")
    answer, failing = ProcessCall._answer, [first]

    def fail_once(call: ProcessCall, child: Any) -> Any:
        if not failing:
            return answer(call, child)
        pid_of(failing.pop())
        raise RuntimeError("what the handler reported could not be noted")

    monkeypatch.setattr(ProcessCall, "_answer", fail_once)
    async with serving(server, handlers.wait, retry="none") as (_, queue):
        queue.enqueue("t", str(first), id="first")
        queue.enqueue("t", str(second), id="second")
        pid = await in_thread(pid_of, second)
        assert is_gone(pid_of(first))
        await in_thread(second.write_text, "go on")
        assert await result_of(queue, "second") == pid
        assert "could not be noted" in await error_of(queue, "first")


@pytest.mark.thorough
async def test_an_abort_is_seen_inside_and_ends_what_ignores_it(server: Server, tmp_path: Path) -> None:
    async with serving(server, handlers.wait_for_abort, pool=ProcessPool(2)) as (_, queue):
        sees, ignores = fifo_in(tmp_path, "sees"), fifo_in(tmp_path, "ignores")
        for fifo in (sees, ignores):
            queue.enqueue("t", str(fifo), id=fifo.name)
        pids = {fifo: await in_thread(pid_of, fifo) for fifo in (sees, ignores)}
        await in_thread(sees.write_text, "go on")
        for fifo in (sees, ignores):
            await in_thread(queue.abort, "t", fifo.name)
        await eventually((tmp_path / "sees.seen").exists, "the handler sees it")
        await eventually(lambda: is_gone(pids[ignores]), "the process is killed")
        for fifo in (sees, ignores):
            await eventually(partial(has_ended, queue, fifo.name), "it has ended")


@pytest.mark.thorough
async def test_only_so_many_are_claimed_as_there_are_processes(server: Server, tmp_path: Path, seen: Seen) -> None:
    worker = Worker(server.url, NAMESPACE, pool=ProcessPool(1, max_calls=1), settings=SETTINGS)
    worker.handler("t", process=True, result="1h")(handlers.wait)
    worker.handler("beside")(recorder(seen))
    with Queue(server.url, NAMESPACE, settings=SETTINGS) as queue:
        async with Space(server.url).serving(worker):
            fifos = [fifo_in(tmp_path, str(n)) for n in range(3)]
            queue.enqueue_many("t", [NewJob(str(fifo), id=fifo.name) for fifo in fifos])
            pids = []
            for n in range(3):
                group = queue.stats("t").topics["t"].groups["default"]
                assert group.running <= 1
                running = await in_thread(until_any, fifos[n:])
                queue.enqueue("beside", n)
                await seen.count(n + 1)
                group = queue.stats("t").topics["t"].groups["default"]
                assert (group.running, group.ready) == (1, 2 - n)
                await in_thread(running.write_text, "go on")
                pids.append(await result_of(queue, running.name))
                fifos.remove(running)
                fifos.insert(0, running)
            assert len(set(pids)) == 3, "each process has one call"


def until_any(fifos: list[Path]) -> Path:
    found: list[Path] = []

    def some() -> bool:
        found.extend(fifo for fifo in fifos if fifo.with_name(f"{fifo.name}.pid").exists())
        return bool(found)

    until(some, "one runs")
    return found[0]


@pytest.mark.thorough
async def test_a_batch_is_one_call(server: Server) -> None:
    async with serving(server, handlers.count, batch=10) as (_, queue):
        queue.enqueue_many("t", [NewJob(n, id=str(n)) for n in range(3)])
        found = [await result_of(queue, str(n)) for n in range(3)]
    assert sorted(one[:2] for one in found) == [[n, str(n)] for n in range(3)]


@pytest.mark.thorough
async def test_the_grace_period_ends_what_goes_on(server: Server, tmp_path: Path) -> None:
    fifo = fifo_in(tmp_path)
    async with serving(server, handlers.wait, pool=ProcessPool(2)) as (_, queue):
        queue.enqueue("t", str(fifo), id="a")
        pid = await in_thread(pid_of, fifo)
    assert is_gone(pid)
    with Queue(server.url, NAMESPACE, settings=SETTINGS) as queue:
        job = queue.get("t", "a")
        assert job is not None
        assert (job.groups["default"].state, job.groups["default"].attempt) == (JobState.READY, 0)


@pytest.mark.thorough
async def test_a_process_that_is_killed_while_idle_costs_no_attempt(server: Server) -> None:
    async with serving(server, handlers.leave_a_child, retry="none") as (_, queue):
        queue.enqueue("t", "none", id="a")
        pid = await result_of(queue, "a")
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: is_gone(pid), "it is killed")
        queue.enqueue("t", "none", id="b")
        assert await result_of(queue, "b") != pid


@pytest.mark.thorough
async def test_an_abort_does_not_wait_for_a_process_that_reads_nothing(
    server: Server, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body larger than the pipe's buffer is on its way to a process that is stopped."""
    sending, send = Event(), Child.send

    def note(child: Child, kind: bytes, data: bytes) -> None:
        sending.set()
        send(child, kind, data)

    worker = Worker(server.url, NAMESPACE, settings=SETTINGS)
    worker.handler("t", process=True, result="1h")(handlers.leave_a_child)
    worker.handler("beside")(recorder(seen))
    with Queue(server.url, NAMESPACE, settings=SETTINGS) as queue:
        async with Space(server.url).serving(worker):
            queue.enqueue("t", "none", id="a")
            os.kill(await result_of(queue, "a"), signal.SIGSTOP)
            monkeypatch.setattr(Child, "send", note)
            queue.enqueue("t", "x" * 260_000, id="b")
            assert await in_thread(sending.wait, HANG_S)
            queue.abort("t", "b")
            await eventually(lambda: has_ended(queue, "b"), "it has ended")
            queue.enqueue("beside", 1)
            await seen.count(1)


@pytest.mark.thorough
async def test_an_answer_does_not_wait_until_its_process_has_ended(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, end = Event(), Child.end

    def end_later(child: Child, *args: Any) -> Any:
        assert answered.wait(HANG_S)
        return end(child, *args)

    monkeypatch.setattr(Child, "end", end_later)
    async with serving(server, handlers.fail, pool=ProcessPool(1, max_calls=1)) as (_, queue):
        queue.enqueue("t", "fine", id="a")
        assert await result_of(queue, "a") == "fine"
        answered.set()


@pytest.mark.thorough
def test_who_ends_the_worker_s_process_can_ask_for_a_process_that_another_thread_has_ended() -> None:
    child = Child(Setup(pickle.dumps([]), "nowhere", ("test", "default", frozenset()), None, 1000))
    before = set(multiprocessing.active_children())
    child.begin()
    (process,) = set(multiprocessing.active_children()) - before
    child.end()
    assert not process.is_alive()


@pytest.mark.thorough
async def test_the_event_loop_goes_on_while_processes_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, goes_on, end = asyncio.get_running_loop(), Event(), Child.end
    found: list[bool] = []

    def end_with_loop(child: Child, *args: Any) -> Any:
        loop.call_soon_threadsafe(goes_on.set)
        found.append(goes_on.wait(HANG_S))
        return end(child, *args)

    monkeypatch.setattr(Child, "end", end_with_loop)
    async with serving(server, handlers.fail):
        pass
    assert found == [True]


@pytest.mark.thorough
async def test_the_pool_survives_that_a_process_can_not_start(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As there may be too many files, processes or threads for a while."""
    start, failing = Thread.start, [True]

    def start_no_thread(thread: Thread) -> None:
        if thread.name.removeprefix("streamdq-") in ("1", "2", "3", "starts-process"):
            raise RuntimeError("can't start new thread")
        start(thread)

    def fail_once(setup: Any) -> Child:
        if failing:
            failing.pop()
            raise OSError("too many open files")
        return Child(setup)

    async with serving(server, handlers.fail, pool=ProcessPool(1, max_calls=1), retry="none") as (_, queue):
        monkeypatch.setattr(children, "Child", fail_once)
        monkeypatch.setattr(Thread, "start", start_no_thread)
        for id in "abc":
            queue.enqueue("t", "fine", id=id)
            assert await result_of(queue, id) == "fine"
    assert not failing


HANGS = """
import multiprocessing, os

if multiprocessing.parent_process() is not None:
    with open({fifo!r} + ".pid", "w") as file:
        file.write(str(os.getpid()))
    open({fifo!r}).read()

def handle(body):
    pass
"""


@pytest.mark.thorough
async def test_a_worker_can_be_stopped_while_a_process_imports(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo = fifo_in(tmp_path)
    (tmp_path / "import_that_hangs.py").write_text(HANGS.format(fifo=str(fifo)))
    monkeypatch.syspath_prepend(tmp_path)
    worker = Worker(server.url, NAMESPACE, settings=SETTINGS)
    worker.handler("t", process=True)(importlib.import_module("import_that_hangs").handle)
    serving = asyncio.create_task(worker.serve())
    pid = await in_thread(pid_of, fifo)
    worker.stop()
    await asyncio.wait_for(serving, HANG_S)
    await eventually(lambda: is_gone(pid), "the process is killed")


ORPHANS = """
import sys
from streamdq import ProcessPool, Worker
from tests.redis.process_handlers import fork_in_worker, leave_a_thread, wait

worker = Worker(sys.argv[1], "test")
worker.handler("t", process=True)(wait)
worker.handler("threads", process=True)(leave_a_thread)
worker.handler("forks")(fork_in_worker)
if __name__ == "__main__":
    worker.run()
"""


@pytest.fixture
def orphans(server: Server, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker's process, to be killed."""
    (tmp_path / "orphans.py").write_text(ORPHANS)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([sys.executable, "orphans.py", server.url], cwd=tmp_path, env=env)
    yield process
    process.kill()
    process.wait()


@pytest.mark.thorough
def test_processes_end_with_a_worker_that_is_killed(
    server: Server, tmp_path: Path, orphans: subprocess.Popen[bytes]
) -> None:
    fifo = fifo_in(tmp_path)
    with Queue(server.url, NAMESPACE, settings=SETTINGS) as queue:
        queue.enqueue("t", str(fifo), id="a")
        pid = pid_of(fifo)
        orphans.kill()
        until(partial(is_gone, pid), "the process of the handler has ended")


@pytest.mark.thorough
def test_an_idle_process_ends_with_a_worker_that_is_killed_though_its_threads_go_on(
    server: Server, tmp_path: Path, orphans: subprocess.Popen[bytes]
) -> None:
    """And though a child of the worker's has inherited the worker's end of its pipe."""
    fifo = fifo_in(tmp_path)
    with Queue(server.url, NAMESPACE, settings=SETTINGS) as queue:
        queue.enqueue("threads", str(tmp_path / "threads"), id="a")
        pid = pid_of(tmp_path / "threads")
        until(lambda: queue.get("threads", "a") is None, "it has answered")
        queue.enqueue("forks", str(fifo), id="b")
        child = pid_of(fifo)
        orphans.kill()
        until(partial(is_gone, pid), "the process has ended")
        assert not is_gone(child)
        fifo.write_text("end")


@pytest.mark.thorough
def test_the_page_s_program_prints_its_result(server: Server, tmp_path: Path) -> None:
    (block,) = (one for one in blocks(Path(__file__).parents[2] / "docs/cpu-bound.md") if one.file)
    (tmp_path / block.file).write_text(block.text)
    env = {**os.environ, "STREAMDQ_URL": server.url}
    done = subprocess.run([sys.executable, block.file], cwd=tmp_path, env=env, stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"332833500\n"


@pytest.mark.parametrize("function", [lambda body: body, partial(print, file=Unpicklable(7, Lock()))])
async def test_what_another_process_cant_import_is_refused_at_the_start(
    server: Server, function: Callable[..., Any]
) -> None:
    worker = Worker(server.url, NAMESPACE, settings=SETTINGS)
    worker.handler("t", process=True)(function)
    with pytest.raises(InvalidInput, match="process=True needs a function at the top of a module"):
        await worker.serve()


def test_a_coroutine_needs_no_process() -> None:
    async def handle(body: Any) -> None: ...

    with pytest.raises(InvalidInput, match="process=True is for `def` handlers"):
        Worker("memory://unused").handler("t", process=True)(handle)


@pytest.mark.parametrize("name", ["size", "memory_bytes", "max_calls"])
def test_a_pool_of_nothing_is_refused(name: str) -> None:
    for value in (0, True, 1.5):
        with pytest.raises(InvalidInput, match=f"pool: {name}="):
            ProcessPool(**{name: value})  # type: ignore[arg-type]
