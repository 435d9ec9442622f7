"""Who logs waits for nobody, and nothing ends by a line of the log."""

from __future__ import annotations

import asyncio
import fcntl
import io
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from streamdq.config import Settings
from streamdq.metrics import declared
from streamdq.process import log_lines, logs
from streamdq.process.log_lines import LineHandler
from streamdq.process.logs import Log
from streamdq.process.loop import supervise
from tests.unit.test_forks import in_child
from tests.waiting import HANG_S, eventually

PIPE_BYTES = 4096


class Pipe:
    """A pipe that holds little, and is read only when the test does so."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.stream = os.fdopen(writer, "w", encoding="utf-8")
        self.handler = LineHandler(self.stream)
        self.logger = logging.getLogger("tested.log_lines")
        self.logger.addHandler(self.handler)
        self.logger.propagate = False
        self._read = b""

    def lines(self, count: int) -> list[str]:
        """The next ones."""
        while self._read.count(b"\n") < count:
            self._read += os.read(self.reader, 65_536)
        *found, self._read = self._read.split(b"\n", count)
        return [line.decode() for line in found]

    def close(self) -> None:
        self.logger.removeHandler(self.handler)
        if self.reader >= 0:
            os.close(self.reader)
        self.handler.close()
        self.stream.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def dropped() -> float:
    count: float = declared.LOG_LINES_DROPPED.labels(Settings().namespace)._value.get()
    return count


# -- where nobody reads


def test_lines_come_in_their_order(pipe: Pipe) -> None:
    for number in range(3):
        pipe.logger.warning("%s ä", number)
    assert pipe.lines(3) == ["0 ä", "1 ä", "2 ä"]


def test_a_pipe_that_nobody_reads_makes_nobody_wait(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """And when somebody reads again, a line says how many are missing."""
    monkeypatch.setattr(log_lines, "MOST_LINES", 20)
    before, text = dropped(), "x" * 1000
    for number in range(100):
        pipe.logger.warning("%s %s", number, text)

    assert dropped() - before >= 100 - 20 - 1 - PIPE_BYTES // 1000
    seen = [pipe.lines(1)[0]]
    while not seen[-1].startswith("log lines dropped"):
        seen += pipe.lines(1)
    missing = dropped() - before
    assert [int(line.split()[0]) for line in seen[:-1]] == list(range(len(seen) - 1))
    pipe.logger.warning("again")
    while (line := pipe.lines(1)[0]) != "again":
        seen.append(line)
    assert len(seen) - 1 + missing == 100


def test_a_line_of_any_length_counts_by_its_bytes(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "MOST_BYTES", 100_000)
    before = dropped()
    for _ in range(50):
        pipe.logger.warning("x" * 10_000)
    assert dropped() - before >= 50 - 11


def test_a_pipe_that_is_gone_ends_nothing(pipe: Pipe) -> None:
    before = dropped()
    os.close(pipe.reader)
    pipe.reader = -1
    for _ in range(3):
        pipe.logger.warning("nobody sees this")
    pipe.handler.flush()
    assert dropped() - before == 3


@pytest.mark.thorough
def test_a_process_ends_though_nobody_reads() -> None:
    """It waits for the reader a moment, in case one is only slow."""
    code = """
import logging, sys
from streamdq.process import logs
logs.configure(form="json")
for number in range(2000):
    logging.getLogger("theirs").warning("%s %s", number, "x" * 1000)
sys.stdout.write("ended")
"""
    reader, writer = os.pipe()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writer) as process:
        out, _ = process.communicate(timeout=HANG_S)
    os.close(reader)
    os.close(writer)
    assert (process.returncode, out) == (0, b"ended")


def test_a_process_that_ends_writes_what_waits() -> None:
    code = """
import logging
from streamdq.process import logs
logs.configure(form="json")
for number in range(500):
    logging.getLogger("theirs").warning("%s %s", number, "x" * 1000)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=HANG_S, check=True)
    lines = [json.loads(line)["event"] for line in ran.stderr.splitlines()]
    assert [int(line.split()[0]) for line in lines] == list(range(500))


def test_a_forked_child_writes_its_own_lines_alone(pipe: Pipe) -> None:
    """The thread that writes is the parent's, and so is what waits for it."""
    for number in range(10):
        pipe.logger.warning("parent %s %s", number, "x" * 1000)

    def log() -> None:
        pipe.logger.warning("child")
        assert pipe.handler._writer is not None
        assert pipe.handler._writer._lines.qsize() <= 1

    child = threading.Thread(target=lambda: codes.append(in_child(log)))
    codes: list[int] = []
    child.start()
    child.join()
    seen = pipe.lines(10)
    assert codes == [0]
    assert [line.split()[1] for line in seen if line.startswith("parent")][:9] == [str(n) for n in range(9)]


# -- no stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    "before",
    [
        pytest.param("sys.stderr = None", marks=pytest.mark.thorough),
        pytest.param("sys.stderr.close()", marks=pytest.mark.thorough),
        "<&- >&- 2>&-",
    ],
)
def test_a_worker_runs_without_stderr(before: str, tmp_path: Path) -> None:
    """As under pythonw, or as a daemon whose descriptors are closed."""
    closed = before if "&" in before else ""
    code = f"""
import sys
from streamdq import Queue, Worker
{"" if closed else before}
worker = Worker("memory://quiet")
@worker.handler("t", retry="none")
def handle(body: dict) -> None:
    raise ValueError("seen by nobody")
with Queue("memory://quiet") as queue:
    queue.enqueue("t")
    worker.run(burst=True)
    open({str(tmp_path / "done")!r}, "w", encoding="utf-8").write(str(queue.stats("t").dead))
"""
    subprocess.run(["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, code], timeout=HANG_S, check=True)
    assert (tmp_path / "done").read_text(encoding="utf-8") == "1"


@pytest.mark.parametrize("stream", [None, io.StringIO()], ids=["none", "closed"])
def test_lines_without_a_stream_go_nowhere(stream: io.StringIO | None) -> None:
    if stream is not None:
        stream.close()
    handler = LineHandler(stream)
    handler.handle(logging.makeLogRecord({"msg": "x"}))
    handler.flush()
    handler.close()


# -- what the program has configured fails


class _Raises(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError(record.msg)


class _Refuses(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        raise OSError(record.msg)


@pytest.fixture(params=["handler", "filter", "structlog", "argument"])
def failing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A logging configuration that raises for each line. Returns a field for the line."""
    logger = logging.getLogger("streamdq")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "filters", [])
    if request.param == "handler":
        logger.addHandler(_Raises())
    elif request.param == "filter":
        logger.addFilter(_Refuses())
    elif request.param == "structlog":

        def fail(*_: Any) -> Any:
            raise BrokenPipeError("gone")

        structlog.configure(processors=[fail])
        request.addfinalizer(structlog.reset_defaults)  # noqa: PT021 - only for this one
    return _Unreadable() if request.param == "argument" else "x"


class _Unreadable:
    def __str__(self) -> str:
        raise ValueError("not to be read")


def test_a_line_never_raises(failing: Any) -> None:
    before, log = dropped(), Log()
    log.warning("said", field=failing)
    log.shows("warning")
    assert dropped() - before == 1


async def test_no_loop_ends_by_a_line(failing: Any) -> None:
    runs = []

    async def body() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise OSError(failing)

    await asyncio.wait_for(supervise("tested", body, asyncio.Event(), "tests"), HANG_S)
    assert len(runs) == 3


def test_a_record_that_cant_be_formatted_is_reported(pipe: Pipe) -> None:
    pipe.handler.handle(logging.makeLogRecord({"msg": "%d", "args": ("no number",)}))
    (line,) = pipe.lines(1)
    assert line == "log line can't be shown"


# -- what is long


@pytest.mark.parametrize("word", ["redis://", "a://b@", "password=", "Bearer ", "x-", "'token': '"])
def test_what_is_logged_is_cut_first(word: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "streamdq"):
        Log().warning("failed", error=word * 100_000)
    (text,) = caplog.messages
    assert len(text) < 20_000
    assert "more characters)" in text


@pytest.mark.parametrize("before", range(0, 60, 7))
@pytest.mark.parametrize(
    "secret",
    ["redis://me:hunter2@host/0 x", "https://me:hunter2@host/ x", "Bearer hunter2hunter2 x", "password=hunter2 x"],
)
def test_a_cut_within_a_secret_shows_none_of_it(
    before: int, secret: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_MOST_CHARS", 60)
    monkeypatch.setattr(logs, "_LONGEST_WORD", 30)
    for filler in ("a", "b "):
        with caplog.at_level("WARNING", "streamdq"):
            Log().warning("failed", error=f"{(filler * 60)[:before]} {secret}{filler * 60}")
    assert "hun" not in caplog.text


async def test_the_writer_of_lines_is_no_part_of_a_loop(pipe: Pipe) -> None:
    """An event loop that logs goes on while the pipe is full."""
    went_on = asyncio.Event()
    for _ in range(20):
        pipe.logger.warning("x" * 1000)
    asyncio.get_running_loop().call_soon(went_on.set)
    await eventually(went_on.is_set, "the loop goes on")


@pytest.mark.thorough
def test_a_worker_whose_log_nobody_reads_does_its_jobs_and_ends_on_sigterm() -> None:
    code = """
import os, signal, sys
from streamdq import Queue, Worker
worker = Worker("memory://unread")
left = set(range(200))
@worker.handler("t", retry="none")
async def handle(body: dict) -> None:
    left.discard(body["number"])
    if not left:
        os.kill(os.getpid(), signal.SIGTERM)
    raise ValueError("x" * 1000)
with Queue("memory://unread") as queue:
    queue.enqueue_many("t", [{"body": {"number": number}} for number in left])
    worker.run()
    sys.stdout.write(f"dead: {queue.stats('t').dead}")
"""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writer) as process:
        out, _ = process.communicate(timeout=HANG_S)
    os.close(reader)
    os.close(writer)
    assert (process.returncode, out) == (0, b"dead: 200")
