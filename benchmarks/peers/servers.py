"""The servers: each started for one run, empty, on loopback, and without persistence."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import psutil

from benchmarks.server import RedisServer, free_port
from streamdq.embedded.binary import ServerBinary

# The script itself: the one that Debian puts on the path insists on the account and the folders of the service.
RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"
ENVIRONMENTS = Path(__file__).parent / ".environments"
_BUNQUEUE = ENVIRONMENTS / "bunqueue" / "node_modules"
BUN = _BUNQUEUE / ".bin" / "bun"
_READY_S, _LOOK_S = 60.0, 0.02


class Server(Protocol):
    url: str
    pid: int

    def memory_bytes(self) -> int: ...

    def commands(self) -> int | None: ...

    def kill_and_start(self) -> None: ...


class Redis:
    """Redis, without persistence unless it is to be killed."""

    def __init__(self, server: RedisServer) -> None:
        self.url, self.pid, self._server = server.url, server.pid, server

    def memory_bytes(self) -> int:
        return self._server.memory_bytes()

    def commands(self) -> int | None:
        """Commands so far, those that scripts send among them, without the question for them."""
        stats = self._server.info("commandstats")
        return sum(int(row["calls"]) for name, row in stats.items() if "info" not in name)

    def kill_and_start(self) -> None:
        self._server.kill_and_start()


class OtherServer:
    """A server of which only the memory of its processes is known."""

    def __init__(self, url: str, pid: int) -> None:
        self.url, self.pid, self._process = url, pid, psutil.Process(pid)

    def memory_bytes(self) -> int:
        processes = [self._process, *self._process.children(recursive=True)]
        return sum(int(process.memory_info().rss) for process in processes)

    def commands(self) -> int | None:
        return None

    def kill_and_start(self) -> None:
        raise RuntimeError("only Redis is killed")


@contextmanager
def redis(binary: ServerBinary, appendonly: bool = False) -> Iterator[Server]:
    with RedisServer(binary, appendonly=appendonly) as server:
        server.must_share_clock()
        yield Redis(server)


@contextmanager
def beanstalkd(_: ServerBinary, _appendonly: bool = False) -> Iterator[Server]:
    """Without a log on disk."""
    port = free_port()
    with _started(["beanstalkd", "-l", "127.0.0.1", "-p", str(port)], port) as pid:
        yield OtherServer(f"beanstalk://127.0.0.1:{port}", pid)


@contextmanager
def rabbitmq(_: ServerBinary, _appendonly: bool = False) -> Iterator[Server]:
    """A node of its own, in a folder that is deleted afterwards."""
    port, names = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="streamdq-peers-", ignore_cleanup_errors=True) as folder:
        Path(folder, "rabbitmq.conf").write_text(f"listeners.tcp.default = 127.0.0.1:{port}\n", encoding="utf-8")
        Path(folder, "enabled_plugins").write_text("[].\n", encoding="utf-8")
        ours = {
            "HOME": folder,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
            "RABBITMQ_NODENAME": "peers@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
        }
        try:
            with _started([RABBITMQ], port, ours) as pid:
                yield OtherServer(f"amqp://guest:guest@127.0.0.1:{port}/", pid)
        finally:
            # A node leaves the daemon behind that tells nodes each other's ports.
            subprocess.run(["epmd", "-port", str(names), "-kill"], capture_output=True, check=False)


@contextmanager
def bunqueue(_: ServerBinary, _appendonly: bool = False) -> Iterator[Server]:
    """Without a data path, so it keeps jobs in memory."""
    port, http = free_port(), free_port()
    ports = ["--host", "127.0.0.1", "--tcp-port", str(port), "--http-port", str(http)]
    with _started([str(BUN), str(_BUNQUEUE / "bunqueue" / "dist" / "cli" / "index.js"), "start", *ports], port) as pid:
        yield OtherServer(f"tcp://127.0.0.1:{port}", pid)


PROGRAMS = {"beanstalkd": ("beanstalkd",), "rabbitmq": (RABBITMQ, "epmd")}
SERVERS = {"redis": redis, "beanstalkd": beanstalkd, "rabbitmq": rabbitmq, "bunqueue": bunqueue}


@contextmanager
def _started(command: list[str], port: int, ours: Mapping[str, str] | None = None) -> Iterator[int]:
    """The process, once it answers. It is killed at the end, with those that it started."""
    quiet = subprocess.DEVNULL
    environment = {**os.environ, **(ours or {})}
    with subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet, start_new_session=True) as process:
        try:
            until(lambda: _answers(port), f"{Path(command[0]).name} answers", _READY_S)
            yield process.pid
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def until(condition: Callable[[], bool], what: str, within_s: float) -> None:
    """Waits.

    Raises:
        TimeoutError
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:.0f} s: {what}")
        time.sleep(_LOOK_S)
