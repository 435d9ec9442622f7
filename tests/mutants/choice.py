"""Which tests are run on a mutant, and in which order: the sooner one fails, the sooner the next mutant's turn is."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from tests.servers import Binary

from . import lua, python
from .mutant import ROOT, Mutant

_SERVER = re.compile(r"(?:redis|valkey)-[\d.]+|fakeredis")


class Ran(NamedTuple):
    """A test that was run without a mutant. ``scripts``: those that it called."""

    took_s: float
    scripts: list[str]
    passed: bool


class Choice:
    def __init__(
        self, items: Sequence[pytest.Item], ran: Mapping[int, Ran], first: Binary, *, on_others: bool = True
    ) -> None:
        """``ran``: by the item's number, on the ``first`` server; a test is supposed to do the same on others."""
        on_first = {_name_of(items[i]): each for i, each in ran.items()}
        chosen = [i for i, item in enumerate(items) if _name_of(item) in on_first and (on_others or i in ran)]
        self.ran = {i: on_first[_name_of(items[i])] for i in chosen}
        self._servers = {i: server_of(items[i], first) for i in chosen}
        self._paths = {i: os.path.relpath(items[i].path, ROOT) for i in chosen}
        self._worked: Counter[tuple[str, int]] = Counter()

    def of(self, mutant: Mutant) -> list[int]:
        """Those that have killed mutants of the file come first; then, on one server, the tests of the scripts that it
        is part of, and all others that call these scripts; and at last the scripts' own tests on the other servers.
        """
        chosen = self._of_python(mutant.file) if mutant.file.endswith(".py") else self._of_lua(mutant)
        return [i for _, _, i in sorted((-self._worked[mutant.file, i], rank, i) for i, rank in chosen)]

    def worked(self, mutant: Mutant, i: int) -> None:
        self._worked[mutant.file, i] += 1

    def _of_lua(self, mutant: Mutant) -> Iterator[tuple[int, tuple[int, bool, float]]]:
        parts = lua.scripts_with(mutant)
        own = {f"tests/lua/test_{script}.py" for script in parts}
        for i, ran in self.ran.items():
            server, is_own = self._servers[i], self._paths[i] in own
            if parts.intersection(ran.scripts) and (server == 0 or is_own):
                yield i, (server, not is_own, ran.took_s)

    def _of_python(self, file: str) -> Iterator[tuple[int, tuple[int, bool, float]]]:
        for number, start in enumerate(python.tests_of(file)):
            for i, ran in self.ran.items():
                if self._paths[i].startswith(start):
                    yield i, (number, False, ran.took_s)


def _name_of(item: pytest.Item) -> str:
    """The same on each server."""
    return _SERVER.sub("", item.nodeid)


def server_of(item: pytest.Item, first: Binary) -> int:
    """0: the first one, or none; 1: another one; 2: fakeredis; 3: one with which scripts are interrupted or refused.
    What judges there knows the scripts by their text, so every mutant would fail.
    """
    spec: Any = getattr(item, "callspec", None)
    values = spec.params.values() if spec else ()
    if any(isinstance(value, tuple) and value[:1] in (("moving",), ("cut",)) for value in values):
        return 3
    if "memory" in values:
        return 2
    return int(any(isinstance(value, Binary) and value != first for value in values))
