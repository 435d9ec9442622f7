"""A mutant: a source file with one small change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Edit(NamedTuple):
    """Bytes ``start`` to ``end`` of a source become ``text``."""

    start: int
    end: int
    text: str


class Mutant(NamedTuple):
    """``was``, ``now``: the lines that the change concerns. They identify it as long as nobody rewrites them."""

    file: str
    line: int
    was: str
    now: str
    source: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.file, self.was, self.now

    def __str__(self) -> str:
        return f"{self.file}:{self.line}\n  - {self.was}\n  + {self.now}"


def mutants_of(file: str, source: str, edits: Iterable[Edit]) -> Iterator[Mutant]:
    """Each text but once, in the order of the file. What two edits in a line make alike is one mutant."""
    original, seen = source.encode(), {source}
    for edit in sorted(edits):
        changed = (original[: edit.start] + edit.text.encode() + original[edit.end :]).decode()
        if changed not in seen:
            seen.add(changed)
            yield _mutant(file, original, edit, changed)


def _mutant(file: str, original: bytes, edit: Edit, changed: str) -> Mutant:
    begin = original.rfind(b"\n", 0, edit.start) + 1
    end = original.find(b"\n", edit.end)
    end = len(original) if end < 0 else end
    before, after = original[begin : edit.start], original[edit.end : end]
    was = _one_line(original[begin:end].decode())
    now = _one_line((before + edit.text.encode() + after).decode())
    return Mutant(file, original.count(b"\n", 0, edit.start) + 1, was, now, changed)


def _one_line(text: str) -> str:
    return " ".join(text.split())
