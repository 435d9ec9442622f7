"""A real Redis on a private Unix socket, shared by the processes that open its directory.

`EmbeddedServer.open` holds the directory's shared `users.lock`; `supervisor` describes the locks and owns the
server. It ends with its last user. After a crash: a user killed with -9 releases its lock; a killed server is
restarted by the supervisor; a killed supervisor takes the server with it, and any user starts the next one within
about a second. Only if the machine goes down, writes are lost: those of the last second (AOF).
"""

import contextlib
import hashlib
import logging
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, Self

from ..errors import EmbeddedError
from ..forks import ModuleLock, call_in_child
from . import supervisor
from .binary import ServerBinary, find_server, installed_servers

__all__ = ["EmbeddedServer", "ServerBinary", "default_directory", "find_server", "installed_servers"]

_START_LOCK, _SOCKET_RECORD, _LOG = "start.lock", "socket.path", "redis.log"
_POLL_S = 0.01
_WATCH_S, _LONGEST_WATCH_S = 0.5, 30.0
_LONGEST_SOCKET_PATH = 100  # sun_path holds 104 bytes on macOS, 108 on Linux
_LOG_CAP_BYTES = 1 << 20
_ELSEWHERE = "name another directory, embedded://DIR, or the URL of a Redis (STREAMDQ_URL)"

_logger = logging.getLogger(__name__)


def default_directory() -> Path:
    """The folder that a producer and a worker of one user share when neither names one."""
    state = os.environ.get("XDG_STATE_HOME")
    try:
        return (Path(state) if state else Path.home() / ".local" / "state") / "streamdq"
    except RuntimeError as error:
        raise EmbeddedError("There is no home directory to keep data in: use embedded:///DIR.") from error


class EmbeddedServer:
    """One use of a directory's server. All uses in one process share a lock; each must be closed."""

    def __init__(self, use: "_Use") -> None:
        self._use: _Use | None = use
        self.directory = use.directory
        self.socket_path = use.socket_path

    @classmethod
    def open(cls, directory: Path | None = None, *, timeout_s: float = 60) -> Self:
        """Start or join the server of `directory` (None: `default_directory`); returns when it answers.

        The directory is created with mode 0700. An existing one must belong to the user, and nobody else may be able
        to write to it. A forked child inherits the use: the server runs until the child has ended as well.

        Raises:
            EmbeddedError: no server binary, no right to the directory, or a server that does not start.
        """
        try:
            path = (directory or default_directory()).expanduser().resolve()
        except RuntimeError as error:  # of a user that does not exist
            raise EmbeddedError(f"Can't keep a Redis in {directory}: {error}; {_ELSEWHERE}") from error
        with _registry_lock:
            use = _uses.get(path)
            if use is None:
                try:
                    use = _Use(path, timeout_s)
                except (OSError, UnicodeError) as error:  # UnicodeError: the folder's name is not text
                    raise EmbeddedError(f"Can't keep a Redis in {path}: {error}; {_ELSEWHERE}") from error
                _uses[path] = use
            use.count += 1
        return cls(use)

    def close(self) -> None:
        """Release the server, which ends if nobody else uses it. Closing twice does nothing."""
        use, self._use = self._use, None
        if use is None:
            return
        with _registry_lock:
            use.count -= 1
            if use.count == 0:
                if _uses.get(use.directory) is use:
                    del _uses[use.directory]
                use.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Use:
    """This process's hold on a directory: the shared lock, and a thread that replaces a lost supervisor."""

    def __init__(self, directory: Path, timeout_s: float) -> None:
        self.directory = directory
        self.count = 0
        self._timeout_s = timeout_s
        self._closed = threading.Event()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_private(directory)
        self._users = supervisor.open_lock(directory / supervisor.USERS_LOCK)
        try:
            # This waits only while a supervisor ends its server; with the lock, none can any more.
            self._until(time.monotonic() + timeout_s, lambda: supervisor.try_lock(self._users, shared=True))
            self.socket_path = self._start(_socket_path)
        except BaseException:
            os.close(self._users)
            raise
        self._watcher = threading.Thread(target=self._watch, name="streamdq-embedded", daemon=True)
        self._watcher.start()

    def release(self) -> None:
        if self._watcher.is_alive():  # a forked child has no watcher
            self._closed.set()
            self._watcher.join()
        # Closed, never unlocked, because forked children share the lock.
        os.close(self._users)

    def _start(self, choose_socket: Callable[[Path], Path]) -> Path:
        """Make sure that a supervisor runs and its server answers; one process at a time."""
        deadline = time.monotonic() + self._timeout_s
        record = self.directory / _SOCKET_RECORD
        spawned = False

        def ready() -> bool:
            nonlocal spawned
            with self._free_supervisor_lock() as lock:
                if lock is not None and spawned:
                    self._fail("holds a Redis that does not start")
                if lock is not None:
                    # Recorded for processes whose environment would choose a different path.
                    record.touch(mode=0o600)
                    record.write_bytes(os.fsencode(choose_socket(self.directory)))
                    self._spawn(lock, os.fsdecode(record.read_bytes()))
                    spawned = True
            # Checked only while there is a supervisor: a server whose supervisor died still answers while it ends.
            return _answers(os.fsdecode(record.read_bytes()))

        with self._locked(_START_LOCK, deadline):
            self._until(deadline, ready)
            return Path(os.fsdecode(record.read_bytes()))

    def _spawn(self, lock: int, socket_path: str) -> None:
        server = find_server()
        if server.version < (7,) and (self.directory / "appendonlydir").exists():
            # Redis 6.2 would ignore that directory, start empty and hide every job.
            raise EmbeddedError(
                f"The embedded Redis directory {self.directory} was written by Redis 7 or later, but {server.path} is "
                f"{server.dotted}: put a newer server on the PATH, or {_ELSEWHERE}"
            )
        log = self.directory / _LOG
        if log.exists() and log.stat().st_size > _LOG_CAP_BYTES:
            log.replace(log.with_suffix(".log.1"))
        arguments = (supervisor.__file__, self.directory, socket_path, server.path)
        command = [sys.executable, "-I", "-S", *map(str, arguments)]
        log.touch(mode=0o600)
        with log.open("ab") as output:
            status = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[lock],
                start_new_session=True,
            ).returncode
        if status:
            self._fail("can't be taken over")

    def _watch(self) -> None:
        """Replace a supervisor that was killed. This tries a lock twice a second; it sends nothing to Redis."""
        pause = _WATCH_S
        while not self._closed.wait(pause):
            try:
                with self._free_supervisor_lock() as lock:
                    lost = lock is not None
                if lost:
                    gone = "the supervisor of the embedded Redis in %s is gone, starting it again"
                    _log(logging.WARNING, gone, self.directory)
                    self._start(lambda _: self.socket_path)
                pause = _WATCH_S
            except (EmbeddedError, OSError) as error:
                pause = min(pause * 2, _LONGEST_WATCH_S)
                _log(logging.ERROR, "%s Next attempt in %.0f s.", error, pause)

    @contextlib.contextmanager
    def _free_supervisor_lock(self) -> Iterator[int | None]:
        """The supervisor's lock if there is no supervisor, otherwise None. A supervisor that inherits it keeps it."""
        with _lock_file(self.directory / supervisor.SUPERVISOR_LOCK) as lock:
            yield lock if supervisor.try_lock(lock) else None

    @contextlib.contextmanager
    def _locked(self, name: str, deadline: float) -> Iterator[None]:
        with _lock_file(self.directory / name) as lock:
            self._until(deadline, lambda: supervisor.try_lock(lock))
            yield

    def _until(self, deadline: float, done: Callable[[], bool]) -> None:
        while not done():
            if time.monotonic() > deadline:
                self._fail(f"did not become ready within {self._timeout_s:.0f} s")
            if self._closed.wait(_POLL_S):
                self._fail("was closed while it started")

    def _fail(self, what: str) -> NoReturn:
        raise EmbeddedError(
            f"The embedded Redis directory {self.directory} {what}.{_last_lines(self.directory / _LOG)}"
        )


def _log(level: int, text: str, *values: object) -> None:
    """What the program has configured for its log may raise, and the watcher goes on."""
    with contextlib.suppress(Exception):
        _logger.log(level, text, *values)


def _require_private(directory: Path) -> None:
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise EmbeddedError(
            f"Can't keep a Redis in {directory}: it must be a directory of your own that nobody else can write to; "
            f"{_ELSEWHERE}"
        )


def _socket_path(directory: Path) -> Path:
    """DIRECTORY/redis.sock; if that is too long for the kernel, a socket in a private directory with a short path."""
    path = directory / "redis.sock"
    name = f"{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}.sock"
    for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):  # noqa: S108 - owner is checked
        if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
            break
        if base and os.access(base, os.W_OK):
            path = Path(base, f"streamdq-{os.geteuid()}", name)
    if path.parent != directory:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _require_private(path.parent)
    return path


def _answers(path: str) -> bool:
    """Whether a server answers that has loaded its data. Before that, Redis says LOADING."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(1)
            connection.connect(path)
            connection.sendall(b"PING\r\n")
            reply = connection.recv(64)
    except OSError:
        return False
    return bool(reply) and not reply.startswith(b"-LOADING")


def _last_lines(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace", encoding="utf-8").splitlines()[-6:]
    except OSError:
        return ""
    return "".join(f"\n  {line}" for line in [f"Last lines of {log}:", *lines])


@contextlib.contextmanager
def _lock_file(path: Path) -> Iterator[int]:
    lock = supervisor.open_lock(path)
    _short_locks.add(lock)
    try:
        yield lock
    finally:
        _short_locks.discard(lock)
        os.close(lock)


def _after_fork() -> None:
    """A forked child inherits the locks, but no watcher thread: it keeps the uses and drops short-lived locks."""
    global _uses
    for lock in _short_locks:
        os.close(lock)
    _short_locks.clear()
    _uses = {}


_uses: dict[Path, _Use] = {}
_registry_lock = ModuleLock()
_short_locks: set[int] = set()
call_in_child(_after_fork)
