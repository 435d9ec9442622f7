"""Processes like those of ``python -m MODULE``, started within milliseconds: the command imports for a second first.

Each process of pytest that asks for one starts a parent, which imports once. It has one thread, no connection, and
forks for each request. The child takes on all that was asked for (arguments, environment, folder, standard streams,
session), and runs the module as Python does, to the interpreter's end. It becomes a child of the process that asked:
Popen waits for it, and nothing stands between the two.

Linux alone lets a process adopt what another has forked.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import inspect
import io
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_IMPORTS = ("streamdq.mover.reclaim",)
READ_AT_IMPORT = {"PROMETHEUS_MULTIPROC_DIR"}
"""Variables that come too late in a child: a process with one of them has to import for itself."""
_PR_SET_CHILD_SUBREAPER = 36
_REQUEST_BYTES = 100_000


class Forked(subprocess.Popen[Any]):
    """``python -m MODULE ARGUMENTS`` with the options of Popen."""

    _close_pipe_fds: Callable[..., None]

    def __init__(
        self, module: str, *arguments: str, stdin: Any = None, stdout: Any = None, stderr: Any = None,
        text: bool | None = None, cwd: str | Path | None = None, env: dict[str, str] | None = None,
        start_new_session: bool = False, imports: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """``imports``: what else it should have imported already, because the command does."""
        self._parent = _parent(tuple(imports))
        super().__init__(
            [module, *arguments], stdin=stdin, stdout=stdout, stderr=stderr, text=text, cwd=cwd or Path.cwd(),
            env=env or dict(os.environ), start_new_session=start_new_session,
        )  # fmt: skip

    def _execute_child(self, *arguments: Any) -> None:
        """Popen has made the pipes, and reads and writes their other ends."""
        plain = inspect.signature(vars(subprocess.Popen)["_execute_child"])
        given = plain.bind(self, *arguments).arguments
        assert READ_AT_IMPORT.isdisjoint(given["env"]), "this one needs a process of its own"
        request = {
            "arguments": given["args"], "environment": given["env"], "folder": str(given["cwd"]),
            "session": given["start_new_session"],
        }  # fmt: skip
        pipes = [("p2cread", "p2cwrite"), ("c2pread", "c2pwrite"), ("errread", "errwrite")]
        inner = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        self.pid = self._parent.fork(request, [fd if fd != -1 else number for number, fd in enumerate(inner)])
        self._child_created = True
        self._close_pipe_fds(*(given[end] for pipe in pipes for end in pipe))


class _Parent:
    """The parent as seen from the process that asks. It ends with that: it reads the end of their connection."""

    def __init__(self, imports: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._adopt = ctypes.CDLL(None, use_errno=True).prctl
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", str(theirs.fileno()), *imports],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def fork(self, request: dict[str, Any], streams: list[int]) -> int:
        with self._lock:
            # Only for so long: a process that adopts has to wait for whatever is orphaned.
            self._adopt(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._control, [json.dumps(request).encode()], streams)
                pid = int(self._control.recv(20))
                assert self._control.recv(20) == b"adopted"
            finally:
                self._adopt(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        return pid

    def _end(self) -> None:
        self._control.close()
        self._process.wait(20)


@cache
def _parent(imports: tuple[str, ...]) -> _Parent:
    return _Parent(imports)


def _forks(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Forks for each request, and ends when no more can come. It returns in the children alone, with the request."""
    while True:
        text, streams, _, _ = socket.recv_fds(control, _REQUEST_BYTES, 3)
        if not text:
            sys.exit()
        assert len([*Path("/proc/self/task").iterdir()]) == 1, "what has threads must not fork"
        waits, adopted = os.pipe()
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child == 0:
                os.close(adopted)
                os.read(waits, 1)
                os.close(waits)
                return json.loads(text), streams
            control.send(str(child).encode())
            os._exit(0)
        os.waitpid(between, 0)
        for each in (waits, adopted, *streams):
            os.close(each)
        control.send(b"adopted")


def _become(request: dict[str, Any], streams: list[int]) -> str:
    """Takes on what was asked for; returns the module to run."""
    if request["session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.stdin, sys.stdout, sys.stderr = map(_stream, range(3), (sys.stdin, sys.stdout, sys.stderr))
    sys.path[0] = request["folder"]
    module, *sys.argv[1:] = request["arguments"]
    return str(module)


def _stream(number: int, parents: Any) -> io.TextIOWrapper:
    """As the interpreter makes it when it starts."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    binary: Any = os.fdopen(number, "wb" if number else "rb", 0 if number and unbuffered else -1, closefd=False)
    return io.TextIOWrapper(
        binary, parents.encoding, parents.errors, newline="\n", write_through=unbuffered,
        line_buffering=not unbuffered and (number == 2 or os.isatty(number)),
    )  # fmt: skip


def main() -> None:
    from streamdq.cli.app import application  # here, as the module is imported by those that ask for a process, too

    _, number, *imports = sys.argv
    for module in [*_IMPORTS, *imports]:
        importlib.import_module(module)
    application()
    gc.freeze()
    with socket.socket(fileno=int(number)) as control:
        request, streams = _forks(control)
    runpy.run_module(_become(request, streams), run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
