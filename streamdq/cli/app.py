"""The command line, `streamdq`: global options, and the exit code of a command. The library does the work."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from .. import extensions, terminal
from ..errors import StreamdqError
from ..process.logs import visible
from ..version import __version__
from . import streams
from .common import EXIT_INTERRUPTED, EXIT_OK, EXIT_UNAVAILABLE, EXIT_USAGE, Globals, commands
from .root import PARTS, Root, command_in
from .wording import in_options

_MODULE_OF = {name: part for part, names in PARTS.items() for name in names}
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
    3  Redis or a database can't be reached, or refuses the request;
       or the output can't be written
    4  a worker's handlers hang beyond their TTR, in all of its slots: start it again
  130  interrupted"""


def _version(wanted: bool) -> None:
    if wanted:
        terminal.say(f"streamdq {__version__}")
        raise typer.Exit


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
    context.obj = Globals(url, namespace)


@cache
def application(*names: str) -> typer.Typer:
    """The commands of these names, and those of their modules; of all by default. Only these modules are imported.

    Raises:
        ExtensionBroken: one of the names is that of an extension that can't be loaded.
    """
    made = commands(help=HELP, cls=Root, add_completion=True)
    made.callback()(options)
    for part in dict.fromkeys(_parts_of(names) if names else _all_parts()):
        made.add_typer(part)
    return made


def _parts_of(names: Sequence[str]) -> Iterator[typer.Typer]:
    for name in names:
        if name in _MODULE_OF:
            yield _module(_MODULE_OF[name])
        elif extension := extensions.find(extensions.COMMANDS, name):
            yield extension.load(typer.Typer)


def _all_parts() -> Iterator[typer.Typer]:
    """An extension that can't be used is complained about, and the others are there."""
    yield from map(_module, PARTS)
    taken = dict.fromkeys(_MODULE_OF, "streamdq")
    parts: list[typer.Typer] = []
    for extension in extensions.found(extensions.COMMANDS):
        try:
            if extension.name in taken:
                raise extension.broken(f"{taken[extension.name]} has a command of that name")
            taken[extension.name] = extension.package
            part: typer.Typer = extension.load(typer.Typer)
            if part not in parts:
                _check_names(extension, part, taken)
                parts.append(part)
                yield part
        except StreamdqError as error:
            terminal.complain(str(error))


def _check_names(extension: extensions.Extension, part: typer.Typer, taken: Mapping[str, str]) -> None:
    """Its other commands would hide those of these names.

    Raises:
        ExtensionBroken: a name is taken, or the commands can't be made.
    """
    found = extension.calling(lambda: typer.main.get_group(part).commands)
    for name in found.keys() & taken.keys() - {extension.name}:
        raise extension.broken(f"it has a command {name}, and so has {taken[name]}")


def _module(name: str) -> typer.Typer:
    app: typer.Typer = import_module(f".{name}", __package__).app
    return app


def _application_for(arguments: Sequence[str]) -> typer.Typer:
    """With the command that is called; with all of them for help, completion and what is misspelt."""
    named = "" if "_STREAMDQ_COMPLETE" in os.environ else command_in(arguments)
    if not named and "--version" in arguments:
        named = "exporter"  # the command whose module needs the least
    known = named in _MODULE_OF or (named and extensions.find(extensions.COMMANDS, named))
    return application(named) if known else application()


def _options_of(app: typer.Typer, arguments: Sequence[str]) -> set[str]:
    """Those of the command that is called, and of all commands."""
    root = typer.main.get_command(app)
    called = root.command_called(arguments) if isinstance(root, Root) else None
    return {name for one in (root, called) if one for parameter in one.params for name in parameter.opts}


def __getattr__(name: str) -> Any:
    if name == "app":  # for those that look at all commands
        return application()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _complain_of_usage(error: Any) -> None:
    """Prints typer's complaint in one line, and where to find help; without any argument, the whole help."""
    message = error.format_message()
    if message.startswith("Usage:"):
        sys.stderr.write(f"{visible(message)}\n")
        return
    command = error.ctx.command_path if error.ctx else "streamdq"
    option = getattr(error, "option_name", "")
    root = error.ctx.command if error.ctx else None  # None: the option has no value
    everything = typer.main.get_command(application()) if option and isinstance(root, Root) else None
    if isinstance(everything, Root) and everything.has_in_a_command(error.ctx, option):
        terminal.complain(f"{option} is an option of commands: write it after the command; see {command} --help")
        return
    said = f"{message} See" if message.endswith("?") else f"{message.rstrip('.')}{_unset(error, message)}; see"
    terminal.complain(f"{said} {command} --help")


def _unset(error: Any, message: str) -> str:
    """The environment variable that could have given a missing argument."""
    variable = getattr(getattr(error, "param", None), "envvar", None)
    return f", and {variable} is not set" if variable and message.startswith("Missing ") else ""


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        app = _application_for(arguments)
    except StreamdqError as error:
        terminal.complain(str(error), error)
        return error.exit_code
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
        terminal.complain(in_options(str(error), _options_of(app, arguments)), error)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED


def main() -> int:
    """The entry point. If the reader of stdout has gone away (`… | head`), it ends without a message."""
    streams.prepare()
    try:
        with suppress(StreamdqError):  # which `run` tells
            _application_for(sys.argv[1:])
        gc.freeze()
        gc.enable()
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:
        code = EXIT_UNAVAILABLE
    except OSError as error:  # such as a full disk under stdout
        _complain_of_system(error)
        code = EXIT_UNAVAILABLE
    streams.give_up()
    return code


def _complain_of_system(error: OSError) -> None:
    at = f" {error.filename}" if error.filename else ""
    terminal.complain(f"can't read or write{at}: {error.strerror or error}", error)
