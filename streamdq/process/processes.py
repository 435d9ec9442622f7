"""Several worker processes under one parent, which starts them, restarts those that die, and stops them together.

A child watches a pipe that only its supervisor holds open (``end_with_parent``), so that none is left behind even
when the supervisor is killed with -9.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Protocol

from .logs import log
from .signals import LOOK_S, ONE_SIGNAL_S, install, uninstall

FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.5, 30.0
_HEALTHY_S = 10.0
_WITHOUT_REDIS_S = 60.0  # to find out that Redis is away takes a while
_USAGE, _UNAVAILABLE = 2, 3
_CHILD_S = 3.0  # for a child of a handler to end by itself


def command_line(*arguments: str) -> list[str]:
    """A command line that runs the same streamdq with the same Python, whatever modules the working folder has: -P."""
    return [sys.executable, "-P", "-m", "streamdq", *arguments]


def end_with_parent() -> None:
    """Drains this process, like SIGTERM, when the pipe that is its stdin is closed, whose other end the parent holds.
    Its stdin, which handlers and the programs that they start may read, is empty from now on.
    """
    control = os.dup(0)  # which programs that this process starts don't inherit
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)

    def watch() -> None:
        while os.read(control, 1024):
            continue
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="streamdq-parent", daemon=True).start()


def end_children() -> None:
    """Ends the processes that handlers have started by multiprocessing: Python would wait for them when it exits, and
    those of a handler that was given up may go on for ever.
    """
    if "multiprocessing" not in sys.modules:
        return
    import multiprocessing

    children = multiprocessing.active_children()
    for child in children:
        child.terminate()
    for child in children:
        child.join(_CHILD_S)
        if child.is_alive():
            child.kill()


@dataclass(frozen=True, slots=True)
class _Ended:
    number: int
    code: int


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    backoff_s: float = FIRST_BACKOFF_S
    restart_at: float | None = None


class ProcessFiles(Protocol):
    """Where the processes leave something for their parent: metrics (exporter.py), or their health (health.py)."""

    def environment(self, number: int) -> dict[str, str]: ...

    def ended(self, number: int) -> None: ...


class Supervisor:
    """Runs ``count`` copies of a command until all have ended with exit code 0, or it is stopped."""

    def __init__(
        self, command: Sequence[str], count: int, *, burst: bool = False, files: Sequence[ProcessFiles] = ()
    ) -> None:
        self._command = list(command)
        self._files = files
        self._burst = burst
        self._children = [_Child() for _ in range(count)]
        self._events: SimpleQueue[_Ended | int] = SimpleQueue()  # a child that ended, or a signal
        self._stopping_since: float | None = None
        self._code = 0

    def run(self) -> int:
        """Returns the exit code: 0, or that of a child whose failure a restart can't fix."""
        before = install(self._on_signal)
        try:
            for number in range(len(self._children)):
                self._start(number)
            while self._unfinished():
                self._handle(self._next_event())
        finally:
            self._kill()
            uninstall(before, self._stopping_since)
        return self._code

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._events.put(number)  # reentrant: safe in a signal handler

    def _start(self, number: int) -> None:
        child = self._children[number]
        child.restart_at, child.started = None, time.monotonic()
        try:
            child.process = self._spawn(number)
        except (OSError, RuntimeError) as error:  # no memory, or too many processes, files or threads: the others go on
            log.error("process not started", number=number, error=f"{type(error).__name__}: {error}")
            self._start_later(child)
        else:
            log.info("process started", number=number, pid=child.process.pid)

    def _spawn(self, number: int) -> subprocess.Popen[bytes]:
        # In its own session, so that a Ctrl-C reaches it only from here, not from the terminal as well.
        env = dict(os.environ)
        for files in self._files:
            env |= files.environment(number)
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE, start_new_session=True, env=env)

        def wait() -> None:
            self._events.put(_Ended(number, process.wait()))

        try:
            threading.Thread(target=wait, name=f"streamdq-wait-{number}", daemon=True).start()
        except RuntimeError:
            process.kill()
            process.communicate()
            raise
        return process

    def _start_later(self, child: _Child) -> None:
        child.restart_at = time.monotonic() + child.backoff_s
        child.backoff_s = min(child.backoff_s * 2, LONGEST_BACKOFF_S)

    def _unfinished(self) -> bool:
        return any(child.process is not None or child.restart_at is not None for child in self._children)

    def _next_event(self) -> _Ended | int | None:
        """The next event; None if it is time to start a child again, or to look for a signal."""
        due = [child.restart_at - time.monotonic() for child in self._children if child.restart_at is not None]
        try:
            return self._events.get(timeout=max(0.0, min([LOOK_S, *due])))
        except Empty:
            return None

    def _handle(self, event: _Ended | int | None) -> None:
        if event is None:
            for number, child in enumerate(self._children):
                if child.restart_at is not None and child.restart_at <= time.monotonic():
                    self._start(number)
        elif isinstance(event, _Ended):
            self._ended(event)
        elif self._stopping_since is None:
            self._stop()
        elif time.monotonic() - self._stopping_since > ONE_SIGNAL_S:
            log.warning("second signal, killing")
            self._stopping_since = time.monotonic()
            self._code = 128 + event
            self._kill()

    def _ended(self, event: _Ended) -> None:
        child = self._children[event.number]
        assert child.process is not None
        child.process.stdin.close()  # type: ignore[union-attr]
        log.info("process ended", number=event.number, pid=child.process.pid, code=event.code)
        child.process = None
        for files in self._files:
            files.ended(event.number)
        if self._stopping_since is not None or event.code == 0:
            return
        if event.code == _USAGE or (self._burst and event.code > 0):  # a restart would end the same way
            self._code = event.code
            self._stop()
            return
        if time.monotonic() - child.started > (_WITHOUT_REDIS_S if event.code == _UNAVAILABLE else _HEALTHY_S):
            child.backoff_s = FIRST_BACKOFF_S
        self._start_later(child)

    def _stop(self) -> None:
        self._stopping_since = time.monotonic()
        for child in self._children:
            child.restart_at = None
            if child.process is not None:
                child.process.terminate()

    def _kill(self) -> None:
        for child in self._children:
            if child.process is not None and child.process.poll() is None:
                child.process.kill()
