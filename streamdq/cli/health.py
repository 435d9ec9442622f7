"""The command health, and how the commands that run workers tell their health."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import terminal
from ..config import HEALTH_FILE
from .common import EXIT_NO, Json, commands

if TYPE_CHECKING:
    from ..process.health import Report
    from ..process.health_checks import ProcessHealth, Source
    from ..worker.worker import Worker

app = commands()

HealthFile = Annotated[
    Path | None,
    typer.Option(envvar=HEALTH_FILE, help="Write each second to this file whether the worker is alive and ready."),
]
HealthPort = Annotated[
    int | None,
    typer.Option(min=0, max=65_535, help="Answer /health/alive and /health/ready on this port; 0: any free one."),
]
HealthHost = Annotated[str, typer.Option(help="The address of --health-port; 0.0.0.0: reachable from other machines.")]


@app.command()
def health(
    file: Annotated[
        Path,
        typer.Argument(envvar=HEALTH_FILE, help="The file of `streamdq worker --health-file`", show_default=False),
    ],
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask whether it takes jobs, not only whether it lives.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a worker by its health file.

    Exit code 0: it is alive. Exit code 1: it does not run, or is stalled. A worker is stalled when its event loop or
    its process has run nothing for 10 seconds, or when handlers hang in all of its slots. With --ready, it must also
    have started, and not be about to end. Redis is not asked: a restart of the worker would not bring it back.
    """
    from ..process.health_checks import read

    found = read(file)
    if as_json:
        terminal.print_json(found.json())
    else:
        for one in found.processes:
            terminal.say(_line(one))
        if not found.processes:
            terminal.say(f"no worker runs: there is no file {file}")
    if not (found.ready if ready else found.alive):
        raise typer.Exit(EXIT_NO)


_BY = {
    "process": "its process stands still, was killed, or can't write its health file",
    "loop": "its event loop is blocked",
    "handlers": "handlers hang in all of its slots",
}


def _line(one: Report) -> str:
    name = one.consumer or "worker"
    if one.stalled:
        return f"{name} is stalled: {_BY.get(one.stalled, one.stalled)}"
    claim = "" if one.last_claim_s is None else f", last claim {one.last_claim_s:.0f} s ago"
    return f"{name} is {one.state}: {one.running:,} of {one.slots:,} slots busy{claim}"


class HealthOptions:
    """The health options of a command that runs workers."""

    def __init__(self, file: Path | None, host: str, port: int | None) -> None:
        os.environ.pop(HEALTH_FILE, None)  # a worker that a handler starts would write to it as well
        self._file, self._host, self._port = file, host, port

    @property
    def _wanted(self) -> bool:
        return self._file is not None or self._port is not None or "NOTIFY_SOCKET" in os.environ

    @contextlib.contextmanager
    def one(self, worker: Worker) -> Iterator[None]:
        """Tells this process's own."""
        with self._published(_source_of(worker)):
            yield

    @contextlib.contextmanager
    def several(self, count: int) -> Iterator[ProcessHealth | None]:
        """Tells that of the processes of this command, which they leave in files."""
        if not self._wanted:
            yield None
            return
        from ..process.health_checks import ProcessHealth

        with ProcessHealth.made(count) as files, self._published(files.reports):
            yield files

    def _published(self, source: Source) -> contextlib.AbstractContextManager[int | None]:
        from ..process.health_checks import published

        return published(source, self._file, self._host, self._port)


def _source_of(worker: Worker) -> Callable[[], list[Report]]:
    """Before it serves, it is starting."""
    from ..process.health import Report
    from ..worker.worker import run_of

    def reports() -> list[Report]:
        run = run_of(worker)
        return [Report.of_process() if run is None else run.health()]

    return reports
