"""The command mcp, a server for assistants."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer

from ..config import HttpSettings
from ..errors import InvalidInput, MissingExtra
from .common import commands
from .metrics import LogFormat, LogLevel, begin_logs

app = commands()


@app.command(rich_help_panel="Servers")
def mcp(
    context: typer.Context,
    transport: Annotated[
        Literal["stdio", "http"], typer.Option(help="How clients reach it: stdio, or streamable http at /mcp.")
    ] = "stdio",
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Also enqueue, cancel, abort, reschedule, kick, pause and resume.")
    ] = False,
    show_bodies: Annotated[bool, typer.Option("--show-bodies", help="Show bodies of jobs and schedules.")] = False,
    topics: Annotated[
        str | None, typer.Option(help="Only these topics, such as 'order.*,mail'; by default all.", metavar="NAMES")
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="Only these consumer groups; by default all.", metavar="NAMES")
    ] = None,
    host: Annotated[str, typer.Option(help="Over http, the address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Over http, the port; 0: any free one.")] = 8081,
    tokens_file: Annotated[
        Path | None,
        typer.Option(help="Over http, a file of tokens, made by `streamdq token`. Else $STREAMDQ_HTTP_TOKENS."),
    ] = None,
    audit_log: Annotated[
        Path | None, typer.Option(help="Write a line for each change to this file, as `streamdq serve` does.")
    ] = None,
    log_level: LogLevel = "info",
    log_format: LogFormat = "auto",
) -> None:
    """Let assistants look at the queue (MCP).

    \b
    streamdq mcp                                   # a client starts it, and talks to it over stdio
    streamdq mcp --transport http --tokens-file tokens

    The server speaks the Model Context Protocol. Its tools only look, unless --allow-changes is given, and hide
    bodies. Over http each caller needs a token, whose roles, topics and groups apply. Without tokens it listens on
    this machine only.
    """  # noqa: D301 - typer reads the mark
    begin_logs(log_level, log_format)
    try:
        from ..http import create_app
        from ..http.auth import LOOPBACK_NAMES, Tokens, check_bind
        from ..http.limits import fitted
        from ..http.server import serve
        from ..mcp.api import Api
        from ..mcp.server import http_app, local_token, make_server, serve_stdio
    except ImportError as error:
        raise MissingExtra(error.name or "mcp", "mcp") from None

    settings, is_local = HttpSettings(), transport == "stdio"
    if is_local:
        token, tokens = local_token(topics, groups, allow_changes=allow_changes)
    elif topics or groups:
        raise InvalidInput("topics, groups: over http they are those of each token: streamdq token … --topics NAMES")
    else:
        settings = fitted(settings)
        token = ""
        tokens = Tokens.read(tokens_file) if tokens_file else Tokens.parse(settings.tokens, "STREAMDQ_HTTP_TOKENS")
        check_bind(host, tokens)  # without tokens, nobody else can reach it
    made = create_app(
        context.obj.url, context.obj.namespace, http=settings, tokens=tokens, authentication="mine",
        allowed_hosts=None if tokens.required else (*LOOPBACK_NAMES, host), audit_log=audit_log,
    )  # fmt: skip
    server = make_server(Api(made, token), allow_changes=allow_changes, show_bodies=show_bodies)
    if is_local:
        asyncio.run(serve_stdio(made, server))
    else:
        serve(http_app(made, server), host, port, settings, tokens_file)
