"""What the README, the page of what it can do and that for any language show must run as it stands there."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from streamdq import Queue
from tests.redis.harness import taken
from tests.servers import Server, binaries, free_port
from tests.waiting import HANG_S, until

README = Path(__file__).parents[2] / "README.md"
DOCS = README.parent / "docs"
BLOCKS = [
    found
    for page in (README, DOCS / "tour.md", DOCS / "any-language.md")
    for found in re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
]
RUN_ELSEWHERE = {
    "streamdq report": "tests/spark/test_owner_commands.py: it opens a browser",
}
UNTIL_STOPPED = {"streamdq worker": 0, "streamdq stats --watch": 130, "streamdq serve": 0, "streamdq callback": 0,
                 "streamdq dump": 0}  # fmt: skip
"""Commands that go on until they are interrupted, and with what they end."""

pytestmark = pytest.mark.skipif(not binaries(), reason="no Redis server on this machine")


def block(language: str, holds: str) -> str:
    (found,) = (text for kind, text in BLOCKS if kind == language and holds in text)
    return found


def commands(holds: str) -> list[str]:
    """The lines of a console block that begin with a $, joined with those they go on in, without comments."""
    text = block("console", holds).replace("\\\n", " ")
    return [line[2:].partition(" # ")[0].strip() for line in text.splitlines() if line.startswith("$ ")]


class Shell:
    """Runs command lines as a reader would, in a folder of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._env = {**os.environ, "STREAMDQ_URL": url, "PATH": path, "XDG_STATE_HOME": str(folder / "state")}
        self._going: list[tuple[str, subprocess.Popen[bytes], Path]] = []

    def run(self, line: str) -> str:
        """What it printed; it must end well."""
        done = subprocess.run(
            ["bash", "-ec", line], cwd=self.folder, env=self._env, capture_output=True, text=True, timeout=HANG_S
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    def start(self, line: str) -> Path:
        """A command that goes on; the file that it writes to."""
        out = self.folder / f"{len(self._going)}.out"
        words = shlex.split(line.removesuffix("&"))
        with out.open("wb") as file:
            process = subprocess.Popen(words, cwd=self.folder, env=self._env, stdout=file, stderr=subprocess.STDOUT)
        self._going.append((line, process, out))
        return out

    def stop(self) -> None:
        """Ends what goes on, as Ctrl-C does."""
        while self._going:
            line, process, out = self._going.pop()
            process.send_signal(signal.SIGINT)
            expected = next(code for begins, code in UNTIL_STOPPED.items() if line.startswith(begins))
            assert process.wait(HANG_S) == expected, (line, out.read_text())

    def kill(self) -> None:
        for _, process, _ in self._going:
            process.kill()
            process.wait()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(binaries()[-1], appendonly=True) as running:
        yield running


@pytest.fixture
def shell(tmp_path: Path, server: Server) -> Iterator[Shell]:
    opened = Shell(tmp_path, server.url)
    yield opened
    opened.kill()


@pytest.fixture
def queue(server: Server) -> Iterator[Queue]:
    with Queue(server.url) as opened:
        yield opened


def test_each_block_is_run_by_a_test_here() -> None:
    ways = {
        "python": ["closing order", "as claim"],
        "console": ["-m venv", "--processes", "streamdq dump --out", "streamdq serve", "take?"],
    }
    for language, marks in ways.items():
        found = [text for kind, text in BLOCKS if kind == language]
        assert len(found) == len(marks)
        assert [text for mark in marks for text in found if mark in text] == found
    assert {kind for kind, _ in BLOCKS} == ways.keys()
    for why in RUN_ELSEWHERE.values():
        file = why.partition(":")[0]
        assert not file.endswith(".py") or (README.parent / file).exists()


def test_the_table_of_extras_has_each_extra() -> None:
    project = tomllib.loads((README.parent / "pyproject.toml").read_text())["project"]
    table = (DOCS / "tour.md").read_text().partition("\n## Extras\n")[2]
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == project["optional-dependencies"].keys() - {"dev", "docs"}  # those of contributors


def test_the_first_example_runs_and_stands_in_the_first_forty_lines(shell: Shell) -> None:
    text = README.read_text()
    first = block("python", "closing order")
    assert text[: text.index(first) + len(first)].count("\n") <= 45
    (shell.folder / "shop.py").write_text(first)

    printed = shell.run("env -u STREAMDQ_URL python shop.py")

    assert "closing order 42, attempt 1" in printed
    assert "order 41" not in printed


def test_using_it(shell: Shell, queue: Queue) -> None:
    (shell.folder / "using.py").write_text(block("python", "as claim"))

    assert shell.run("python using.py") == "{'order_id': 43}\n"

    figures = queue.stats()
    assert (figures.topics["sms.remind"].enqueued, figures.topics["notify"].enqueued) == (2001, 1)
    assert queue.audit().balanced


@pytest.mark.thorough
def test_the_command_line(shell: Shell, queue: Queue) -> None:
    (shell.folder / "shop.py").write_text(block("python", "closing order"))
    (shell.folder / "jobs.ndjson").write_text('{"body": {"order_id": 1}, "delay": "1h"}\n{"order_id": 2}\n')
    queue.enqueue("order.close", {"order_id": 3}, id="n")
    taken(queue, "order.close").bury("no")
    printed = []

    for line in commands("--processes"):
        if any(line.startswith(begins) for begins in UNTIL_STOPPED):
            shell.start(line)
        else:
            printed.append(shell.run(line))

    until(lambda: queue.stats("order.close").topics["order.close"].groups["default"].done == 2, "what was due is done")
    shell.stop()
    assert "order.close" in (shell.folder / "1.out").read_text()  # of a file it tells at its end
    assert queue.dead("order.close") == []  # kicked, and done
    assert "order.close / order-42, due " in printed[0]
    assert "balanced" in printed[-1]


class Receiver(BaseHTTPRequestHandler):
    got: list[tuple[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((self.path, json.loads(body)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[HTTPServer]:
    handler = type("Handler", (Receiver,), {"got": []})
    with HTTPServer(("127.0.0.1", 0), handler) as opened:
        thread = threading.Thread(target=opened.serve_forever)
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_from_any_language(shell: Shell, queue: Queue, receiver: HTTPServer) -> None:
    port = free_port()  # instead of the ports that the README names: those may be taken
    ports = {"8080": str(port), "9000": str(receiver.server_port), "streamdq serve": f"streamdq serve --port {port}"}

    def here(line: str) -> str:
        for word, instead in ports.items():
            line = line.replace(word, instead)
        return line

    serve, callback, put = commands("streamdq serve")
    out = shell.start(here(serve))
    shell.start(callback)
    until(lambda: '"serving"' in out.read_text(), "the server listens")
    assert json.loads(shell.run(here(put)))["id"] == "order-42"
    until(lambda: receiver.RequestHandlerClass.got, "it was called back")  # type: ignore[attr-defined]
    assert receiver.RequestHandlerClass.got == [("/paid", {"order_id": 42})]  # type: ignore[attr-defined]

    take, finish = commands("take?")
    queue.enqueue("order.close", {"order_id": 42}, id="order-42")
    taken = json.loads(shell.run(here(take)))
    shown = json.loads(block("console", "take?").splitlines()[1].replace(",…", ""))
    assert shown["job"].items() <= taken["job"].items()
    assert {**shown, "claim": 0, "job": 0} == {**taken, "claim": 0, "job": 0}
    assert taken["claim"].startswith(shown["claim"].removesuffix("…"))
    shell.run(here(finish).replace(shown["claim"], taken["claim"]).replace("curl", "curl --fail"))
    assert queue.get("order.close", "order-42") is None
    shell.stop()


@pytest.mark.thorough
def test_learning_from_it(shell: Shell, queue: Queue) -> None:
    queue.enqueue("t", 1)
    taken(queue, "t").finish()
    dump, report = commands("streamdq dump")
    assert any(report.startswith(begins) for begins in RUN_ELSEWHERE)

    shell.start(dump)

    until(lambda: list((shell.folder / "history").rglob("*.parquet")), "there are rows")
    shell.stop()
    output = subprocess.run(
        [sys.executable, "-m", "streamdq", report.split()[1], "--help"], capture_output=True, text=True, timeout=HANG_S
    )
    assert all(word in output.stdout for word in report.split() if word.startswith("--"))
