"""Workers on simulated time, without troubles but those that a test makes: what they cost, and how long things take."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from streamdq import AsyncQueue, Worker
from streamdq.keys import NamespaceKeys
from streamdq.link.command import Command

from .loop import Process
from .store import Fields
from .world import World

Script = Callable[["Deployment"], Coroutine[Any, Any, None]]


class Deployment(World):
    """``run`` gives its time to the script instead of making a history."""

    def __init__(self, script: Script, **settings: Any) -> None:
        super().__init__(1)
        self.settings = self.settings.model_copy(update=settings)
        self.keys = NamespaceKeys(self.settings.namespace)
        self.workers: dict[Process, Worker] = {}
        self.started: list[tuple[Any, float, Process]] = []  # body, when, and where
        self.commands = 0
        self._script = script
        self._news = asyncio.Event()
        begin = self.network.begin

        def counted(commands: Sequence[Command], *how: Any) -> asyncio.Future[list[Any]]:
            self.commands += len(commands)
            return begin(commands, *how)

        self.network.begin = counted  # type: ignore[method-assign, assignment]

    async def _history(self) -> None:
        async with AsyncQueue(settings=self.settings) as self.async_queue:
            await self._script(self)

    def _applied(self, fields: Fields, reply: Any) -> None:
        """There is no model: a test judges."""

    def start_worker(self, *topics: str, group: str = "default", runs_s: float = 0.0) -> Process:
        """A worker whose handlers take so long."""
        process = Process(f"worker{len(self.workers)}")
        worker = self.workers[process] = Worker(group=group, settings=self.settings)

        async def handle(body: Any) -> None:
            self.started.append((body, self.loop.time(), process))
            self._news.set()
            await asyncio.sleep(runs_s)

        async def main() -> None:
            for topic in topics:
                worker.handler(topic)(handle)
            await worker.serve(signals=True)

        self.loop.spawn(process, main)
        return process

    def leader(self) -> Process | None:
        """The one whose mover is active."""
        holder = self.store.ask("GET", self.keys.mover)
        alive = (process for process, worker in self.workers.items() if holder == worker.name.encode())
        return next(alive, None)

    def kill(self, process: Process) -> None:
        """As SIGKILL does: the system closes its connections."""
        self.loop.kill(process)
        self.network.hang_up(process)

    def terminate(self, process: Process) -> None:
        assert self.loop.signal(process, signal.SIGTERM)

    async def starts(self, count: int) -> None:
        """Waits for so many attempts."""
        while len(self.started) < count:
            self._news.clear()
            await self._news.wait()

    async def commands_per_s(self, seconds: float) -> float:
        before = self.commands
        await asyncio.sleep(seconds)
        return (self.commands - before) / seconds
