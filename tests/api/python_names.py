"""The public names of Python: those of docs/reference/python.md and of the package itself."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, ForwardRef

import streamdq
from tests.docs.reader import ROOT

_SPECIAL = ("__aenter__", "__aiter__", "__call__", "__enter__", "__iter__")


def listed() -> list[str]:
    """The names that the page shows."""
    return re.findall(r"^::: (\S+)", (ROOT / "docs/reference/python.md").read_text(encoding="utf-8"), re.MULTILINE)


def resolved(path: str) -> Any:
    module, names = path, list[str]()
    while True:
        try:
            found = import_module(module)
            break
        except ModuleNotFoundError:
            module, _, name = module.rpartition(".")
            names.insert(0, name)
    for name in names:
        found = getattr(found, name)
    return found


def lines() -> Iterator[str]:
    paths = [*listed(), *(f"streamdq.{name}" for name in streamdq.__all__ if not name.startswith("_"))]
    for path in dict.fromkeys(paths):
        yield from (f"python {line}" for line in _described(path, resolved(path)))


def _described(path: str, found: Any) -> Iterator[str]:
    if inspect.isclass(found):
        yield from _of_class(path, found)
    elif callable(found) and not hasattr(found, "__origin__"):
        yield from _of_function(path, found)
    else:
        yield path


def _of_class(path: str, cls: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object and base.__name__[0] != "_")
    yield f"{path}({bases})" if bases else path
    if issubclass(cls, enum.Enum):
        yield from (f"{path}.{member.name} = {member.value!r}" for member in cls)
        return
    own = [base for base in cls.__mro__ if base.__module__.startswith("streamdq")]
    init = next((base for base in own if "__init__" in vars(base)), None)
    if init is not None and not dataclasses.is_dataclass(init) and not hasattr(cls, "model_fields"):
        yield from _of_function(path, cls, returns=False)
    yield from _fields(path, own)
    for name in sorted({name for base in own for name in vars(base) if not name.startswith("_") or name in _SPECIAL}):
        yield from _member(f"{path}.{name}", cls, inspect.getattr_static(cls, name), name)


def _fields(path: str, classes: list[type]) -> Iterator[str]:
    seen = set()
    for base in classes:
        for name, kind in inspect.get_annotations(base).items():
            if not name.startswith("_") and name not in seen and "ClassVar" not in str(kind):
                seen.add(name)
                yield f"{path}.{name}: {_text(kind)}{_default_of(base, name)}"


def _default_of(cls: type, name: str) -> str:
    declared = {field.name: field for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
    declared |= getattr(cls, "model_fields", {})
    field = declared.get(name)
    if field is None:
        return ""
    if getattr(field, "default_factory", None) not in (None, dataclasses.MISSING):
        return " = …"
    is_required = field.default is dataclasses.MISSING or getattr(field, "is_required", bool)()
    return "" if is_required else f" = {_value(field.default)}"


def _member(path: str, cls: type, static: Any, name: str) -> Iterator[str]:
    if isinstance(static, property):
        yield f"{path}: {_text(inspect.get_annotations(static.fget).get('return', '')) if static.fget else ''}"
        return
    value = getattr(cls, name, None)
    if callable(value) and hasattr(value, "__name__") and not inspect.isclass(value):
        is_bound = isinstance(static, staticmethod | classmethod)
        yield from _of_function(path, value, skip=0 if is_bound else 1)


def _of_function(path: str, function: Any, *, skip: int = 0, returns: bool = True) -> Iterator[str]:
    """A line for what it returns, and one for each parameter: with its place, or by its name alone."""
    signature = inspect.signature(function)
    if returns:
        awaited = "await " if inspect.iscoroutinefunction(function) else ""
        yield f"{awaited}{path}() -> {_text(signature.return_annotation)}"
    for place, (name, one) in enumerate([*signature.parameters.items()][skip:], 1):
        stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        by_place = f"{place} " if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) else ""
        kind = f": {_text(one.annotation)}" if one.annotation is not one.empty else ""
        default = f" = {_value(one.default)}" if one.default is not one.empty else ""
        yield f"{path}({by_place}{stars}{name}{kind}{default})"


def _text(annotation: Any) -> str:
    """The same in every process."""
    if isinstance(annotation, str | ForwardRef):
        return annotation if isinstance(annotation, str) else annotation.__forward_arg__
    if annotation is inspect.Parameter.empty:
        return "Any"
    is_plain = inspect.isclass(annotation) and not hasattr(annotation, "__origin__")
    return annotation.__name__ if is_plain else repr(annotation).replace("typing.", "")


def _value(default: Any) -> str:
    return type(default).__name__ if " at 0x" in repr(default) else repr(default)
