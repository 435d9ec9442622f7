"""What the commands share: exit codes, options, opening a queue, printing an answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from .. import terminal
from ..errors import InvalidInput, StreamdqError
from ..operations.known import topic_names
from ..options import OF_JOB, on_command_line
from ..process.signals import Stop, install, uninstall
from ..queue import Queue, carry_out, store_of

EXIT_OK, EXIT_NO, EXIT_USAGE, EXIT_UNAVAILABLE, EXIT_INTERRUPTED = 0, 1, 2, 3, 130  # 4: EXIT_HUNG of worker/hung.py


def commands(**options: Any) -> typer.Typer:
    """A group of commands, with the common style of help."""
    look = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}
    return typer.Typer(**{"no_args_is_help": True, **look, **options})


class WithId(TyperCommand):
    """A command that takes an id, which may begin with a dash. A word with one dash that is not an option is an
    argument. A word with two dashes is an option, known or misspelt, unless it follows a ``--``.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {name for parameter in self.get_params(ctx) for name in (*parameter.opts, *parameter.secondary_opts)}
        words = args[: args.index("--")] if "--" in args else args
        ctx.ignore_unknown_options = all(word.partition("=")[0] in known for word in words if word.startswith("--"))
        return super().parse_args(ctx, args)


@dataclass(slots=True)
class Globals:
    """The options before the command. None: given neither on the command line nor in the environment."""

    given_url: str | None = None
    namespace: str | None = None

    @property
    def url(self) -> str | None:
        """For commands that use Redis.

        Raises:
            InvalidInput: it is ``memory://``: the command would have an empty server of its own.
        """
        if self.given_url and self.given_url.startswith("memory:"):
            raise InvalidInput(
                "url: memory:// lives only inside the process that opens it, so a command can't see its jobs; use "
                "embedded:// or redis://"
            )
        return self.given_url


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Topic = Annotated[str, typer.Argument(help="The topic, such as order.close", show_default=False)]
Id = Annotated[str, typer.Argument(help="The job's id; put -- before it if it begins with --", show_default=False)]
OptionalTopic = Annotated[str | None, typer.Argument(help="One topic instead of all", show_default=False)]
GroupOption = Annotated[str, typer.Option("--group", help="The consumer group.")]
_FLAGS = {"version": "--body-version", "groups": "--group", "create": "--create"}  # not --version; no --no-create


def option(name: str, options: Mapping[str, str] = OF_JOB, more: str = "") -> Any:
    """An option of the library (options.py), as the command line has it. ``more``: a sentence after its text."""
    text = on_command_line(name, options, _FLAGS)
    flags = (_FLAGS[name],) if name in _FLAGS else ()
    return typer.Option(*flags, help=f"{text} {more}" if more else text)


class PriorityChoice(StrEnum):
    """Which of the jobs that are ready start first."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


Durable = Annotated[str | None, option("durable")]
Delay = Annotated[str | None, option("delay", more="Such as 30m.")]
At = Annotated[str | None, option("at", more="Such as 2030-01-31T09:00:00+08:00.")]
Ttr = Annotated[str | None, option("ttr")]
Retry = Annotated[str | None, option("retry")]
Expire = Annotated[str | None, option("expire")]


@contextmanager
def open_queue(context: typer.Context) -> Iterator[Queue]:
    """A command that waits for Redis tries again itself."""
    with Queue(context.obj.url, context.obj.namespace) as queue:
        store_of(queue).session.waits_for_redis = False
        yield queue


def topics_of(queue: Queue, topic: str | None) -> list[str]:
    """The topic, or the names of all."""
    return [topic] if topic is not None else carry_out(queue, topic_names(store_of(queue), None))


def answer(as_json: bool, value: Any, text: str, *, yes: bool = True) -> None:
    """Prints one answer; exits with 1 unless ``yes``."""
    if as_json:
        terminal.print_json(value)
    else:
        terminal.say(text)
    if not yes:
        raise typer.Exit(EXIT_NO)


def given(context: typer.Context, name: str) -> bool:
    """Whether the global option was on the command line, rather than in the environment."""
    assert context.parent is not None
    source = context.parent.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def given_globals(context: typer.Context) -> list[str]:
    """The global options of the command line, for a child process; it inherits those of the environment."""
    values = {"url": context.obj.url, "namespace": context.obj.namespace}
    return [word for name, value in values.items() if given(context, name) for word in (f"--{name}", value)]


def run_until_signal(
    run: Callable[[Callable[[], bool]], None],
    pause_s: float,
    away: tuple[type[StreamdqError], ...],
    *,
    final: tuple[type[StreamdqError], ...] = (),
    longest_pause_s: float = 0.0,
    tell: Callable[[StreamdqError, float], None] | None = None,
) -> None:
    """Calls ``run`` repeatedly until SIGINT or SIGTERM. ``run`` gets a function that tells whether the signal has come,
    so that it can finish its work; a second signal, more than a second later, interrupts it. After an error in
    ``away``, unless it is in ``final``, it tries again; the pause doubles with each such error, up to
    ``longest_pause_s``. ``tell`` gets the error and the pause, for commands that log; without it, they are printed.
    """
    tell = tell or _complain_of_retry
    stop = Stop()
    before: dict[int, Any] = {}

    def on_signal(*_: Any) -> None:
        stop.set()
        uninstall(before, time.monotonic())  # a database that hangs must not keep the process from ending

    before |= install(on_signal)
    wait_s = pause_s
    while not stop.is_set():
        try:
            run(stop.is_set)
        except final:
            raise
        except away as error:
            wait_s = max(pause_s, min(wait_s * 2, longest_pause_s))
            tell(error, wait_s)
        else:
            wait_s = pause_s
        stop.wait(wait_s)


def _complain_of_retry(error: StreamdqError, wait_s: float) -> None:
    terminal.complain(f"{error}; next try in {wait_s:g} s")
