"""The command line, `streamdq`: global options, and the exit code of a command. The library does the work."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from .. import terminal
from ..errors import (
    ArchiveError,
    ArchiveMissing,
    BodyStorageUnavailable,
    EmbeddedError,
    HandlersHung,
    InvalidInput,
    MissingExtra,
    NewerFormat,
    OutboxError,
    OutboxMissing,
    ServerError,
    StreamdqError,
    UnknownGroup,
    UnknownTopic,
)
from ..process.logs import visible
from ..version import __version__
from ..worker.hung import EXIT_HUNG
from . import analyze as cli_analyze
from . import archive as cli_archive
from . import bodies as cli_bodies
from . import callback as cli_callback
from . import capacity as cli_capacity
from . import find as cli_find
from . import history as cli_history
from . import http as cli_http
from . import jobs as cli_jobs
from . import live as cli_live
from . import metrics as cli_metrics
from . import outbox as cli_outbox
from . import schedules as cli_schedules
from . import sql as cli_sql
from . import streams
from . import topics as cli_topics
from . import what_if as cli_what_if
from . import work as cli_work
from .common import EXIT_INTERRUPTED, EXIT_NO, EXIT_OK, EXIT_UNAVAILABLE, EXIT_USAGE, Globals, commands
from .root import Root

_UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # typer does not export it

HELP = """A delay queue on Redis.

Without --url it starts an embedded Redis, with its data in your state directory:

\b
  streamdq enqueue order.close '{"order_id": 42}' --delay 30m --id order-42
  streamdq worker shop.jobs:worker --processes 2
  streamdq stats --watch

\b
Global options go before the command, or after it:
  streamdq --url redis://host:6379/0 stats
URLs: redis:// rediss:// unix:// embedded://DIR
      redis+cluster://host:port,host:port redis+sentinel://host:port,host:port/NAME
      with TLS, rediss+cluster:// and rediss+sentinel://

A duration is a number of seconds, or 250ms 15s 1h30m 2d. With --json, stdout has nothing but JSON.

\b
Exit codes:
    0  done
    1  the answer is no: no such job or schedule, id taken, not balanced, a problem found
    2  wrong usage or invalid input; nothing was written, unless the message says so
    3  Redis or a database can't be reached, or refuses the request
    4  a worker's handlers hang beyond their TTR, in all of its slots: start it again
  130  interrupted"""

app = commands(help=HELP, cls=Root, add_completion=True)
_PARTS = (
    cli_jobs, cli_find, cli_schedules, cli_topics, cli_work, cli_callback, cli_http, cli_metrics, cli_history,
    cli_analyze, cli_capacity, cli_live, cli_what_if, cli_sql, cli_archive, cli_bodies, cli_outbox,
)  # fmt: skip  # in the order of the help
for part in _PARTS:
    app.add_typer(part.app)


def _version(wanted: bool) -> None:
    if wanted:
        terminal.say(f"streamdq {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    url: Annotated[str | None, typer.Option(envvar="STREAMDQ_URL", help="Where Redis is.", show_envvar=True)] = None,
    namespace: Annotated[
        str | None, typer.Option(envvar="STREAMDQ_NAMESPACE", help="The prefix of all keys in Redis [streamdq].")
    ] = None,
    version: Annotated[  # noqa: ARG001 - acts by its callback
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options that every command shares."""
    context.obj = Globals(url or None, namespace or None)


def _exit_code(error: StreamdqError) -> int:
    if isinstance(error, InvalidInput | UnknownTopic | UnknownGroup | ArchiveMissing | OutboxMissing | MissingExtra):
        return EXIT_USAGE
    if isinstance(
        error, ServerError | EmbeddedError | ArchiveError | OutboxError | NewerFormat | BodyStorageUnavailable
    ):
        return EXIT_UNAVAILABLE
    if isinstance(error, HandlersHung):
        return EXIT_HUNG
    return EXIT_NO


def _complain_of_usage(error: Any) -> None:
    """Prints typer's complaint in one line, and where to find help; without any argument, the whole help."""
    message = error.format_message()
    if message.startswith("Usage:"):
        sys.stderr.write(f"{visible(message)}\n")
        return
    command = error.ctx.command_path if error.ctx else "streamdq"
    option = getattr(error, "option_name", "")
    root = error.ctx.command if error.ctx else None  # None: the option has no value
    if option and isinstance(root, Root) and root.has_in_a_command(error.ctx, option):
        terminal.complain(f"{option} is an option of commands: write it after the command; see {command} --help")
        return
    said = f"{message} See" if message.endswith("?") else f"{message.rstrip('.')}; see"
    terminal.complain(f"{said} {command} --help")


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    try:
        return app(args=arguments, prog_name="streamdq", standalone_mode=False) or EXIT_OK
    except _UsageError as error:
        _complain_of_usage(error)
        return EXIT_USAGE
    except ValidationError as error:
        first = error.errors()[0]
        prefix = "STREAMDQ_HTTP_" if error.title == "HttpSettings" else "STREAMDQ_"
        text = first["msg"].removeprefix("Value error, ")
        terminal.complain(f"{prefix}{'_'.join(map(str, first['loc'])).upper()}: {text}")
        return EXIT_USAGE
    except StreamdqError as error:
        terminal.complain(str(error), error)
        return _exit_code(error)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED


def main() -> int:
    """The entry point. If the reader of stdout has gone away (`… | head`), it ends without a message."""
    streams.prepare()
    try:
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:
        code = EXIT_NO
    except OSError as error:  # such as a full disk under stdout
        _complain_of_system(error)
        code = EXIT_NO
    streams.give_up()
    return code


def _complain_of_system(error: OSError) -> None:
    at = f" {error.filename}" if error.filename else ""
    terminal.complain(f"can't read or write{at}: {error.strerror or error}", error)
