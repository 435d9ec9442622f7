"""The commands worker, mover, rehearse and demo."""

from __future__ import annotations

import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text
from typer.core import TyperCommand

from .. import terminal
from ..config import Settings
from ..errors import InvalidInput, StreamdqError
from ..link.opening import check_namespace
from ..process import logs
from ..process.logs import log
from ..process.processes import command_line, end_with_parent
from ..process.signals import Stop, install
from ..queue import Queue, carry_out, store_of
from ..times.clock import RedisClock
from ..times.durations import number_in
from .common import EXIT_NO, EXIT_UNAVAILABLE, Json, commands, given, given_globals
from .health import HealthFile, HealthHost, HealthOptions, HealthPort
from .metrics import (
    LOOPBACK,
    AlsoGauges,
    LogFormat,
    LogLevel,
    MetricsHost,
    MetricsOptions,
    MetricsPort,
    begin_logs,
    check_logs,
    run_worker,
    served,
)

if TYPE_CHECKING:
    from ..worker.handlers import Handler
    from ..worker.rehearsal import Rehearsed
    from ..worker.serving import Burst, WorkerConfig
    from ..worker.worker import Worker

app = commands()

_LOOK_S = 1.0

# -- the worker


class _Burst(TyperCommand):
    """``--burst`` may have a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["--burst-due" if word == "--burst=due" else word for word in args])


_BURSTS: dict[Burst, list[str]] = {False: [], True: ["--burst"], "due": ["--burst=due"]}


def _burst(burst: bool, due: bool) -> Burst:
    return "due" if due else burst


@app.command(cls=_Burst)
def worker(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="MODULE:WORKER", help="Such as shop.jobs:worker", show_default=False)
    ],
    processes: Annotated[int, typer.Option(min=1, max=1000, help="How many processes; a dead one is restarted.")] = 1,
    concurrency: Annotated[int | None, typer.Option(min=1, max=10_000, help="Handlers at once, per process.")] = None,
    burst: Annotated[
        bool, typer.Option("--burst", help="Exit when no job is ready, running or delayed; --burst=due: none is due.")
    ] = False,
    burst_due: Annotated[bool, typer.Option("--burst-due", hidden=True)] = False,
    weight: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC=N", help="Its share of scarce slots; may be repeated.")
    ] = None,
    priority: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC", help="Before all that follow; may be repeated.")
    ] = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Remove schedules that another worker's code declared and this worker's does not."
        ),
    ] = False,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start it again when a Python file here changes; for development.")
    ] = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "auto",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    gauges: AlsoGauges = False,
    health_file: HealthFile = None,
    health_port: HealthPort = None,
    health_host: HealthHost = LOOPBACK,
    until_eof: Annotated[bool, typer.Option("--until-eof", hidden=True)] = False,
) -> None:
    """Run a worker, in one or more processes.

    Runs until SIGTERM or Ctrl-C, and then lets running handlers finish.

    \b
    # shop/jobs.py
    from streamdq import Worker
    worker = Worker()
    @worker.handler("order.close", ttr="30s")
    async def close(order: dict) -> None: ...

    streamdq worker shop.jobs:worker --processes 2 --concurrency 50

    Python looks for the module in the current directory first. --url and --namespace override the code. STREAMDQ_URL
    and STREAMDQ_NAMESPACE apply if the code names none. To share scarce slots, give weights: --weight pay=10 --weight
    mail=1. With --priority pay --priority mail, jobs of mail run only while none of pay is ready. A second signal, more
    than a second after the first, hands running jobs back; with --processes or --reload, it kills the processes. Logs
    go to stderr: as text on a terminal, else as JSON lines; or where the module's own configuration of logging says.
    """  # noqa: D301 - typer reads the mark
    check_logs(log_level, log_format)
    until = _burst(burst, burst_due)
    arguments = ["worker", target, "--until-eof", "--log-level", log_level, "--log-format", log_format]
    arguments += [*_BURSTS[until], *_child_options(concurrency, weight, priority, prune=prune)]
    command = command_line(*given_globals(context), *arguments)
    if reload:
        from .reload import run_reloading

        if {metrics_port, health_file, health_port, processes} != {None, 1}:
            raise InvalidInput("--reload: runs one process, and serves neither metrics nor health")
        logs.configure(log_level, log_format)
        raise typer.Exit(run_reloading(command, Path.cwd()))
    if until_eof:
        end_with_parent()
    metrics = MetricsOptions(metrics_host, metrics_port, gauges)
    health = HealthOptions(health_file, health_host, health_port)
    before = logs.destination()
    found = _import_worker(target)
    if logs.destination() == before:  # else the program has configured logging itself
        logs.configure(log_level, log_format)
    if given(context, "url") or found.url is None:
        found.url = context.obj.url
    if given(context, "namespace"):
        found.namespace = context.obj.namespace
    found.concurrency = concurrency or found.concurrency
    found.prune = prune or found.prune
    _take_turns(found, weight, priority)
    run_worker(found, metrics, health, processes, command, burst=until)


def _child_options(
    concurrency: int | None, weight: list[str] | None, priority: list[str] | None, *, prune: bool
) -> list[str]:
    options = ["--prune"] if prune else []
    options += ["--concurrency", str(concurrency)] if concurrency else []
    options += [f"--weight={one}" for one in weight or ()]
    return options + [f"--priority={one}" for one in priority or ()]


def _take_turns(worker: Worker, weight: list[str] | None, priority: list[str] | None) -> None:
    """As the options say, instead of what the code says."""
    if weight or priority:
        worker.take_turns(_weights(weight), priority)


def _weights(given: list[str] | None) -> dict[str, float] | None:
    """TOPIC=N of each; a topic may contain ``=``."""
    found: dict[str, float] = {}
    for text in given or ():
        topic, _, weight = text.rpartition("=")
        try:
            found[topic] = number_in(weight)
        except ValueError:
            raise InvalidInput(f"weight: can't read {text!r}; write --weight pay=10") from None
    return found or None


def _import_worker(target: str) -> Worker:
    from .target import import_worker

    try:
        return import_worker(target)
    except StreamdqError:
        raise
    except (Exception, SystemExit) as error:
        # The user's own module failed: say where and why, in one line. A SyntaxError names its line itself.
        frames = traceback.extract_tb(error.__traceback__)
        frame = next(frame for frame in reversed(frames) if not frame.filename.startswith("<frozen"))
        at = "" if isinstance(error, SyntaxError) else f" at {frame.filename}:{frame.lineno}"
        raise InvalidInput(f"worker: importing {target} failed{at}: {type(error).__name__}: {error}") from None


@app.command()
def mover(
    context: typer.Context,
    log_level: LogLevel = "info",
    log_format: LogFormat = "auto",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
) -> None:
    """Run a mover alone, without a worker.

    Every worker has a mover. Where an autoscaler may remove the last worker, this process keeps due jobs moving,
    schedules going, and the figures true. Runs until SIGTERM or Ctrl-C. Exit code 3: the data has a newer format.
    """
    from ..mover.mover import MoverThread

    begin_logs(log_level, log_format)
    stop = Stop()
    install(stop.set)
    settings = Settings()
    namespace = check_namespace(context.obj.namespace or settings.namespace)
    with served(metrics_host, metrics_port):
        thread = MoverThread(context.obj.url, namespace, settings, RedisClock())
        log.info("mover started", namespace=namespace)
        while not stop.is_set() and not thread.has_ended:
            stop.wait(_LOOK_S)
        failed = thread.has_ended
        thread.stop()
        log.info("mover stopped", namespace=namespace)
    if failed:
        raise typer.Exit(EXIT_UNAVAILABLE)


@app.command()
def rehearse(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="MODULE:WORKER", help="Such as shop.jobs:worker", show_default=False)
    ],
    topic: Annotated[list[str] | None, typer.Option(help="Only this topic; may be repeated.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="About how many jobs to check of each topic; else all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check waiting jobs against a new release's handlers.

    Reads all open jobs of the worker's group (delayed, ready, retrying, running, dead) and the next job of each
    schedule, page by page. It checks their bodies with the types and upcast functions of the handlers. No handler runs,
    and nothing is changed. Exit code 1: some bodies would be refused, or can't be read here.
    """
    from ..worker.rehearsal import rehearse as run_rehearsal
    from ..worker.worker import config_of

    found = _import_worker(target)
    if given(context, "url") or found.url is None:
        found.url = context.obj.url
    if given(context, "namespace"):
        found.namespace = context.obj.namespace
    orders = config_of(found)
    declared = {(one.topic, one.id) for one in orders.declared}
    with (
        Queue(found.url, found.namespace, codec=orders.where.codec) as queue,
        terminal.progress_bar("jobs") as bar,
    ):
        store = store_of(queue)
        results = [
            carry_out(queue, run_rehearsal(store, handler, found.group, limit, bar.reach, declared))
            for handler in _rehearsed(queue, orders, topic)
        ]
    refused = sum(result.refused for result in results)
    if as_json:
        terminal.print_json([asdict(result) for result in results])
    else:
        terminal.console().print(_rehearsal_view(results))
    if refused:
        raise typer.Exit(EXIT_NO)


def _rehearsed(queue: Queue, orders: WorkerConfig, topics: list[str] | None) -> list[Handler]:
    handlers = orders.handlers
    if handlers.every is not None:
        known = carry_out(queue, store_of(queue).topics.registry())
        handlers.serve([name for name, settings in known.items() if orders.group in settings.groups])
    for name in topics or ():
        if name not in handlers:
            raise InvalidInput(f"topic: the worker has no handler for {name!r}, only for {', '.join(sorted(handlers))}")
    return [handlers[name] for name in sorted(topics or handlers)]


def _rehearsal_view(results: list[Rehearsed]) -> RenderableType:
    parts: list[RenderableType] = []
    for one in results:
        rest = "" if one.complete else "; there are more"
        style = "red" if one.refused else "green"
        parts.append(Text(f"{one.topic}: {one.checked:,} checked, {one.refused:,} refused{rest}", style))
        if one.refusals:
            made = terminal.table("id", "state", "why")
            for refusal in one.refusals:
                made.add_row(Text(refusal.id), refusal.state, Text(refusal.why))
            parts.append(made)
    return Group(*parts) if parts else Text("the worker has no handlers", "dim")


@app.command()
def demo(
    speed: Annotated[float, typer.Option(min=0.5, max=20, help="How many times faster than usual.")] = 1.0,
    report: Annotated[
        bool, typer.Option("--report", help="Write a report of it, which takes some seconds more.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Watch a queue run.

    Takes about 50 seconds, on an embedded Redis of its own, and leaves nothing behind but the report, if you want one.

    Orders are closed unless they are paid in time. Payment notices fail and are retried step by step. A worker is
    killed with -9. A dead letter is sent back. Then an audit proves that nothing was lost. The report shows everything
    that happened; it needs streamdq[analytics]. Exit code 1: something was lost.
    """
    from ..demo.run import run_demo

    raise typer.Exit(run_demo(speed, as_json, report))
