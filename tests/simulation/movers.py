"""What stands in for the thread that carries a mover in a process without a worker: a task of that process."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from streamdq.mover.mover import MoverThread


class SimulatedMoverThread(MoverThread):
    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments
        self._started = threading.Event()
        self._task = asyncio.get_running_loop().create_task(self._serve())

    @property
    def is_here(self) -> bool:
        return True

    def stop(self) -> None:
        if self._started.is_set():
            self._stopping.set()
