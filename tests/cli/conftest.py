"""Runs the command line: in this process if that shows the same, otherwise like a user's shell."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json

from streamdq import Queue
from streamdq.cli import app as cli
from tests.forked import READ_AT_IMPORT, Forked
from tests.servers import Pool, Server, binaries

COMMAND = [sys.executable, "-m", "streamdq"]


@dataclass(frozen=True)
class Result:
    """A command's exit code and output."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout, which must be one JSON value on one line."""
        assert self.out.count("\n") == 1, self.out
        return from_json(self.out)


Run = Callable[..., Result]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the machine changes what is printed."""
    for name in os.environ:
        if name.startswith("STREAMDQ_") and name != "STREAMDQ_REDIS_SERVER":
            monkeypatch.delenv(name)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.fixture(autouse=True)
def own_finders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are not looked for in the folders in which earlier tests started workers."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))


@pytest.fixture
def redis_server(newest: Server) -> Server:
    """What a command does on each version, tests/redis tries through the library."""
    return newest


@pytest.fixture
def server(servers: Pool) -> Server:
    """One server, for tests of code that does not depend on the server."""
    if not binaries():
        pytest.skip("no Redis server on this machine")
    server = servers[binaries()[0]]
    server.flush()
    return server


@pytest.fixture
def run(redis_server: Server, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line on the server, in this process."""

    def carry_out(*arguments: str, url: str = redis_server.url) -> Result:
        capsys.readouterr()
        code = cli.run(["--url", url, *arguments])
        return Result(code, *capsys.readouterr())

    return carry_out


@pytest.fixture
def queue(redis_server: Server) -> Iterator[Queue]:
    with Queue(redis_server.url) as opened:
        yield opened


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a command line as a separate process, in ``tmp_path``; kills it after the test if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, **options: Any) -> subprocess.Popen[str]:
        given: dict[str, Any] = {
            "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path,
        }  # fmt: skip
        given |= options
        process: subprocess.Popen[str]
        if READ_AT_IMPORT.isdisjoint(given.get("env", {})):
            process = Forked("streamdq", *arguments, text=True, **given)
        else:
            process = subprocess.Popen([*COMMAND, *arguments], text=True, **given)
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
