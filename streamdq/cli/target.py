"""Which worker the command line means: ``MODULE:WORKER``, looked for in the working folder first."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import InvalidInput
from ..worker.worker import Worker, importing


def import_worker(target: str) -> Worker:
    """The Worker that ``MODULE:WORKER`` names; the current directory is searched first.

    Raises:
        InvalidInput: the module or the name does not exist, or is not a Worker; the message says which.
    """
    module_name, _, name = target.partition(":")
    if not (module_name and name) or "/" in module_name or module_name.startswith("."):
        raise InvalidInput(f"worker: {target!r} is not MODULE:WORKER; write for example {_example(target)}")
    found = _module(module_name, target)
    for part in name.split("."):
        if not hasattr(found, part):
            why = _workers_of(found) + _hidden(module_name, found)
            raise InvalidInput(f"worker: module {module_name!r} has no {name!r}{why}")
        found = getattr(found, part)
    if not isinstance(found, Worker):
        raise InvalidInput(f"worker: {target} is of type {type(found).__name__}, not a streamdq Worker")
    return found


def _module(module_name: str, target: str) -> Any:
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    sys.meta_path.insert(0, _NeededFirst(folder))
    token = importing.set(module_name)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):  # it exists, but imports a missing module
            raise
        if module_name.endswith(".py"):
            raise InvalidInput(f"worker: {target!r} names a file, not a module; write {_example(target)}") from None
        raise InvalidInput(f"worker: {error}, neither in {Path.cwd()} nor among the installed packages") from None
    finally:
        importing.reset(token)


def _example(target: str) -> str:
    """What to write instead of the target: of the path of a file, the module that it is."""
    path, _, name = target.partition(":")
    parts = path.removesuffix(".py").replace("/", ".").split(".")
    return f"{'.'.join(part for part in parts if part.isidentifier()) or 'shop.jobs'}:{name or 'worker'}"


def _workers_of(module: Any) -> str:
    names = [name for name, value in getattr(module, "__dict__", {}).items() if isinstance(value, Worker)]
    return f"; its workers are: {', '.join(names)}" if names else ", nor any Worker"


def _hidden(module_name: str, found: Any) -> str:
    """If the module is another one than that in the working folder."""
    top = module_name.partition(".")[0]
    if not _is_in(Path.cwd(), top) or str(getattr(found, "__file__", "")).startswith(str(Path.cwd())):
        return ""
    return f"; it is not the {top!r} of the working folder, as Python or a package has a module of this name: rename it"


class _NeededFirst(MetaPathFinder):
    """Finds modules that Python, streamdq and what it needs import, although the working folder has some of the same
    name, such as ``queue.py`` or ``redis.py``. They are also imported later, when they are first used.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if path is not None or not _is_in(Path(self._folder), fullname):
            return None
        others = [each for each in sys.path if each not in ("", self._folder)]
        elsewhere = PathFinder.find_spec(fullname, others, target)
        # Asked last: it reads the lists of files of all installed packages, which takes up to a second.
        if elsewhere is None or (fullname not in sys.stdlib_module_names and not _is_needed(fullname)):
            return None
        return elsewhere


def _is_in(folder: Path, module: str) -> bool:
    return (folder / f"{module}.py").exists() or (folder / module).is_dir()


def _is_needed(module: str) -> bool:
    """Whether streamdq or a package that it needs has a module of this name."""
    return any(_plain(each) in _needed_packages() for each in metadata.packages_distributions().get(module, ()))


@cache
def _needed_packages() -> frozenset[str]:
    """The names of streamdq's package, of those that it needs, and of those that these need."""
    found: set[str] = set()
    left = {"streamdq"}
    while left:
        name = left.pop()
        found.add(name)
        try:
            needs = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:  # of an extra that is not installed
            continue
        for need in needs:
            if match := re.match(r"[A-Za-z0-9._-]+", "" if _FOR_DEVELOPMENT in need else need):
                left |= {_plain(match[0])} - found
    return frozenset(found)


_FOR_DEVELOPMENT = "extra == 'dev'"


def _plain(package: str) -> str:
    return package.lower().replace("_", "-")
