"""The root of the commands: sections in its help, and global options that may also follow the command."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

SECTIONS: Mapping[str, Sequence[str]] = {
    "Jobs": ("enqueue", "get", "result", "cancel", "abort", "reschedule", "jobs", "find", "dead", "flow", "schedule"),
    "Topics": ("topic", "stats", "upcoming", "scale"),
    "Workers": ("worker", "mover", "rehearse", "health"),
    "Servers": ("exporter",),
    "Checks": ("audit", "doctor", "demo"),
    "History": (),
    "Storage": ("bodies", "erase"),
}  # fmt: skip
"""The sections of the help, and the commands that are always there, each in one of them. Those of optional parts
follow; their ``rich_help_panel`` names the section.
"""

PARTS: Mapping[str, Sequence[str]] = {
    "jobs": ("enqueue", "get", "result", "cancel", "abort", "reschedule", "dead"),
    "find": ("find", "jobs"),
    "erase": ("erase",),
    "flows": ("flow",),
    "schedules": ("schedule",),
    "topics": ("topic", "stats", "upcoming", "scale", "audit", "doctor"),
    "work": ("worker", "mover", "rehearse", "demo"),
    "metrics": ("exporter",),
    "health": ("health",),
    "bodies": ("bodies",),
}  # fmt: skip
"""The modules and their commands, in the order of the completion. A call imports only the module of its command."""
_OTHERS = "Others"

_GLOBAL = ("--url", "--namespace")
_OF_COMMANDS = "--json"  # most commands have it, and take it in front of their names, too


class Root(TyperGroup):
    """The group of all commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._in_front(ctx, self._behind(ctx, args)))

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as click calls it
        """The sections, each in the order above."""
        width = max(len(name) for name in self.commands)
        room = formatter.width - width - 6
        for section, names in self.sections().items():
            rows = [(f"{name:<{width}}", self.commands[name].get_short_help_str(room)) for name in names]
            with formatter.section(_bold(section)):
                formatter.write_dl([(_colored(name), text) for name, text in rows])

    def sections(self) -> dict[str, list[str]]:
        """The commands of each section."""
        found = {section: [*names] for section, names in SECTIONS.items()}
        always = {name for names in SECTIONS.values() for name in names}
        for name, command in self.commands.items():
            if name not in always:
                panel = getattr(command, "rich_help_panel", None)
                found.setdefault(panel if isinstance(panel, str) else _OTHERS, []).append(name)
        return {section: [name for name in names if name in self.commands] for section, names in found.items()}

    def _behind(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments with ``--json`` after the command, if that has it."""
        command, at = self._command_in(ctx, args)
        if command is None or _OF_COMMANDS not in args[: at - 1] or not _has(ctx, command, _OF_COMMANDS):
            return args
        kept = [word for word in args[: at - 1] if word != _OF_COMMANDS]
        words = [*itertools.takewhile(lambda word: word != "--", args[at - 1 :])]
        return [*kept, *words, _OF_COMMANDS, *args[at - 1 + len(words) :]]

    def command_called(self, args: Sequence[str]) -> Any:
        """None: there is no such command."""
        return self._command_in(None, args)[0]

    def has_in_a_command(self, ctx: Any, option: str) -> bool:
        """Whether it is an option of some command."""
        return any(_has(ctx, command, option) for command in _all_in(self))

    def _in_front(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments with the global options that follow the command put before it, unless the command has an option
        of that name.
        """
        command, at = self._command_in(ctx, args)
        if command is None:
            return args
        options = [*itertools.takewhile(lambda word: word != "--", args[at:])]
        own = {name for parameter in command.get_params(ctx) for name in parameter.opts}
        front: list[str] = []
        rest: list[str] = []
        words = iter(options)
        for word in words:
            name, is_whole, _ = word.partition("=")
            if name not in _GLOBAL or name in own:
                rest.append(word)
            else:
                front += [word] if is_whole else [word, *itertools.islice(words, 1)]
        return [*args[: at - 1], *front, args[at - 1], *rest, *args[at + len(options) :]]

    def _command_in(self, ctx: Any, args: Sequence[str]) -> tuple[Any, int]:
        """The command that is called, and where the arguments of the first word of its name begin; None if none is."""
        at = _first_word(args)
        if at >= len(args):
            return None, at
        command, begin = self.get_command(ctx, args[at]), at + 1
        for word in args[begin:]:
            if not isinstance(command, TyperGroup):
                break
            command = command.get_command(ctx, word) or command
        return command, begin


def _has(ctx: Any, command: Any, option: str) -> bool:
    return any(option in (*parameter.opts, *parameter.secondary_opts) for parameter in command.get_params(ctx))


def _all_in(group: Any) -> Iterator[Any]:
    for command in group.commands.values():
        yield from _all_in(command) if isinstance(command, TyperGroup) else (command,)


def command_in(args: Sequence[str]) -> str:
    """The first word of the command that is called; "" if none is."""
    at = _first_word(args)
    return args[at] if at < len(args) else ""


def _first_word(args: Sequence[str]) -> int:
    """Where the command's name is: after the global options."""
    at = 0
    while at < len(args) and args[at].startswith("-"):
        at += 2 if args[at] in _GLOBAL else 1
    return at


def _bold(text: str) -> str:
    return typer.style(text, bold=True) if _in_color() else text


def _colored(text: str) -> str:
    return typer.style(text, fg="cyan") if _in_color() else text


def _in_color() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
