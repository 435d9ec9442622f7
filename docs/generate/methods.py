"""What griffe, which reads the code without running it, can't see or read: the methods of Queue and AsyncQueue that are
made of operations, and exceptions in docstrings that share a line.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import griffe

from streamdq import AsyncQueue, Queue


class Operations(griffe.Extension):
    """Puts a function with the operation's signature in the place of each such attribute."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        if pkg.path != "streamdq":
            return
        for queue in (Queue, AsyncQueue):
            shown = pkg[f"queue.{queue.__name__}"]
            for name in list(vars(queue)):
                operation = getattr(getattr(queue, name), "__wrapped__", None)
                if operation is not None:
                    path = f"{operation.__module__}.{operation.__qualname__}".removeprefix("streamdq.")
                    shown.set_member(name, _method(name, pkg[path], shown[name]))


class Raises(griffe.Extension):
    """Each exception of a docstring gets a line of its own, with a colon."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            head, title, rest = obj.docstring.value.partition("\nRaises:\n")
            obj.docstring.value = f"{head}{title}{_apart(rest)}"


def _apart(raises: str) -> str:
    lines: list[str] = []
    for line in raises.splitlines():
        item = _EXCEPTIONS.match(line)
        if item is not None:
            *names, last = item["names"].split(", ")
            lines += [f"{item['indent']}{name}:" for name in names] + [f"{item['indent']}{last}:{item['text'] or ''}"]
        elif line.strip():
            lines.append(f"    {line}")
    return "\n".join(lines)


_EXCEPTIONS = re.compile(r"(?P<indent> +)(?P<names>[A-Z]\w*(?: \(a \w+\))?(?:, [A-Z]\w*)*)(?::(?P<text>.*))?$")


def _method(name: str, operation: griffe.Function, attribute: griffe.Attribute) -> griffe.Function:
    """``def f(store, topic) -> Op[Job]`` as ``def f(self, topic) -> Job``."""
    _store, *rest = operation.parameters
    returns = operation.returns.slice if isinstance(operation.returns, griffe.ExprSubscript) else operation.returns
    method = griffe.Function(
        name,
        lineno=attribute.lineno,
        endlineno=attribute.endlineno,
        parameters=griffe.Parameters(
            griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword), *map(copy.copy, rest)
        ),
        returns=returns,
        docstring=operation.docstring,
    )
    method.labels = set(attribute.labels) - {"class-attribute", "instance-attribute"}
    return method
