"""Whether workers are alive and ready, for what watches them: a file, a port, and systemd."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

from ..errors import InvalidInput
from ..metrics import declared
from ..private_files import private
from .logs import log, what

STALLED_S = 10.0
"""A worker is stalled when its event loop, or its whole process, has run nothing for so long; or when handlers hang in
all of its slots.
"""
HEALTH_FILE = "STREAMDQ_HEALTH_FILE"
_EACH_S = 1.0
_READ_S = 5.0  # for a caller to send its request

State = Literal["starting", "ready", "draining"]


@dataclass(frozen=True, slots=True)
class Report:
    """The health of one worker process. ``stalled``: by what (process, loop or handlers), or empty; ``at``: when this
    was so, on the host's monotonic clock.
    """

    at: float
    state: State = "starting"
    stalled: str = ""
    consumer: str = ""
    pid: int = 0
    loop_blocked_s: float = 0.0
    hung: int = 0
    running: int = 0
    slots: int = 0
    last_claim_s: float | None = None

    @classmethod
    def of_process(cls) -> Report:
        """Of this process, which does not serve yet."""
        return cls(time.monotonic(), pid=os.getpid())

    @property
    def ready(self) -> bool:
        return self.state == "ready" and not self.stalled

    def seen_at(self, now: float) -> Report:
        """What it is worth later: a process that no longer reports stands still, or is gone."""
        return self if 0 <= now - self.at < STALLED_S else replace(self, stalled="process")


class WorkerHealth:
    """What a worker's threads know of its health. Any thread may write and read it."""

    def __init__(self, namespace: str, group: str, slots: int) -> None:
        self.state: State = "starting"
        self.slots = slots
        self.consumer = ""
        self._blocked_s = 0.0
        self._hung = 0
        self._claimed_at: float | None = None
        self._gauge = declared.STALLED.labels(namespace, group)
        self._gauge.set(0)

    @property
    def stalled(self) -> str:
        if self._blocked_s >= STALLED_S:
            return "loop"
        return "handlers" if self._hung >= self.slots else ""

    def blocked(self, seconds: float) -> None:
        """For so long the event loop has not answered."""
        self._blocked_s = seconds
        self._gauge.set(bool(self.stalled))

    def hang(self, handlers: int) -> None:
        """So many handlers go on beyond their TTR."""
        self._hung = handlers
        self._gauge.set(bool(self.stalled))

    def claimed(self) -> None:
        self._claimed_at = time.monotonic()

    def report(self, running: int) -> Report:
        now = time.monotonic()
        claim_s = None if self._claimed_at is None else round(now - self._claimed_at, 1)
        return Report(
            now, self.state, self.stalled, self.consumer, os.getpid(), round(self._blocked_s, 2), self._hung, running,
            self.slots, claim_s,
        )  # fmt: skip

    def close(self) -> None:
        self._gauge.set(0)


@dataclass(frozen=True, slots=True)
class Health:
    """Of all processes of a command. Those of several are restarted one by one, so as long as one works, a restart of
    all of them helps nobody.
    """

    processes: Sequence[Report]

    @property
    def alive(self) -> bool:
        return not self.processes or not all(one.stalled for one in self.processes)

    @property
    def ready(self) -> bool:
        return any(one.ready for one in self.processes)

    def json(self) -> dict[str, Any]:
        return {"alive": self.alive, "ready": self.ready, "processes": [asdict(one) for one in self.processes]}


Source = Callable[[], Sequence[Report]]


def read(path: Path) -> Health:
    """The health that a worker has written to its file.

    Raises:
        InvalidInput: there is no such file, or it is another one.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"health: can't read {path}: {what(error)}; does its worker run?") from None
    try:
        found = [Report(**one) for one in json.loads(text)["processes"]]
    except (ValueError, TypeError, KeyError):
        raise InvalidInput(f"health: {path} is not the health file of a worker") from None
    now = time.monotonic()
    return Health([one.seen_at(now) for one in found])


class ProcessHealth:
    """The files in which the processes of one command leave their health, for the parent to tell it together."""

    def __init__(self, folder: Path, count: int) -> None:
        self._files = [folder / str(number) for number in range(count)]

    @classmethod
    @contextlib.contextmanager
    def open(cls, count: int) -> Iterator[ProcessHealth]:
        with tempfile.TemporaryDirectory(prefix="streamdq-health-", ignore_cleanup_errors=True) as folder:
            yield cls(Path(folder), count)

    def environment(self, number: int) -> dict[str, str]:
        return {HEALTH_FILE: str(self._files[number])}

    def ended(self, number: int) -> None:
        self._files[number].unlink(missing_ok=True)

    def reports(self) -> list[Report]:
        """A process that has not written its file yet is starting."""
        found: list[Report] = []
        for file in self._files:
            try:
                found += read(file).processes
            except InvalidInput:
                found.append(Report(time.monotonic()))
        return found


@contextlib.contextmanager
def published(source: Source, file: Path | None, host: str, port: int | None) -> Iterator[int | None]:
    """Until the end of the block, tells the health in the file, on the port, and systemd if that has asked for it.
    Yields the port. A thread does so, as what it tells of is whether the event loop runs.

    Raises:
        InvalidInput: the file can't be written, or the port not be listened on.
    """
    with contextlib.ExitStack() as stack:
        given = os.environ.pop("NOTIFY_SOCKET", "")  # which is not for programs that handlers start
        tellers: list[Callable[[Health], None]] = []
        if file is not None:
            stack.callback(file.unlink, missing_ok=True)
            tellers.append(_ToFile(file))
        if given:
            tellers.append(stack.enter_context(contextlib.closing(_ToSystemd(given))))
        if tellers:
            stack.enter_context(_repeated(source, tellers))
        yield None if port is None else stack.enter_context(_served(source, host, port))


@contextlib.contextmanager
def _repeated(source: Source, tellers: Sequence[Callable[[Health], None]]) -> Iterator[None]:
    ended, failed = threading.Event(), False

    def tell() -> None:
        health = Health(source())
        for teller in tellers:
            teller(health)

    def run() -> None:
        nonlocal failed
        while not ended.wait(_EACH_S):
            try:
                tell()
                failed = False
            except OSError as error:
                if not failed:
                    log.warning("health not published", error=what(error))
                failed = True

    try:
        tell()
    except OSError as error:
        raise InvalidInput(f"health: can't be published: {what(error)}") from None
    thread = threading.Thread(target=run, name="streamdq-health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_READ_S)


class _ToFile:
    """Replaces the file, so that nobody reads half of it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, health: Health) -> None:
        new = self._path.with_name(f"{self._path.name}.new")
        with open(new, "w", encoding="utf-8", opener=private) as file:
            json.dump(health.json(), file)
        new.replace(self._path)


class _ToSystemd:
    """As a unit with Type=notify and WatchdogSec expects it: sd_notify(3)."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(_EACH_S)
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._sent = ""

    def __call__(self, health: Health) -> None:
        lines = ["WATCHDOG=1"] if health.alive else []
        state = "READY=1" if health.ready else ""
        if health.processes and all(one.state == "draining" for one in health.processes):
            state = "STOPPING=1"
        if state and state != self._sent:
            lines.append(state)
        if lines:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        self._sent = state or self._sent

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def _served(source: Source, host: str, port: int) -> Iterator[int]:
    class Answer(BaseHTTPRequestHandler):
        timeout = _READ_S

        def do_GET(self) -> None:
            health = Health(source())
            good = {"/health/alive": health.alive, "/health/ready": health.ready}.get(self.path.partition("?")[0])
            body = json.dumps(health.json()).encode() if good is not None else b""
            self.send_response(404 if good is None else 200 if good else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """A probe every second is no news."""

    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = type("_Server", (ThreadingHTTPServer,), {"address_family": family, "handle_error": _ignore})
        server: ThreadingHTTPServer = made((host, port), Answer)
    except (OSError, OverflowError, UnicodeError) as error:  # UnicodeError: it can't be a host name
        raise InvalidInput(f"health: can't listen on {host}:{port}: {error}; choose another port or host") from None
    thread = threading.Thread(target=server.serve_forever, name="streamdq-health-port", daemon=True)
    thread.start()
    log.info("health served", host=host, port=server.server_port)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _ignore(*_: Any) -> None:
    """A caller has gone away."""
