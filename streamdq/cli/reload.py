"""streamdq worker --reload: runs the worker again whenever its code changes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ..errors import MissingExtra
from ..process.logs import log
from ..process.signals import Stop, install

_GRACE_S = "1"  # unless the environment says otherwise: who has saved a file does not want to wait for handlers


def run_reloading(command: Sequence[str], folder: Path) -> int:
    """Until SIGTERM or Ctrl-C, runs the command, and again after each change of a Python file in the folder. A command
    that has ended, as its code has an error, waits for the next change.

    Raises:
        MissingExtra: watchfiles is not installed.
    """
    try:
        from watchfiles import PythonFilter, watch
    except ModuleNotFoundError:
        raise MissingExtra("watchfiles", "reload") from None
    stop = Stop()
    install(stop.set)
    child = _Child(command)
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

    def end(self) -> None:
        """Lets it drain, which a worker does within its grace period and some seconds."""
        if self._process is not None:
            pipe: IO[bytes] | None = self._process.stdin
            assert pipe is not None
            pipe.close()
            self._process.wait()
            self._process = None
