"""A reader who does what a page says, in a folder of their own: writes its files, types its commands."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from streamdq import Queue
from tests.forked import Forked
from tests.servers import free_port
from tests.waiting import HANG_S, until

ROOT = Path(__file__).parents[2]
PORTS = ("8000", "8080", "8081", "9101", "9422")
"""Those that pages name. A reader here takes others, as these may be taken."""
DEFAULT_PORT = {"streamdq serve": "8080", "streamdq mcp": "8081", "streamdq exporter": "9422"}

NOT_RUN = {
    "pip install ": "tests have no package index; tests/docs/test_pages.py checks the extras that are named",
    "python3 -m venv ": "as pip install",
    "make dashboards": "writes into the checkout; tests/dashboards/test_monitoring.py",
    "cp dashboards": "copies what make dashboards has written; tests/dashboards/test_monitoring.py",
    "promtool": "is not on every machine; tests/dashboards/test_monitoring.py",
    "make faults": "takes many minutes; tests/crash/test_faults.py",
    "make chaos": "takes many minutes",
    "make simulate": "takes many minutes; tests/simulation/test_simulation.py",
    "make mutants": "takes many minutes; tests/mutants/test_python.py, tests/mutants/test_lua.py",
    ".venv/bin/python -m tests.crash.flows": "takes many minutes; tests/crash/test_flows.py",
    ".venv/bin/pytest -m chaos": "takes many minutes; tests/crash/test_faults.py",
    "streamdq analyze": "Spark takes a minute; tests/spark/test_command.py",
    "streamdq capacity": "reads a table that Spark makes; tests/spark/test_owner_commands.py",
    "streamdq what-if": "Spark takes a minute; tests/spark/test_what_if.py",
    "streamdq live": "Spark takes a minute; tests/spark/test_live.py",
    "streamdq sql dump --tables": "reads the tables that Spark makes; tests/spark/test_sql.py",
    "spark-submit": "needs a cluster; tests/spark/test_cluster.py",
    "make wheel": "takes a while; tests/conftest.py builds it",
    "tar czf deps": "packs what pip install has filled; tests/spark/test_cluster.py",
    "export PYSPARK_": "needs a cluster; tests/spark/test_cluster.py",
    "export HADOOP_": "needs YARN",
    "make bench": "takes many minutes",
    "python -m benchmarks.spark_size": "needs what make bench-spark has measured; tests/benchmarks/test_spark_size.py",
    "kubectl": "needs Kubernetes",
    "helm": "needs Kubernetes; tests/deploy/test_chart.py renders the chart",
    "opentelemetry-instrument": "the package is not installed; tests/telemetry/test_instrumentor.py",
    "streamdq doctor --acl |": "makes a user on the Redis that other tests use, too; tests/redis/test_rights.py",
    "export STREAMDQ_URL=": "needs Sentinel or a Cluster; tests/redis/test_sentinel.py",
}
"""Commands of pages that no reader here types, by how they begin, and why."""

_BLOCK = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ([\w./-]+\.(?:py|toml|conf|service|yml))\n")
_SHELL = re.compile(r"[|<>`()*]|\$[\w({]")
_PAUSE = re.compile(r"sleep (\d+)")
_GOES_ON = re.compile(
    r"streamdq (?:serve|callback|exporter|mcp|tail|worker|outbox relay)\b(?!.*--burst)|streamdq .*--(?:follow|watch)\b"
)


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    text: str

    @property
    def file(self) -> str:
        """The file that its first line names; '' if none."""
        found = _FILE.match(self.text)
        return found[1] if found else ""

    @property
    def is_of_another_queue(self) -> bool:
        return "title=" in self.title and '"streamdq"' not in self.title


@dataclass(frozen=True)
class Command:
    """A line that is typed, and what the page shows it prints; '' if nothing."""

    line: str
    printed: str


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Those of lists are indented."""
    return [
        Block(language, title, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE))
        for indent, language, title, text in _BLOCK.findall(page.read_text())
    ]


def commands(block: Block) -> list[Command]:
    """What is typed in a block of a terminal, line by line, without comments."""
    typed = []
    for part in re.split(r"^\$ ", block.text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        line, _, printed = part.partition("\n")
        lines = re.sub(r"(?:^|\s+)#\s.*$", "", line).split("; ") if "(" not in line else [line.partition("  #")[0]]
        typed += [Command(one.strip(), "") for one in lines[:-1]]
        typed.append(Command(lines[-1].strip(), printed.strip()))
    return typed


def why_not_run(line: str) -> str:
    """Why a command is not run, '' if it is."""
    rest = re.sub(r"^(?:[A-Z_]+=\S* )+", "", line)
    return next((why for begins, why in NOT_RUN.items() if rest.startswith(begins)), "")


_STEADY = {
    r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?:UTC|CES?T)": "MOMENT",
    r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z": "MOMENT",
    r"\b(?:\d+[dhm])*\d+(?:\.\d+)?m?s\b": "AGE",
    r"\S+:\d+:[0-9a-f]{8}\b": "CONSUMER",
    r"=[A-Za-z0-9+/]{43}=": "=KEY",
    r"─+": "─",
}
"""What differs from run to run, and what stands for it."""


def is_as_printed(printed: str, got: str, varies: str = "") -> bool:
    """Whether that is what a page shows. There, … stands for anything; `varies` matches what else may differ."""
    steady = {**_STEADY, **({varies: "VARIES"} if varies else {})}
    printed, got = " ".join(printed.split()), " ".join(got.split())
    for pattern, name in steady.items():
        printed, got = re.sub(pattern, name, printed), re.sub(pattern, name, got)
    parts = [re.escape(part.strip()) for part in printed.split("…")]
    return re.fullmatch(r"\s*.*?\s*".join(parts), got, re.DOTALL) is not None


@dataclass
class Reader:
    folder: Path
    url: str
    instead: Mapping[str, str] = field(default_factory=dict)
    """What stands for addresses and secrets of pages that are nobody's."""
    varies: Mapping[str, str] = field(default_factory=dict)
    """By how a command begins, what else differs in its output from run to run."""
    exits: Mapping[str, int] = field(default_factory=dict)
    """By how a command begins, the exit code that the page tells of, if it is not 0."""
    said: str = ""
    _env: dict[str, str] = field(default_factory=dict)
    _ports: dict[str, str] = field(default_factory=lambda: {port: str(free_port()) for port in PORTS})
    _going: list[tuple[str, subprocess.Popen[Any], Path]] = field(default_factory=list)
    _started: int = 0

    def __post_init__(self) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        state = str(self.folder / "state")
        # A terminal shows each line at once, the files that are read here only what is flushed.
        unbuffered = {"PYTHONUNBUFFERED": "1", "COLUMNS": "120"}
        self._env = {**os.environ, "STREAMDQ_URL": self.url, "PATH": path, "XDG_STATE_HOME": state, **unbuffered}

    def follow(self, page: Path) -> None:
        """All of the page, from top to bottom."""
        for block in blocks(page):
            if block.is_of_another_queue:
                continue
            if block.file:
                self.write(block)
            elif block.language == "console":
                self.enter(block)

    def write(self, block: Block) -> None:
        target = self.folder / block.file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.here(block.text))

    def enter(self, block: Block) -> None:
        """Types what a block shows, and compares. A command that goes on ends with its block, unless it has an &."""
        before = len(self._going)
        stays: list[bool] = []
        for command in commands(block):
            if why_not_run(command.line):
                continue
            got = self.type(command.line)
            stays += [command.line.endswith("&")] * (len(self._going) - before - len(stays))
            varies = _of(self.varies, command.line, "")
            assert not command.printed or is_as_printed(command.printed, got, varies), f"{command.line}\n{got}"
        for i in reversed(range(len(stays))):
            if not stays[i]:
                self._interrupt(*self._going.pop(before + i))

    def type(self, line: str) -> str:
        """What it printed."""
        if why_not_run(line):
            return ""
        exit_code, line = _of(self.exits, line, 0), self.here(line)
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self._env[name] = value.strip("'\"").replace("$PWD", str(self.folder))
            return ""
        if pause := _PAUSE.fullmatch(line):
            self._wait_for_jobs(float(pause[1]))
            return ""
        if line.endswith("&") or _GOES_ON.match(line):
            self._start(line.removesuffix("&").strip())
            return ""
        words = shlex.split(line) if line.startswith("streamdq ") and not _SHELL.search(line) else ["bash", "-ec", line]
        with _terminal("y\n") as terminal:
            process = self._process(words, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            out, error = process.communicate(timeout=HANG_S)
        assert process.returncode == exit_code, (line, out.decode(), error.decode())
        self.said += out.decode()
        return str(out.decode())

    def here(self, text: str) -> str:
        """A page's line as it is typed here: with ports that are free, and what was printed in place of …"""
        for theirs, ours in self.instead.items():
            text = text.replace(theirs, ours)
        for begins, port in DEFAULT_PORT.items():
            if text.startswith(begins) and "--port" not in text:
                text = text.replace(begins, f"{begins} --port {port}", 1)
        for port, ours in self._ports.items():
            text = re.sub(rf"\b{port}\b", ours, text)
        return re.sub(r"([\w.:-]+)…", lambda found: self._printed(found[1]), text)

    def _printed(self, begins: str) -> str:
        found: list[str] = re.findall(rf"(?<![\w.])({re.escape(begins)}[\w.:+/=-]+)", self.said)
        return found[-1] if found else f"{begins}…"

    def _process(self, words: list[str], **streams: Any) -> subprocess.Popen[Any]:
        if words[0] == "streamdq":
            return Forked("streamdq", *words[1:], cwd=self.folder, env=self._env, **streams)
        return subprocess.Popen(words, cwd=self.folder, env=self._env, **streams)

    def _start(self, line: str) -> None:
        out = self.folder / f"{self._started}.out"
        self._started += 1
        with out.open("wb") as file:
            process = self._process(shlex.split(line), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
        self._going.append((line, process, out))
        if line.startswith("streamdq") or "streamdq_worker" in line:
            until(lambda: is_ready(line, process.pid, out), f"{line} has started")
        for port in self._ports.values():
            if port in line:
                until(partial(_listens, int(port)), f"{line} listens")

    def _wait_for_jobs(self, pause_s: float) -> None:
        """Waits until the jobs that the page leaves time for have ended: none is ready, running or to be retried,
        and none is due in so many seconds.
        """
        with Queue(self.url, self._env.get("STREAMDQ_NAMESPACE")) as queue:
            until(lambda: _are_ended(queue, pause_s), "the jobs have ended")

    @property
    def seen(self) -> str:
        """Everything that was printed so far."""
        return self.said + "".join(out.read_text() for _, _, out in self._going)

    def sees(self, text: str) -> bool:
        return text in f"\n{self.seen}"

    def stop(self) -> None:
        """Ctrl-C for what goes on; streamdq's commands end well."""
        while self._going:
            self._interrupt(*self._going.pop())

    def _interrupt(self, line: str, process: subprocess.Popen[Any], out: Path) -> None:
        process.send_signal(signal.SIGINT)
        code = process.wait(HANG_S)
        self.said += out.read_text()
        assert code == 0 or not line.startswith("streamdq"), (line, code, out.read_text())

    def kill(self) -> None:
        for _, process, _ in self._going:
            process.kill()
            process.wait()


T = TypeVar("T")


def _of(table: Mapping[str, T], line: str, default: T) -> T:
    return next((value for begins, value in table.items() if line.startswith(begins)), default)


@contextlib.contextmanager
def _terminal(answer: str) -> Iterator[int]:
    """A terminal to read from, at which somebody has typed that already."""
    theirs, ours = pty.openpty()
    try:
        os.write(theirs, answer.encode())
        yield ours
    finally:
        os.close(ours)
        os.close(theirs)


def is_ready(line: str, pid: int, out: Path) -> bool:
    """It ends well from when it handles SIGTERM."""
    if line.startswith(("streamdq worker", "streamdq callback")) or "streamdq_worker" in line:
        return "worker started" in out.read_text()
    if line.startswith("streamdq outbox relay"):  # only then do other commands find it
        return "relaying" in out.read_text()
    caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(caught and int(caught[1], 16) & 1 << signal.SIGTERM - 1)


def _are_ended(queue: Queue, pause_s: float) -> bool:
    topics, by = queue.stats().topics.values(), (time.time() + pause_s) * 1000
    groups = [group for topic in topics for group in topic.groups.values()]
    is_busy = any(group.ready or group.running or group.retrying for group in groups)
    return not is_busy and all(topic.next_due_ms is None or topic.next_due_ms > by for topic in topics)


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
