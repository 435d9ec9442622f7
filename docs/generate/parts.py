"""What stands in a page's place of `<!-- generated: NAME -->`: made of the code when the site is built."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from docs.generate.openapi import operations, table
from streamdq import Queue, Worker, errors
from streamdq.callback import CallbackSettings
from streamdq.cli.app import app
from streamdq.config import HttpSettings, Settings
from streamdq.http.problems import KINDS
from streamdq.metrics import declared


def prose(text: str | None) -> str:
    """A docstring as Markdown: code between double backticks, one line per paragraph."""
    paragraphs = re.split(r"\n\s*\n", (text or "").strip())
    return "\n\n".join(re.sub(r"``(.+?)``", r"`\1`", " ".join(part.split())) for part in paragraphs)


# -- settings


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value in (None, "", (), {}):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _settings(model: type[BaseModel], prefix: str) -> str:
    rows = (
        [f"`{prefix}{name.upper()}`", _default(field), prose(field.description)]
        for name, field in model.model_fields.items()
    )
    return table(["variable", "default", ""], rows)


def settings() -> str:
    return _settings(Settings, Settings.env_prefix)


def http_settings() -> str:
    return _settings(HttpSettings, HttpSettings.env_prefix)


def callback_settings() -> str:
    return _settings(CallbackSettings, CallbackSettings.env_prefix)


# -- metrics


def metrics() -> str:
    rows = ([f"`{metric.name}`", metric.kind, ", ".join(metric.labels), metric.help] for metric in declared.described())
    return table(["metric", "kind", "labels", "what it tells"], rows)


# -- errors


def _classes() -> list[type[Exception]]:
    return [
        found
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, errors.StreamdqError) and found.__module__ == errors.__name__
    ]


def exceptions() -> str:
    """A section for each, so that it has an address."""
    parts = []
    for error in _classes():
        bases = " and ".join(f"`{base.__name__}`" for base in error.__bases__ if base is not errors.Portable)
        parts.append(
            f"### `{error.__name__}` {{ #{error.__name__.lower()} }}\n\n"
            + (f"Base: {bases}.\n\n" if bases else "")
            + prose(error.__doc__)
        )
    return "\n\n".join(parts)


def problems() -> str:
    rows = ([str(status), f"`urn:streamdq:problem:{kind}`", title] for kind, (status, title) in KINDS.items())
    return table(["status", "type", "title"], rows)


# -- the command line


def _parameter(parameter: Any) -> list[str]:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{(parameter.metavar or parameter.name).upper()}`"
    notes = [prose(getattr(parameter, "help", "") or "")]
    if parameter.required:
        notes.append("Required.")
    elif parameter.default not in (None, False, "", ()) and not callable(parameter.default):
        notes.append(f"Default: `{parameter.default}`.")
    if getattr(parameter, "multiple", False):
        notes.append("May be given several times.")
    if parameter.envvar:
        notes.append(f"Environment: `{parameter.envvar}`.")
    return [names, " ".join(note if note.endswith((".", "!", "?")) else f"{note}." for note in notes if note)]


def _help(text: str | None) -> str:
    """The text of a command; what it sets apart with a backspace keeps its lines."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", (text or "").strip()):
        if paragraph.startswith("\b"):
            head, *lines = paragraph.removeprefix("\b").strip("\n").splitlines()
            title, shown = (head, lines) if head.endswith(":") and not head.startswith(" ") else ("", [head, *lines])
            parts.append((f"{title}\n\n" if title else "") + "```text\n" + "\n".join(shown) + "\n```")
        else:
            parts.append(prose(paragraph))
    return "\n\n".join(parts)


def _commands(command: Any, path: str, depth: int, *, within: bool = True) -> list[str]:
    """A section for each command, those within groups below them."""
    if command.hidden:
        return []
    context = typer.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parts = [f"{'#' * depth} `{path}`\n\n```text\n{usage}\n```\n\n{_help(command.help)}"]
    rows = [_parameter(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
    if rows:
        parts.append(table(["", ""], rows))
    for name, one in getattr(command, "commands", {}).items() if within else ():
        parts += _commands(one, f"{path} {name}", min(depth + 1, 3))
    return parts


def summary(title: str) -> str:
    """What the command with this title does, in a line; "" if the title is of something else."""
    words = title.strip("`").split()
    command: Any = typer.main.get_command(app) if words[:1] == ["streamdq"] else None
    for word in words[1:]:
        command = getattr(command, "commands", {}).get(word)
    return command.get_short_help_str(200) if command is not None and words[1:] else ""


def methods(path: str) -> list[str]:
    """The public methods of the class of this name, if it is one of the queues."""
    cls = {"streamdq.Queue": Queue, "streamdq.Worker": Worker}.get(path)
    return [name for name in vars(cls or object) if name[0] != "_" and callable(getattr(cls, name))]


def commands() -> str:
    """The command itself, and then those of each section of its help."""
    root: Any = typer.main.get_command(app)
    within = root.commands
    parts = _commands(root, "streamdq", 2, within=False)
    for title, names in root.sections().items():
        parts.append(f"## {title}")
        for name in names:
            parts += _commands(within[name], f"streamdq {name}", 3)
    return "\n\n".join(parts)


# -- the HTTP API


def http() -> str:
    create_app = importlib.import_module("streamdq.http").create_app
    return operations(create_app("memory://unused", authentication="mine").openapi())


_GENERATED = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
_IN_A_CHECKOUT = re.compile(r"^In a checkout, this .*\n(?:.+\n)*\n?", re.MULTILINE)


def filled(markdown: str) -> str:
    """The page with what is generated, without the sentences for readers of the source."""
    return _GENERATED.sub(lambda found: PARTS[found[1]](), _IN_A_CHECKOUT.sub("", markdown))


PARTS: Mapping[str, Callable[[], str]] = {
    part.__name__: part
    for part in (
        settings,
        http_settings,
        callback_settings,
        metrics,
        exceptions,
        problems,
        commands,
        http,
    )
}
