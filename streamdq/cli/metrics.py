"""Serving metrics: the exporter, and what the commands that run workers share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidInput
from ..process import logs
from ..process.processes import ProcessFiles, Supervisor, end_children
from ..process.signals import Stop, drop_at_exit, install
from .common import commands
from .health import HealthOptions

if TYPE_CHECKING:
    from ..exporter.exporter import ProcessFiles as MetricsFiles
    from ..exporter.exporter import RedisCollector
    from ..worker.serving import Burst
    from ..worker.worker import Worker

app = commands()

LogLevel = Annotated[str, typer.Option(help=f"One of {', '.join(logs.LEVELS)}.")]
LogFormat = Annotated[
    str,
    typer.Option(
        envvar="STREAMDQ_LOG_FORMAT",
        help=f"One of {', '.join(logs.FORMATS)}; auto: as text on a terminal, else as JSON lines.",
        show_envvar=True,
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(min=0, max=65_535, help="Serve Prometheus metrics of all processes on this port; 0: any free one."),
]
MetricsHost = Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0: reachable from other machines.")]
AlsoGauges = Annotated[
    bool,
    typer.Option("--exporter", help="Serve the metrics of `streamdq exporter` as well; one worker should do so."),
]
LOOPBACK = "127.0.0.1"


def begin_logs(level: str, form: str) -> None:
    check_logs(level, form)
    logs.configure(level, form)


def check_logs(level: str, form: str) -> None:
    for name, given, known in (("log-level", level, logs.LEVELS), ("log-format", form, logs.FORMATS)):
        if given not in known:
            raise InvalidInput(f"{name}: {given!r} is not one of {', '.join(known)}")


@contextlib.contextmanager
def served(host: str, port: int | None, *collectors: Any, own: bool = True) -> Iterator[None]:
    """Serves metrics if a port was given. Only then is the exporter imported: prometheus_client and its server take a
    tenth of the time of most commands.
    """
    if port is None:
        yield
        return
    from ..exporter import exporter

    with exporter.served(host, port, *collectors, own=own):
        yield


@app.command()
def exporter(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0: any free one.")] = 9422,
    host: MetricsHost = LOOPBACK,
    log_level: LogLevel = "info",
    log_format: LogFormat = "auto",
) -> None:
    """Serve the state of the queue to Prometheus.

    Run one exporter per namespace, or one worker with --exporter. Runs until SIGTERM or Ctrl-C. While Redis can't be
    reached, it serves streamdq_up 0.
    """
    begin_logs(log_level, log_format)
    stop = Stop()
    install(stop.set)
    from ..exporter.exporter import RedisCollector

    collector = RedisCollector(context.obj.url, context.obj.namespace)
    with contextlib.closing(collector), served(host, port, collector):
        stop.wait()


class MetricsOptions:
    """The metrics options of a command that runs workers."""

    def __init__(self, host: str, port: int | None, gauges: bool) -> None:
        if gauges and port is None:
            raise InvalidInput("--exporter: needs --metrics-port as well")
        self._host, self._port, self._gauges = host, port, gauges

    @contextlib.contextmanager
    def one(self, worker: Worker) -> Iterator[None]:
        """Serves this process's own metrics."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(served(self._host, self._port, *self._collectors(stack, worker)))
            yield

    @contextlib.contextmanager
    def several(self, worker: Worker) -> Iterator[MetricsFiles | None]:
        """Serves the metrics that the processes of this command write to files, on one port."""
        with contextlib.ExitStack() as stack:
            files = None
            if self._port is not None:
                from ..exporter import exporter

                files = stack.enter_context(exporter.ProcessFiles.open())
                collectors = [files.collector(), *self._collectors(stack, worker)]
                stack.enter_context(served(self._host, self._port, *collectors, own=False))
            yield files

    def _collectors(self, stack: contextlib.ExitStack, worker: Worker) -> list[RedisCollector]:
        if not self._gauges:
            return []
        from ..exporter.exporter import RedisCollector

        return [stack.enter_context(contextlib.closing(RedisCollector(worker.url, worker.namespace)))]


def run_worker(
    worker: Worker,
    metrics: MetricsOptions,
    health: HealthOptions,
    processes: int,
    command: Sequence[str],
    *,
    burst: Burst,
) -> None:
    """Runs the worker in this process, or ``command`` in several processes."""
    drop_at_exit()
    if processes > 1:
        with metrics.several(worker) as figures, health.several(processes) as healths:
            files: list[ProcessFiles] = [one for one in (figures, healths) if one is not None]
            raise typer.Exit(Supervisor(command, processes, burst=bool(burst), files=files).run())
    try:
        with metrics.one(worker), health.one(worker):
            worker.run(burst)
    finally:
        end_children()
