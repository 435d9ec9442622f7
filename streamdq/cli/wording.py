"""Errors of the library in the words of the command line: they name options instead of Python's arguments."""

from __future__ import annotations

import re
from collections.abc import Collection

_ARGUMENT = re.compile(r"\b([a-z_]+)=(?:True\b|('[^']*'(?:(?:, | or )'[^']*')*))(?! \(--)")
_EVERYWHERE = re.compile(r"\b[a-z_]{1,30}=True \((--[a-z-]{1,30})(?:, \?[a-z_]{1,30}=true)?\)")
"""An argument, with the option and the query parameter of the same name."""

_EITHER = re.compile(r"\bpass ([a-z_]+) or ([a-z_]+)\b")
_HEAD = re.compile(r"^[a-z_]+(?:, [a-z_]+)*: ")
_GROUPS = re.compile(r"configure\((['\"])(.*?)\1, groups=\[\.\.\.\]\)")


def in_options(message: str, options: Collection[str]) -> str:
    """The message, with the ``options`` of the command in place of the arguments of the same name."""

    def option(name: str) -> str:
        """The option; the name if the command has none."""
        written = f"--{name.replace('_', '-')}"
        return written if written in options else name

    def argument(found: re.Match[str]) -> str:
        written = option(found[1])
        values = (found[2] or "").replace("'", "")
        return found[0] if written == found[1] else f"{written} {values}".rstrip()

    message = _EVERYWHERE.sub(lambda found: found[1] if found[1] in options else found[0], message)
    message = _GROUPS.sub(lambda found: f"`streamdq topic configure {found[2]} --group NAME`", message)
    message = _HEAD.sub(lambda found: re.sub("[a-z_]+", lambda name: option(name[0]), found[0]), message)
    message = _EITHER.sub(lambda found: f"pass {option(found[1])} or {option(found[2])}", message)
    return _ARGUMENT.sub(argument, message)
