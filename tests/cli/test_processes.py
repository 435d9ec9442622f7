"""The real program: workers in processes, signals, pipes, and no traceback."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamdq import JobState, NewJob, Queue
from tests.cli.conftest import Start
from tests.forked import Forked
from tests.servers import Server
from tests.turns import others_later
from tests.waiting import HANG_S, until

LATER = pytest.mark.thorough
ONE_SIGNAL = """
import streamdq.process.processes, streamdq.worker.serving, streamdq.process.signals

for module in (streamdq.process.processes, streamdq.worker.serving, streamdq.process.signals):
    module.ONE_SIGNAL_S = {}
"""
"""At the head of the user's module, for how long signals count as one; else a busy machine would decide it."""

WORKER = """
import asyncio, os
from streamdq import Worker

worker = Worker(concurrency=50)

@worker.handler("t", ttr="20s")
async def handle(body: dict) -> None:
    with open("begun", "a") as file:
        file.write(f"{os.getpid()}\\n")
    await asyncio.sleep(body.get("takes", 0))
    with open("done", "a") as file:
        file.write(f"{os.getpid()}\\n")
"""


@pytest.fixture
def queue(server: Server) -> Iterator[Queue]:
    with Queue(server.url) as opened:
        yield opened


@pytest.fixture(autouse=True)
def module(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(WORKER)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def keep_both_busy(queue: Queue, begun: Path, takes: float) -> int:
    """Jobs, and more of them, until two processes run some: one that starts later must find some left. How many."""
    put = 0

    def both() -> bool:
        nonlocal put
        if put == 0 or queue.stats("t").ready < 10:
            queue.enqueue_many("t", [NewJob({"takes": takes}) for _ in range(20)])
            put += 20
        return len(set(lines(begun))) == 2

    until(both, "both processes run jobs")
    return put


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children()


def events(text: str) -> list[dict[str, Any]]:
    """The JSON lines of a log: it has no other lines."""
    return [json.loads(line) for line in text.splitlines()]


def test_a_worker_drains_in_burst_and_logs_json_without_bodies(
    start: Start, server: Server, queue: Queue, tmp_path: Path
) -> None:
    for i in range(20):
        queue.enqueue("t", {"secret": "swordfish", "i": i})
    queue.enqueue("t", "not what the handler takes")

    process = start("--url", server.url, "worker", "shop:worker", "--burst", "--concurrency", "3")
    out, err = process.communicate(timeout=HANG_S)

    assert process.returncode == 0, err
    assert len(lines(tmp_path / "done")) == 20
    assert out == ""
    assert {"worker started", "worker stopped"} <= {event["event"] for event in events(err)}
    assert "swordfish" not in err


def test_a_killed_process_is_started_again_and_all_drain_on_sigterm(
    start: Start, server: Server, queue: Queue, tmp_path: Path
) -> None:
    process = start("--url", server.url, "worker", "shop:worker", "--processes", "2", "--concurrency", "5")
    until(lambda: len(children(process)) == 2, "two processes")
    victim, other = children(process)
    victim.kill()
    until(
        lambda: (now := children(process)) and len(now) == 2 and victim not in now and other in now,
        "a third process in place of the killed one",
    )
    put = keep_both_busy(queue, tmp_path / "begun", takes=0.3)

    process.terminate()
    _, err = process.communicate(timeout=HANG_S)

    assert process.returncode == 0, err
    ended = [event for event in events(err) if event["event"] == "process ended"]
    assert (ended[0]["pid"], ended[0]["code"]) == (victim.pid, -signal.SIGKILL)
    # What had begun was finished; the rest waits for the next worker.
    assert len(lines(tmp_path / "begun")) == len(lines(tmp_path / "done"))
    stats = queue.stats("t")
    assert stats.running == 0
    assert stats.ready == put - len(lines(tmp_path / "done"))


HIDING = ("redis", "queue", "types", "random", "signal", "token", "streamdq", "stringprep", "filecmp", "uvloop")


@pytest.mark.thorough
def test_files_of_the_working_folder_hide_no_module_that_streamdq_needs(
    start: Start, server: Server, queue: Queue, tmp_path: Path
) -> None:
    for name in HIDING:
        (tmp_path / f"{name}.py").write_text("raise ImportError('this is not the module that was asked for')")
    queue.enqueue("t", {})

    process = start(
        "--url", server.url, "worker", "shop:worker", "--processes", "2", "--burst", "--metrics-port", "0"
    )  # fmt: skip

    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    assert len(lines(tmp_path / "done")) == 1


@pytest.mark.thorough
def test_programs_that_a_handler_starts_have_an_empty_stdin(
    start: Start, server: Server, queue: Queue, tmp_path: Path
) -> None:
    """Not the pipe by which the parent ends its processes."""
    (tmp_path / "shop.py").write_text(WORKER + READER)
    queue.enqueue("read", {})

    process = start("--url", server.url, "worker", "shop:worker", "--processes", "2", "--burst")

    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    assert lines(tmp_path / "read") == ["b'' and ''"]


READER = """
import subprocess, sys

@worker.handler("read")
def read(body: dict) -> None:
    got = subprocess.run(["cat"], stdout=subprocess.PIPE, check=True).stdout
    with open("read", "a") as file:
        file.write(f"{got} and {sys.stdin.read()!r}\\n")
"""


def test_a_handlers_children_end_with_the_worker(start: Start, server: Server, queue: Queue, tmp_path: Path) -> None:
    """Python would wait for them at the end of the process."""
    (tmp_path / "shop.py").write_text(WORKER + FORKING)
    queue.enqueue("fork", {})

    process = start("--url", server.url, "worker", "shop:worker", "--burst", env={"STREAMDQ_GRACE_S": "0"})

    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    assert lines(tmp_path / "pool") == ["[1, 4, 9]", "-15"]


FORKING = """
import multiprocessing, signal
forking = multiprocessing.get_context("fork")

def square(number):
    return number ** 2

@worker.handler("fork")
def fork(body: dict) -> None:
    with forking.Pool(2) as pool, open("pool", "a") as file:
        file.write(f"{pool.map(square, [1, 2, 3])}\\n")
    ended = forking.Process(target=signal.pause)
    ended.start()
    ended.terminate()
    ended.join()
    with open("pool", "a") as file:
        file.write(f"{ended.exitcode}\\n")
    forking.Process(target=signal.pause).start()
"""


@pytest.mark.thorough
def test_a_child_that_returns_from_a_handler_ends(start: Start, server: Server, queue: Queue, tmp_path: Path) -> None:
    """It would go on as the worker does, with the jobs and the event loop of its parent."""
    (tmp_path / "shop.py").write_text(WORKER + LEAVING)
    for topic in ("coroutine", "thread", "returned"):
        queue.enqueue_many(topic, [NewJob(leaves) for leaves in ("returns", "raises", "exits")])

    process = start("--url", server.url, "worker", "shop:worker", "--burst")

    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    assert sorted(lines(tmp_path / "codes")) == sorted(["returns 0", "raises 1", "exits 3"] * 3)
    assert err.count("ValueError: in the child") == 3


LEAVING = """
import sys

def fork(leaves):
    child = os.fork()
    if child == 0:
        if leaves == "raises":
            raise ValueError("in the child")
        if leaves == "exits":
            sys.exit(3)
        return
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open("codes", "a") as file:
        file.write(f"{leaves} {code}\\n")

async def later(leaves):
    fork(leaves)

@worker.handler("coroutine")
async def in_the_loop(leaves: str) -> None:
    fork(leaves)

worker.handler("thread")(fork)

@worker.handler("returned")
def in_the_loop_later(leaves: str) -> object:
    return later(leaves)
"""


@pytest.mark.parametrize("processes", others_later([1, 2], 1))
def test_signals_that_come_while_it_ends_are_the_same_one(server: Server, tmp_path: Path, processes: int) -> None:
    """Ctrl-C pressed twice: an idle worker is through with the first when the second comes."""
    (tmp_path / "shop.py").write_text(ONE_SIGNAL.format(600) + WORKER)
    arguments = ["--url", server.url, "worker", "shop:worker", "--processes", str(processes)]
    process = Forked("streamdq", *arguments, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for _ in range(processes):
        assert any("worker started" in line for line in process.stderr)

    def interrupted() -> bool:
        process.send_signal(signal.SIGINT)
        return process.poll() is not None

    until(interrupted, "it ends while the key is pressed")

    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    assert "Traceback" not in err


INTERRUPTED = (
    ONE_SIGNAL.format(600)
    + """
import asyncio, atexit, signal, sys
from streamdq import Worker
from streamdq.process.signals import drop_at_exit

met = set()

def interrupt(frame, event, argument):
    place = (frame.f_code, frame.f_lasti)
    if place not in met:
        met.add(place)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)

atexit.register(sys.setprofile, None)
drop_at_exit()
"""
)
INTERRUPTED_WORKER = """
worker = Worker(sys.argv[1])

@worker.handler("t")
async def handle(body: dict) -> None:
    sys.setprofile(interrupt)

if sys.argv[2] == "uvloop":
    worker.run()
else:
    asyncio.run(worker.serve(signals=True))
"""
STOPPED_ONCE = INTERRUPTED_WORKER.replace("    sys.setprofile", "    worker.stop()\n    sys.setprofile")
INTERRUPTED_SUPERVISOR = """
supervisor = streamdq.process.processes.Supervisor(["sleep", "60"], 1)
start = supervisor._start

def interrupted_start(number):
    start(number)
    sys.setprofile(interrupt)

supervisor._start = interrupted_start
sys.exit(supervisor.run())
"""


STOPPED_TWICE = """
supervisor = streamdq.process.processes.Supervisor(["sleep", "60"], 1)
start, stop, kill = supervisor._start, supervisor._stop, supervisor._kill

def told_start(number):
    start(number)
    supervisor._children[number].process.terminate = lambda: None
    signal.raise_signal(signal.SIGTERM)

def told_again():
    stop()
    supervisor._stopping_since -= 1000
    signal.raise_signal(signal.SIGTERM)

def interrupted_kill():
    kill()
    sys.setprofile(interrupt)

supervisor._start, supervisor._stop, supervisor._kill = told_start, told_again, interrupted_kill
sys.exit(supervisor.run())
"""


@pytest.mark.parametrize(
    ("program", "loop", "code"),
    [
        pytest.param(INTERRUPTED_WORKER, "asyncio", 0, id="asyncio"),
        pytest.param(INTERRUPTED_WORKER, "uvloop", 0, marks=LATER, id="uvloop"),
        pytest.param(STOPPED_ONCE, "asyncio", 0, marks=LATER, id="second signal"),
        pytest.param(INTERRUPTED_SUPERVISOR, "", 0, id="supervisor"),
        pytest.param(STOPPED_TWICE, "", 128 + signal.SIGTERM, marks=LATER, id="supervisor, second signal"),
    ],
)
def test_signals_after_each_call_on_its_way_to_the_end_are_the_one_that_was_received(
    server: Server, queue: Queue, tmp_path: Path, program: str, loop: str, code: int
) -> None:
    queue.enqueue("t", {})
    (tmp_path / "interrupted.py").write_text(INTERRUPTED + program)
    with Forked("interrupted", server.url, loop, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        _, said = process.communicate(timeout=HANG_S)
    assert process.returncode == code, said
    assert "Traceback" not in said


@pytest.mark.thorough
def test_processes_do_not_outlive_a_killed_supervisor(
    start: Start, server: Server, queue: Queue, tmp_path: Path
) -> None:
    process = start("--url", server.url, "worker", "shop:worker", "--processes", "2", "--concurrency", "5")
    keep_both_busy(queue, tmp_path / "begun", takes=0.2)
    family = children(process)

    process.kill()

    _, alive = psutil.wait_procs(family, timeout=HANG_S)
    assert not alive
    assert len(lines(tmp_path / "begun")) == len(lines(tmp_path / "done"))


def test_a_worker_without_redis_ends_and_does_not_show_the_password(start: Start) -> None:
    env = {**os.environ, "STREAMDQ_URL": "redis://:hunter2@127.0.0.1:1", "STREAMDQ_CALL_TIMEOUT_S": "0.3"}

    process = start("worker", "shop:worker", env=env)

    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 3
    assert "check that it is running" in err
    assert "hunter2" not in err
    assert "Traceback" not in err


def test_watching_goes_on_until_ctrl_c(start: Start, server: Server, queue: Queue) -> None:
    queue.enqueue("t", {}, delay="1h")
    process = start("--url", server.url, "stats", "--watch", "--json", "--interval", "100ms")
    assert process.stdout is not None
    seen = [json.loads(process.stdout.readline()) for _ in range(3)]

    process.send_signal(signal.SIGINT)

    _, err = process.communicate(timeout=HANG_S)
    assert [stats["delayed"] for stats in seen] == [1, 1, 1]
    assert process.returncode == 130
    assert err == ""


@pytest.mark.parametrize("form", [["--json"], []], ids=["json", "text"])
def test_a_reader_that_goes_away_is_no_error(start: Start, server: Server, queue: Queue, form: list[str]) -> None:
    queue.enqueue("t", {}, delay="1h")
    process = start("--url", server.url, "stats", "--watch", *form, "--interval", "100ms")
    assert process.stdout is not None
    assert process.stdout.readline().strip()

    process.stdout.close()

    assert process.wait(timeout=HANG_S) == 1
    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_without_a_url_an_embedded_redis_keeps_the_jobs(start: Start, tmp_path: Path) -> None:
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}

    first = start("enqueue", "t", '{"n": 1}', "--id", "kept", "--delay", "1h", env=env)
    assert first.wait(timeout=HANG_S) == 0
    second = start("get", "t", "kept", "--json", env=env)

    out, err = second.communicate(timeout=HANG_S)
    assert second.returncode == 0, err
    assert json.loads(out)["body"] == {"n": 1}


def test_the_command_lines_url_and_namespace_come_before_those_in_the_code(
    start: Start, server: Server, tmp_path: Path
) -> None:
    code = WORKER.replace("Worker(concurrency=50)", 'Worker(url="redis://127.0.0.1:1", namespace="code")')
    (tmp_path / "shop.py").write_text(code)
    with Queue(server.url, "line") as queue:
        queue.enqueue("t", {})
    environment = {**os.environ, "STREAMDQ_URL": server.url, "STREAMDQ_CALL_TIMEOUT_S": "0.3"}

    by_line = start("--url", server.url, "--namespace", "line", "worker", "shop:worker", "--burst")
    _, err = by_line.communicate(timeout=HANG_S)
    by_environment = start("worker", "shop:worker", "--burst", env=environment)
    by_environment.communicate(timeout=HANG_S)

    assert by_line.returncode == 0, err
    assert len(lines(tmp_path / "done")) == 1
    assert by_environment.returncode == 3  # the code names a URL, and the environment is only a default


def test_a_mover_alone_makes_due_jobs_ready(start: Start, server: Server, queue: Queue) -> None:
    queue.configure("t", create=True, groups=["default"])
    queue.enqueue("t", 1, id="due", delay="100ms")
    mover = start("--url", server.url, "mover", "--metrics-port", "0")
    until(lambda: (job := queue.get("t", "due")) is not None and job.state is JobState.READY, "it is ready")
    mover.send_signal(signal.SIGTERM)
    _, said = mover.communicate(timeout=HANG_S)
    assert mover.returncode == 0, said
    assert said.index("mover started") < said.index("mover stopped"), "its log says that it is there"


@pytest.mark.parametrize(
    ("url", "codec", "says"), [("http://x", "", "does not begin with"), ("redis://x", "nonsense", "STREAMDQ_CODEC")]
)
def test_a_mover_that_cant_begin_says_why_in_a_line(start: Start, url: str, codec: str, says: str) -> None:
    mover = start("--url", url, "mover", env={**os.environ, "STREAMDQ_CODEC": codec})
    _, said = mover.communicate(timeout=HANG_S)
    assert (mover.returncode, said.count("\n")) == (2, 1), said
    assert says in said


@pytest.mark.parametrize("processes", others_later(["1", "2"], "1"))
def test_a_burst_of_what_is_due_ends_though_a_job_waits(
    start: Start, server: Server, queue: Queue, tmp_path: Path, processes: str
) -> None:
    queue.enqueue("t", {"takes": 0})
    queue.enqueue("t", {"takes": 0}, delay="1h")

    process = start("--url", server.url, "worker", "shop:worker", "--burst=due", "--processes", processes)

    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    assert len(lines(tmp_path / "done")) == 1
    assert queue.stats("t").delayed == 1


ENDLESS = """
import asyncio, logging, sys, threading
import streamdq.process.leaving
from streamdq import Worker

sys.stdout.reconfigure(write_through=False)

streamdq.process.leaving.END_S = streamdq.process.leaving._AT_EXIT_S = 0.1
worker = Worker()

class Stuck(logging.Handler):
    def emit(self, _record):
        threading.Event().wait()

def begun(what):
    with open("begun", "a") as file:
        file.write(f"{what}\\n")

@worker.handler("ignores_signal", ttr="1h")
async def ignores_signal(_body: int) -> None:
    begun("ignores_signal")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

@worker.handler("thread", ttr="300ms", retry="1h")
async def thread(_body: int) -> None:
    begun("thread")
    await asyncio.to_thread(threading.Event().wait)

@worker.handler("hang", ttr="300ms", retry="1h")
def hang(_body: int) -> None:
    begun("hang")
    threading.Event().wait()

@worker.handler("block", ttr="1h")
async def block(_body: int) -> None:
    print("printed before")
    begun("block")
    threading.Event().wait()

@worker.handler("log", ttr="300ms", retry="1h")
async def log(_body: int) -> None:
    begun("log")
    logging.getLogger().addHandler(Stuck())
    logging.getLogger("shop").warning("a line that nobody reads")
"""


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.py").write_text(ENDLESS)
    monkeypatch.setenv("STREAMDQ_GRACE_S", "0")
    monkeypatch.setenv("STREAMDQ_HUNG_EXIT_S", "0.1")


@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("topic", others_later(["ignores_signal", "block"], "block"))
def test_on_sigterm_it_ends_without_what_goes_on(
    topic: str, start: Start, server: Server, queue: Queue, tmp_path: Path
) -> None:
    queue.enqueue(topic, 1)
    process = start("--url", server.url, "worker", "shop:worker")
    until(lambda: lines(tmp_path / "begun") == [topic], "the handler runs")
    process.terminate()
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    assert "this process ends without it" in events(err)[-1]["event"]
    assert ("printed before" in out) == (topic == "block"), "what stdout had in its buffer is written"


@pytest.mark.thorough
@pytest.mark.usefixtures("endless")
def test_it_ends_without_threads_of_the_loops_executor(
    start: Start, server: Server, queue: Queue, tmp_path: Path
) -> None:
    """After SIGTERM and, with the other exit code, when handlers hang in all slots."""
    queue.enqueue("thread", 1)
    process = start("--url", server.url, "worker", "shop:worker", "--concurrency", "1")
    until(lambda: lines(tmp_path / "begun") == ["thread"], "the handler runs")
    process.terminate()
    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    assert "asyncio.to_thread" in events(err)[-1]["left"][0]

    queue.enqueue("thread", 1)
    process = start("--url", server.url, "worker", "shop:worker", "--concurrency", "1")
    until(lambda: lines(tmp_path / "begun")[1:] == ["thread"], "the handler runs again")
    queue.enqueue("hang", 1)
    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 4, err


@pytest.mark.usefixtures("endless")
def test_a_log_that_nobody_reads_keeps_no_hung_process_alive(start: Start, server: Server, queue: Queue) -> None:
    queue.enqueue("log", 1)
    process = start("--url", server.url, "worker", "shop:worker")
    process.communicate(timeout=HANG_S)
    assert process.returncode == 4
