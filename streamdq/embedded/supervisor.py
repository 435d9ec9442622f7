"""The process that owns the embedded Redis: starts it, restarts it after a crash, ends it with its last user.

Run as a file, `python -I -S supervisor.py DIRECTORY SOCKET BINARY`, so that it costs a bare interpreter and
nothing in DIRECTORY or the package can shadow a standard module. Standard library only.

Three locks in the directory, all `flock`, so that the kernel releases them however a process ends:

- `keeper.lock`, exclusive: one supervisor. The process that starts it takes the lock and passes the open file on. The
  name is historical: processes of several versions may use the same directory.
- `server.lock`, exclusive: one Redis, which inherits it. It stays locked as long as an orphan still writes the AOF.
- `users.lock`, shared by every process that uses the server. When the supervisor gets it, there is no user left.

If the supervisor is killed, Linux ends Redis cleanly (PR_SET_PDEATHSIG). A user process notices that `keeper.lock` is
free, and starts the next supervisor, which waits for `server.lock`.
"""

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

__all__ = ["SERVER_LOCK", "SUPERVISOR_LOCK", "USERS_LOCK", "Supervisor", "open_lock", "try_lock"]

SUPERVISOR_LOCK, SERVER_LOCK, USERS_LOCK = "keeper.lock", "server.lock", "users.lock"

_GRACE_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0
_HEALTHY_S = 60.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def open_lock(path: str | os.PathLike[str]) -> int:
    """Open a lock file, which is created readable for its owner only; the descriptor does not survive an exec."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock if it is free at this moment."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Supervisor:
    """Runs one Redis server until something ends it."""

    def __init__(self, command: list[str], server_lock: int) -> None:
        self._command = command
        self._server_lock = server_lock
        self._ending = False
        self._events, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def run(self) -> int:
        """Serve until the last user has gone (0) or Redis refuses to run (1)."""
        self._listen()
        pause = _FIRST_PAUSE_S
        while True:
            started = time.monotonic()
            server = self._start()
            while not self._ending and server.poll() is None:
                self._wait(None)
            if server.poll() is None:
                return _stop(server)
            if server.returncode > 0:
                # Redis refuses its configuration, AOF or disk: the next start would end the same way.
                _log(f"redis-server refused to run, exit status {server.returncode}")
                return 1
            if time.monotonic() - started > _HEALTHY_S:
                pause = _FIRST_PAUSE_S
            _log(f"redis-server ended unexpectedly ({server.returncode}), starting it again in {pause:.2f} s")
            if self._ends_within(pause):
                return 0
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _listen(self) -> None:
        """Turn the end of the child, a request to end, and the end of the last user into bytes in one pipe."""
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        threading.Thread(target=self._await_last_user, daemon=True).start()

    def _await_last_user(self) -> None:
        # Held until this process has ended: a new user waits, then starts a new supervisor.
        fcntl.flock(open_lock(USERS_LOCK), fcntl.LOCK_EX)
        os.write(self._wake, b"\0")

    def _wait(self, timeout: float | None) -> None:
        if select.select([self._events], [], [], timeout)[0]:
            self._ending |= any(event != signal.SIGCHLD for event in os.read(self._events, 64))

    def _ends_within(self, pause: float) -> bool:
        deadline = time.monotonic() + pause
        while not self._ending and (left := deadline - time.monotonic()) > 0:
            self._wait(left)
        return self._ending

    def _start(self) -> subprocess.Popen[bytes]:
        supervisor = os.getpid()

        def die_with_supervisor() -> None:
            if _LIBC is not None:
                _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != supervisor:  # it died before the kernel knew of our request
                os._exit(0)

        # Always started by the main thread: the signal is tied to the thread that forked.
        return subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            pass_fds=[self._server_lock],
            preexec_fn=die_with_supervisor,
        )


def _stop(server: subprocess.Popen[bytes]) -> int:
    """End Redis with SIGTERM, so that it flushes the AOF."""
    server.terminate()
    try:
        server.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        _log("redis-server did not end in time, killing it")
        server.kill()
        server.wait()
    return 0


def _take_over(socket_path: str) -> int | None:
    """Take the server lock; waits for a server that outlived its supervisor. None if it stays locked."""
    lock = open_lock(SERVER_LOCK)
    deadline = time.monotonic() + _GRACE_S
    asked = False
    while not try_lock(lock):
        if not asked:
            _log("a server without a supervisor is still running, ending it")
            _ask_to_end(socket_path)
            asked = True
        if time.monotonic() > deadline:
            _log("another redis-server still runs on this directory and doesn't end")
            return None
        time.sleep(0.01)
    return lock


def _ask_to_end(socket_path: str) -> None:
    """For systems that don't end a child with its parent. The lock shows when the server has ended."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1)
        connection.connect(socket_path)
        connection.sendall(b"SHUTDOWN NOSAVE\r\n")
        connection.recv(64)


def _log(message: str) -> None:
    # A full disk must not end the supervisor, and with it the server.
    with contextlib.suppress(OSError):
        os.write(2, f"{os.getpid()}:K {time.strftime('%d %b %Y %H:%M:%S')} {message}\n".encode())


def _command(directory: str, socket_path: str, binary: str) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": socket_path,
        "unixsocketperm": "600",
        "dir": directory,
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    return [binary, *(word for name, value in options.items() for word in (f"--{name}", value))]


def main(directory: str, socket_path: str, binary: str) -> int:
    """Become the supervisor in a forked child; the first process returns as soon as no other server can be running."""
    os.umask(0o077)  # the AOF and the log hold users' data
    os.chdir(directory)
    lock = _take_over(socket_path)
    if lock is None:
        return 1
    if os.fork():
        return 0
    return Supervisor(_command(directory, socket_path, binary), lock).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
