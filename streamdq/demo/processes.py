"""The demo's worker processes: started, watched and stopped."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ..errors import StreamdqError
from ..process.processes import command_line
from .interrupts import interrupted_afterwards
from .shop import ANALYST_GROUP, DIRECTORY_VARIABLE, SHOP_GROUP, SPEED_VARIABLE, Scale

_END_S = 15.0


@dataclass(slots=True)
class WorkerProcess:
    """One worker process."""

    name: str
    group: str
    process: subprocess.Popen[bytes]
    log: Path
    killed: bool = False

    def is_consumer(self, consumer: str | None) -> bool:
        return consumer is not None and f"-{self.process.pid}-" in consumer


class WorkerProcesses:
    """The three worker processes; they end with the block."""

    def __init__(self, url: str, directory: Path, scale: Scale) -> None:
        self._env = {
            **os.environ,
            "STREAMDQ_URL": url,
            SPEED_VARIABLE: str(scale.speed),
            DIRECTORY_VARIABLE: str(directory),
        }
        self._directory = directory
        self.spawned: list[WorkerProcess] = []

    def __enter__(self) -> Self:
        try:
            for name, worker, group in (
                ("shop 1", "shop", SHOP_GROUP),
                ("shop 2", "shop", SHOP_GROUP),
                ("analyst", "analytics", ANALYST_GROUP),
            ):
                with interrupted_afterwards():  # one that nobody knows of would begin when the demo has gone
                    self.spawned.append(self._spawn(name, worker, group))
        except BaseException:
            self._kill()
            raise
        return self

    def _spawn(self, name: str, worker: str, group: str) -> WorkerProcess:
        log = self._directory / f"{name.replace(' ', '-')}.log"
        command = command_line("worker", f"streamdq.demo.shop:{worker}", "--until-eof")
        with log.open("wb") as output:
            # A session of its own: Ctrl-C is the demo's to handle. A closed stdin ends it if the demo is killed.
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=self._env, start_new_session=True
            )
        return WorkerProcess(name, group, process, log)

    def at_work(self) -> bool:
        return all(b"worker started" in one.log.read_bytes() for one in self.spawned)

    def check(self) -> None:
        """Raises StreamdqError if a worker has ended that nobody killed."""
        for one in self.spawned:
            if not one.killed and one.process.poll() is not None:
                lines = one.log.read_text(errors="replace", encoding="utf-8").splitlines()[-1:]
                raise StreamdqError(f"demo: worker {one.name} ended with {one.process.returncode}: {' '.join(lines)}")

    def end(self) -> None:
        """Lets the workers finish, like SIGTERM."""
        alive = [one.process for one in self.spawned if one.process.poll() is None]
        for process in alive:
            process.terminate()
        deadline = time.monotonic() + _END_S
        for process in alive:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()

    def _kill(self) -> None:
        for one in self.spawned:
            if one.process.poll() is None:
                one.process.kill()
            one.process.wait()
            assert one.process.stdin is not None
            one.process.stdin.close()

    def __exit__(self, *_: object) -> None:
        self._kill()
