"""The command that calls jobs' urls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..config import DEFAULT_GROUP
from ..errors import InvalidInput
from ..processes import command_line
from .common import GroupOption, commands, given_globals
from .metrics import LOOPBACK, AlsoGauges, LogLevel, MetricsHost, MetricsPort, Serving, begin_logs, run_worker

app = commands()
_ALL = "all"


@app.command()
def callback(
    context: typer.Context,
    topic: Annotated[
        list[str] | None, typer.Option(help="Whose jobs to call back, may be repeated; 'all': of every topic.")
    ] = None,
    group: GroupOption = DEFAULT_GROUP,
    concurrency: Annotated[int, typer.Option(min=1, max=10_000, help="Calls at once, in each process.")] = 200,
    processes: Annotated[int, typer.Option(min=1, max=1000, help="How many; one that dies is started again.")] = 1,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="A host or network to call besides public https ones, also over http; may be repeated."),
    ] = None,
    settings: Annotated[Path | None, typer.Option(help="A TOML file with secrets and other settings.")] = None,
    burst: Annotated[bool, typer.Option("--burst", help="Leave when nothing is ready, running or delayed.")] = False,
    log_level: LogLevel = "info",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    gauges: AlsoGauges = False,
    until_eof: Annotated[bool, typer.Option("--until-eof", hidden=True)] = False,
) -> None:
    """POST due jobs to their urls.

    \b
    streamdq enqueue notify '{"order_id": 42}' --delay 15s --url https://shop.example/hooks
    streamdq callback --topic notify

    The job's body is sent, signed. 2xx finishes the job. 410 and a URL that is refused bury it. Anything else takes the
    next step of its retry schedule, not before what a Retry-After asks for. Redirects are not followed.

    Give callbacks topics of their own: a job without a url is buried. --topic all serves every topic that has the
    group, also those that are made later.

    Only https and public addresses are called, unless --allow says more. Secrets to sign with, and other settings,
    are in the file or in STREAMDQ_CALLBACK_SECRETS and its like.
    """  # noqa: D301 - typer reads the mark
    serving = Serving(metrics_host, metrics_port, gauges)
    if not topic or (_ALL in topic and len(topic) > 1):
        raise InvalidInput("topic: name one or more with --topic, or all of them with --topic all")
    from ..callback import CallbackSettings, CallbackWorker

    given = {"allow": tuple(allow)} if allow else {}
    worker = CallbackWorker(
        context.obj.url, context.obj.namespace, group, concurrency,
        topics=None if topic == [_ALL] else topic, callback=CallbackSettings.load(settings, **given),
    )  # fmt: skip
    begin_logs(log_level)
    arguments = ["callback", "--until-eof", "--log-level", log_level, "--group", group]
    arguments += [word for name in topic for word in ("--topic", name)]
    arguments += [word for name in allow or () for word in ("--allow", name)]
    arguments += ["--concurrency", str(concurrency)]
    arguments += ["--settings", str(settings)] if settings else []
    arguments += ["--burst"] if burst else []
    command = command_line(*given_globals(context), *arguments)
    run_worker(worker, serving, processes, command, burst=burst, until_eof=until_eof)
