"""Publishes whether workers are alive and ready: in a file, on a port, and to systemd."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any, ClassVar

from pydantic import TypeAdapter

from ..config import HEALTH_FILE
from ..errors import InvalidInput
from ..private_files import private
from .health import Health, Report
from .logs import log, what

_EACH_S = 1.0
_READ_S = 5.0  # for a caller to send its request
_CALLERS = 32

Source = Callable[[], Sequence[Report]]


def read(path: Path) -> Health:
    """The health that a worker has written to its file; without a file, no process runs.

    Raises:
        InvalidInput: it can't be read, or is another file.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Health(())
    except OSError as error:
        raise InvalidInput(f"health: can't read {path}: {what(error)}") from None
    try:
        found = TypeAdapter(Health).validate_json(text)
    except ValueError:
        raise InvalidInput(f"health: {path} is not the health file of a worker") from None
    now = time.monotonic()
    return Health([one.seen_at(now) for one in found.processes])


class ProcessHealth:
    """The files in which the processes of one command leave their health, for the parent to publish it as one."""

    def __init__(self, folder: Path, count: int) -> None:
        self._files = [folder / str(number) for number in range(count)]

    @classmethod
    @contextlib.contextmanager
    def made(cls, count: int) -> Iterator[ProcessHealth]:
        with tempfile.TemporaryDirectory(prefix="streamdq-health-", ignore_cleanup_errors=True) as folder:
            yield cls(Path(folder), count)

    def environment(self, number: int) -> dict[str, str]:
        return {HEALTH_FILE: str(self._files[number])}

    def ended(self, number: int) -> None:
        self._files[number].unlink(missing_ok=True)

    def reports(self) -> list[Report]:
        """A process that has not written its file yet is starting."""
        return [one for file in self._files for one in read(file).processes or [Report(time.monotonic())]]


@contextlib.contextmanager
def published(source: Source, file: Path | None, host: str, port: int | None) -> Iterator[int | None]:
    """Until the end of the block, publishes the health in the file, on the port, and to systemd if that has asked for
    it. Yields the port. A thread does so, as part of the health is whether the event loop runs.

    Raises:
        InvalidInput: the file can't be written, or the port not be listened on.
    """
    with contextlib.ExitStack() as stack:
        given = os.environ.pop("NOTIFY_SOCKET", "")  # which is not for programs that handlers start
        publishers: list[Callable[[Health], None]] = []
        if file is not None:
            to_file = stack.enter_context(contextlib.closing(_ToFile(file)))
            try:
                to_file(Health(source()))
            except OSError as error:
                raise InvalidInput(f"health: can't write the file {file}: {what(error)}; choose another file") from None
            publishers.append(to_file)
        if given:
            publishers.append(stack.enter_context(contextlib.closing(_ToSystemd(given))))
        if publishers:
            stack.enter_context(_repeated(source, publishers))
        yield None if port is None else stack.enter_context(_served(source, host, port))


@contextlib.contextmanager
def _repeated(source: Source, publishers: Sequence[Callable[[Health], None]]) -> Iterator[None]:
    """One that fails keeps nothing from the others: systemd would end a worker whose disk is full."""
    ended, failing = threading.Event(), set[Callable[..., Any]]()

    def attempt(call: Callable[..., Any], *args: Any) -> Any:
        try:
            result = call(*args)
        except (OSError, InvalidInput) as error:
            if call not in failing:
                log.warning("health not published", error=what(error))
            failing.add(call)
            return None
        failing.discard(call)
        return result

    def run() -> None:
        while True:
            if (reports := attempt(source)) is not None:
                for publish in publishers:
                    attempt(publish, Health(reports))
            if ended.wait(_EACH_S):
                return

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
        self._new = path.parent / f".{path.name}.{os.getpid()}"
        self._written: int | None = None  # the inode
        self._is_shared = False

    def __call__(self, health: Health) -> None:
        if self._written is not None and not self._is_shared and self._found() not in (None, self._written):
            self._is_shared = True
            log.warning("two workers write the same health file; give each its own", file=str(self._path))
        try:
            with open(self._new, "w", encoding="utf-8", opener=private) as file:
                json.dump(health.json(), file)
            written = self._new.stat().st_ino
            self._new.replace(self._path)
        except OSError:
            self._new.unlink(missing_ok=True)
            raise
        self._written = written

    def _found(self) -> int | None:
        try:
            return self._path.stat().st_ino
        except FileNotFoundError:
            return None

    def close(self) -> None:
        """Removes the file, unless another worker has replaced it."""
        with contextlib.suppress(OSError):
            if self._found() == self._written:
                self._path.unlink(missing_ok=True)


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
        server = _server(host, port, Answer)
    except (OSError, OverflowError, UnicodeError) as error:  # UnicodeError: it can't be a host name
        raise InvalidInput(f"health: can't listen on {host}:{port}: {error}; choose another port or host") from None
    listens_on: int = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, name="streamdq-health-port", daemon=True)
    thread.start()
    log.info("health served", host=host, port=listens_on)
    try:
        yield listens_on
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _server(host: str, port: int, answer: type[BaseHTTPRequestHandler]) -> ThreadingTCPServer:
    """Not an HTTPServer: that looks its host up in DNS, which may take long."""

    class Server(ThreadingTCPServer):
        address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        allow_reuse_address = True
        daemon_threads = True
        block_on_close = False  # a caller that is slow to ask does not hold up the worker's end
        callers: ClassVar[deque[socket.socket]] = deque(maxlen=_CALLERS)  # the last ones, most of which have ended

        def process_request(self, request: Any, client_address: Any) -> None:
            """Slow callers must not use up the worker's threads and descriptors: the oldest makes room."""
            if len(self.callers) == _CALLERS:
                with contextlib.suppress(OSError):  # it has ended
                    self.callers[0].shutdown(socket.SHUT_RDWR)
            self.callers.append(request)
            super().process_request(request, client_address)

        def handle_error(self, *_: Any) -> None:
            """A caller has gone away."""

    return Server((host, port), answer)
