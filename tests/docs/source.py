"""What a source file says: its names, and its prose, which is comments, docstrings and the names of tests."""

from __future__ import annotations

import re
from collections.abc import Iterator

INSTALLED = {"node_modules", ".environments"}
"""Folders of other projects, which Git ignores: ``make migrating`` and ``make bench-peers`` fill them."""

_PYTHON = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r"|(?P<doc>(?<![^\n])[ ]*r?\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*\"\"\"(?=[ ]*(?:\#[^\n]*)?\n))"
    r"|[A-Za-z]{0,2}(?:\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*\"\"\"|'''(?:[^'\\]|\\.|'(?!''))*''')"
    r"|[A-Za-z]{0,2}(?:\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<name>(?<!\w)[A-Za-z_]\w*)",
    re.DOTALL,
)
_LUA_COMMENT = re.compile(r"--(?:\[\[.*?\]\]|[^\n]*)", re.DOTALL)
_LUA_STRING = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_NAME = re.compile(r"[A-Za-z_]\w*")
_TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def names_of_python(text: str) -> set[str]:
    """Without comments and strings."""
    return {found["name"].strip("_") for found in _PYTHON.finditer(text) if found["name"]}


def names_of_lua(text: str) -> set[str]:
    """Without comments and messages. A string of one word is a name: a key's, or a field's."""
    text = _LUA_STRING.sub(lambda one: one[0] if _NAME.fullmatch(one[0][1:-1]) else "", _LUA_COMMENT.sub("", text))
    return set(_NAME.findall(text))


def prose_of_python(text: str) -> Iterator[tuple[int, str]]:
    """Each paragraph of a comment, docstring or name of a test, with its line."""
    said = [(found.start(), found["comment"] or found["doc"]) for found in _PYTHON.finditer(text)]
    yield from _paragraphs(text, [(start, part) for start, part in said if part])
    for found in _TEST.finditer(text):
        yield _line(text, found.start(1)), found[1].replace("_", " ")


def prose_of_lua(text: str) -> Iterator[tuple[int, str]]:
    return _paragraphs(text, [(found.start(), found[0]) for found in _LUA_COMMENT.finditer(text)])


def _paragraphs(text: str, parts: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Comments of lines that follow each other are one."""
    begin, lines, last = 0, list[str](), -1
    for start, part in parts:
        number = _line(text, start)
        if lines and number != last + 1:
            yield begin, " ".join(lines)
            lines = []
        begin = begin if lines else number
        words = " ".join(part.split()).strip('#-"[] ').removeprefix('r"""')
        lines.append(words)
        last = number + part.count("\n")
        if '"""' in part:
            yield begin, " ".join(lines)
            lines = []
    if lines:
        yield begin, " ".join(lines)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
