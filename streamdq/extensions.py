"""What other packages add to streamdq, and its own optional parts: entry points, each loaded when it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any, TypeVar

from .errors import ExtensionBroken, StreamdqError

T = TypeVar("T")
COMMANDS, CODECS = "streamdq.commands", "streamdq.codecs"
_KINDS = {COMMANDS: "command", CODECS: "codec"}
_OWN = "streamdq"


@dataclass(frozen=True)
class Extension:
    """One entry point. ``package``: the name and version of the distribution that has it."""

    name: str
    package: str
    _entry: metadata.EntryPoint

    def load(self, kind: type | None = None) -> Any:
        """Imports it.

        Raises:
            ExtensionBroken: the import fails, or gives no object of this ``kind``.
        """
        loaded = self.calling(self._entry.load)
        if kind is not None and not isinstance(loaded, kind):
            raise self.broken(f"{self._entry.value} is no {kind.__module__.partition('.')[0]}.{kind.__name__}")
        return loaded

    def calling(self, function: Callable[[], T]) -> T:
        """What its function returns. It can't end the process, as by ``sys.exit``: nobody would know why it ended.

        Raises:
            ExtensionBroken: it fails.
        """
        try:
            return function()
        except (StreamdqError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self.broken(_text_of(error)) from error

    def broken(self, why: str) -> ExtensionBroken:
        return ExtensionBroken(f"the {_KINDS[self._entry.group]} {self.name} of {self.package} can't be used: {why}")


def find(group: str, name: str) -> Extension | None:
    """The extension of this name. To look among those of other packages takes some milliseconds."""
    return next((one for one in found(group) if one.name == name), None)


def found(group: str) -> Iterator[Extension]:
    """Those of streamdq, then those of other packages, by the packages' names; of a name that several have, all."""
    try:
        own = metadata.distribution(_OWN)
    except metadata.PackageNotFoundError:  # run from a folder, without an installation
        pass
    else:
        for entry in own.entry_points.select(group=group):
            yield Extension(entry.name, f"{_OWN} {own.version}", entry)
    others = [(_name_of(entry.dist), entry) for entry in metadata.entry_points(group=group) if entry.dist]
    for name, entry in sorted(others, key=lambda pair: pair[0]):
        if name != _OWN and entry.dist:
            yield Extension(entry.name, f"{name} {entry.dist.version or '(no version)'}", entry)


def _name_of(package: metadata.Distribution) -> str:
    """What is left of a package that was removed halfway may have no name."""
    return package.name or "(no name)"


def _text_of(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}: its message can't be read"
