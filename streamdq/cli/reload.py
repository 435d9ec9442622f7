"""streamdq worker --reload: runs the worker again whenever its code changes."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ..errors import MissingExtra
from ..process.logs import log
from ..process.signals import ONE_SIGNAL_S, Stop, install

_GRACE_S = "1"  # unless the environment says otherwise: who has saved a file does not want to wait for handlers


def run_reloading(command: Sequence[str], folder: Path) -> int:
    """Until SIGTERM or Ctrl-C, runs the command, and again after each change of a Python file in the folder. A command
    that has ended, as its code has an error, waits for the next change. A second signal kills it: its functions for the
    shutdown may never end.

    Raises:
        MissingExtra: watchfiles is not installed.
    """
    try:
        from watchfiles import PythonFilter, watch
    except ModuleNotFoundError:
        raise MissingExtra("watchfiles", "reload") from None
    logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it would count the changes that are named below
    stop, child, first = Stop(), _Child(command), math.inf

    def on_signal(*_: object) -> None:
        nonlocal first
        stop.set()
        first = min(first, now := time.monotonic())
        if now - first > ONE_SIGNAL_S:
            child.kill()

    install(on_signal)
    try:
        began = False
        for changes in watch(
            folder, watch_filter=PythonFilter(), stop_event=stop, debounce=200, rust_timeout=250, yield_on_timeout=True
        ):
            if changes:
                log.info(
                    "code changed, reloading", files=sorted({os.path.relpath(path, folder) for _, path in changes})
                )
                child.end()
            if changes or not began:  # first when it watches, so that no change is missed
                child.start()
                began = True
            if child.has_just_ended():
                log.warning("worker ended, waiting for a change of its code", folder=str(folder))
    finally:
        child.end()
    return 0


class _Child:
    """The worker's process. It drains when the pipe to it is closed, also if this process is killed."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        env = {"STREAMDQ_GRACE_S": _GRACE_S} | os.environ
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, start_new_session=True, env=env)

    def has_just_ended(self) -> bool:
        """True once, if it has ended by itself."""
        if self._process is None or self._process.poll() is None:
            return False
        self.end()
        return True

    def end(self) -> None:
        """Lets it drain, which a worker does within its grace period and some seconds."""
        if self._process is not None:
            pipe: IO[bytes] | None = self._process.stdin
            assert pipe is not None
            pipe.close()
            self._process.wait()
            self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
