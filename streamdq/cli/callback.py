"""The command callback, which calls jobs' URLs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ..config import DEFAULT_GROUP
from ..errors import InvalidInput
from ..process.processes import command_line, end_with_parent
from .common import GroupOption, commands, given_globals
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
    run_worker,
)

app = commands()
_ALL = "all"


@app.command(rich_help_panel="Workers")
def callback(
    context: typer.Context,
    topic: Annotated[
        list[str] | None, typer.Option(help="The topic whose jobs to call back; may be repeated; 'all': every topic.")
    ] = None,
    group: GroupOption = DEFAULT_GROUP,
    concurrency: Annotated[int, typer.Option(min=1, max=10_000, help="Calls at once, in each process.")] = 200,
    processes: Annotated[int, typer.Option(min=1, max=1000, help="How many processes; a dead one is restarted.")] = 1,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="A host or network that may be called besides public ones, also over http; may be repeated."),
    ] = None,
    settings: Annotated[Path | None, typer.Option(help="A TOML file with secrets and other settings.")] = None,
    burst: Annotated[bool, typer.Option("--burst", help="Exit when no job is ready, running or delayed.")] = False,
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
    """POST due jobs to their URLs.

    \b
    streamdq enqueue notify '{"order_id": 42}' --delay 15s --url https://shop.example/hooks
    streamdq callback --topic notify

    The request has the job's body, and a signature. An answer of 2xx finishes the job. A 410, or a URL that is not
    allowed, buries it. Anything else takes the next step of its retry schedule, or waits longer if a Retry-After asks
    for it. Redirects are not followed.

    Give callbacks topics of their own: a job without a URL is buried. With --topic all, the command serves every topic
    that has the group, also topics that are created later.

    Only https URLs with public addresses are called, unless --allow permits more. Secrets and other settings come
    from the file, or from STREAMDQ_CALLBACK_SECRETS and similar variables.
    """  # noqa: D301 - typer reads the mark
    if until_eof:
        end_with_parent()
    metrics = MetricsOptions(metrics_host, metrics_port, gauges)
    health = HealthOptions(health_file, health_host, health_port)
    topics = _topics_of(topic or ())
    from ..callback import CallbackSettings, CallbackWorker

    given = {"allow": tuple(allow)} if allow else {}
    worker = CallbackWorker(
        context.obj.url, context.obj.namespace, group, concurrency,
        topics=topics, callback=CallbackSettings.load(settings, **given),
    )  # fmt: skip
    begin_logs(log_level, log_format)
    arguments = [
        "--log-level",
        log_level,
        "--log-format",
        log_format,
        "--group",
        group,
        "--concurrency",
        str(concurrency),
    ]
    arguments += [*_repeated("--topic", topics or (_ALL,)), *_repeated("--allow", allow or ())]
    arguments += ["--settings", str(settings)] if settings else []
    arguments += ["--burst"] if burst else []
    command = command_line(*given_globals(context), "callback", "--until-eof", *arguments)
    run_worker(worker, metrics, health, processes, command, burst=burst)


def _topics_of(names: Sequence[str]) -> Sequence[str] | None:
    """The topics to serve; None: all."""
    if not names or (_ALL in names and len(names) > 1):
        raise InvalidInput("topic: pass --topic once or more, or --topic all")
    return None if _ALL in names else names


def _repeated(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]
