"""Whether pages, comments and docstrings are written in plain words, by the rules of prose.toml.

python -m tests.docs.prose [PAGE ...]    what to mend, in all of them or in these pages
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tests.docs.source import INSTALLED, prose_of_lua, prose_of_python

ROOT = Path(__file__).parents[2]
RULES = Path(__file__).with_suffix(".toml")
READ = ("*.md", "docs/**/*.md", "*/README.md", "clients/*/README.md", "examples/*/README.md")
SOURCES = ("benchmarks", "clients", "dashboards", "deploy", "docs", "examples", "lua", "spark", "streamdq", "tests")
UNCHECKED = ("CHANGELOG.md",)
"""It says what was, also of names that have gone."""

_FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_CODE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->|<[^>\n]+>", re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])")
_LINK = re.compile(r"\[([^\]]*)\](?:\([^)\s]*(?: \"[^\"]*\")?\)|\[[^\]]*\])")
_INLINE = re.compile(r"(?<!`)(`+)(?!`)(?:(?!\n\s*\n).)+?(?<!`)\1(?!`)", re.DOTALL)
_GENERATED = re.compile(r"^:::.*\n(?:    .*\n?)*", re.MULTILINE)
_ATTRIBUTES = re.compile(r"\{[ :#.][^}\n]*\}")
_HEADING = re.compile(r"#{1,6} ")
_ROW = re.compile(r"\|")
_ITEM = re.compile(r"(?:[-*+]|\d+[.)]|: {1,3}|\[\^[\w-]+\]:)\s+")
_OPENS = re.compile(r"(?:!!!|\?\?\?\+?|===\+?) .*|#\w+")
_END = re.compile(r"(?<=[.!?…])[\"')*_]*\s+(?=[\"'(*_]*[A-Z0-9`])")
_SHORT = re.compile(r"\b(?:e\.g|i\.e|vs|cf|etc|approx|no)\.$", re.IGNORECASE)
_WORD = re.compile(r"[^\W_][\w'\u2019.,:/%+-]*")
CODE = "`C`"
"""What stands for code within a sentence; it counts as one word."""


class Finding(NamedTuple):
    """``rule``: ``average``, ``sentence``, ``length`` or ``words``."""

    rule: str
    line: int
    text: str


class Retired(NamedTuple):
    word: re.Pattern[str]
    instead: str
    fine: re.Pattern[str] | None
    only_pages: bool = False

    def uses(self, text: str) -> Iterator[re.Match[str]]:
        ordinary = [found.span() for found in self.fine.finditer(text)] if self.fine else []
        for found in self.word.finditer(text):
            if not any(begin <= found.start() and found.end() <= end for begin, end in ordinary):
                yield found


@dataclass(frozen=True)
class Rules:
    average_words: int
    sentence_words: int
    page_words: int
    long: tuple[str, ...]
    retired: tuple[Retired, ...]

    @classmethod
    def read(cls, text: str) -> Rules:
        given = tomllib.loads(text)
        limits = given["limits"]
        retired = tuple(
            Retired(
                _whole(one["word"]),
                one["instead"],
                _whole("|".join(one["fine"])) if "fine" in one else None,
                one.get("only_pages", False),
            )
            for one in given["retired"]
        )
        return cls(
            limits["average_words"], limits["sentence_words"], limits["page_words"], tuple(limits["long"]), retired
        )


def _whole(words: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{words})\b", re.IGNORECASE)


class Block(NamedTuple):
    """A paragraph, an item of a list, a heading or a row of a table, without its markup."""

    line: int
    text: str
    is_prose: bool
    """Headings and tables are not: their words count, their sentences don't."""


class Page:
    """``path``: in the repository, which decides on the limits."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self._text = text

    @cached_property
    def blocks(self) -> list[Block]:
        found: list[Block] = []
        lines: list[str] = []
        begin = 1

        def close() -> None:
            if lines:
                found.append(Block(begin, " ".join(lines), is_prose=True))
                lines.clear()

        for number, line in enumerate(_bare(self._text).splitlines(), 1):
            text = line.strip()
            item = _ITEM.match(text)
            alone = _HEADING.match(text) or _ROW.match(text) or _OPENS.fullmatch(text)
            if not text or item or alone:
                close()
            if alone:
                found.append(Block(number, text.strip("#| "), is_prose=False))
            elif text:
                begin = begin if lines else number
                lines.append(text[item.end() :] if item else text)
        close()
        return found

    @cached_property
    def sentences(self) -> list[tuple[int, str]]:
        """Each with the line at which its paragraph begins."""
        return [(block.line, one) for block in self.blocks if block.is_prose for one in _sentences(block.text)]

    @property
    def words(self) -> int:
        """Of everything that is read: prose, headings and tables."""
        return sum(len(words(block.text)) for block in self.blocks)

    @property
    def average(self) -> float:
        """Words of a sentence. What is no sentence, as a list's item of three words, is left out."""
        lengths = [len(words(text)) for _, text in self.sentences]
        whole = [length for length in lengths if length > _FRAGMENT]
        return sum(whole) / len(whole) if whole else 0

    def findings(self, rules: Rules) -> Iterator[Finding]:
        if self.average > rules.average_words:
            yield Finding("average", 1, f"{self.average:.1f} words a sentence, at most {rules.average_words}")
        if self.words > rules.page_words and not self.path.startswith(rules.long):
            yield Finding("length", 1, f"{self.words} words, at most {rules.page_words}")
        for line, text in self.sentences:
            if len(words(text)) > rules.sentence_words:
                yield Finding("sentence", line, f"{len(words(text))} words: {text[:80]} …")
        for block in self.blocks:
            for retired in rules.retired:
                for found in retired.uses(block.text):
                    yield Finding("words", block.line, f"{found[0]!r}: rather {retired.instead}")


_FRAGMENT = 3


def words(text: str) -> list[str]:
    return _WORD.findall(text)


def _bare(text: str) -> str:
    """Without code and markup, on the same lines."""

    def blank(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n")

    for pattern in (_FRONT, _CODE, _GENERATED):
        text = pattern.sub(blank, text)
    text = _COMMENT.sub(blank, _INLINE.sub(lambda found: CODE + blank(found), text))
    text = _LINK.sub(lambda found: found[1], _IMAGE.sub(blank, text))
    return re.sub(r"\*\*|__", "", _ATTRIBUTES.sub("", text))


def _sentences(text: str) -> Iterator[str]:
    begin = 0
    for found in _END.finditer(text):
        if not _SHORT.search(text[begin : found.start()]):
            yield text[begin : found.start()]
            begin = found.end()
    yield text[begin:]


# -- the pages of the repository


def pages() -> list[Page]:
    """Of docs/, and those beside the code that they are about."""
    paths = [path for folder in READ for path in ROOT.glob(folder)]
    names = sorted(str(path.relative_to(ROOT)) for path in paths if not INSTALLED & {*path.parts})
    return [Page(name, (ROOT / name).read_text(encoding="utf-8")) for name in names if name not in UNCHECKED]


def found_in(all_pages: Iterable[Page], rules: Rules) -> dict[str, list[str]]:
    """By page, what to mend."""
    found: dict[str, list[str]] = {}
    for page in all_pages:
        for one in page.findings(rules):
            found.setdefault(page.path, []).append(f"{page.path}:{one.line}: {one.rule}: {one.text}")
    return found


def found_in_code(rules: Rules) -> list[str]:
    """Retired words in comments, docstrings and names of tests."""
    retired = [one for one in rules.retired if not one.only_pages]
    any_retired = re.compile("|".join(one.word.pattern for one in retired), re.IGNORECASE)
    files = [*_sources("*.py", prose_of_python), *_sources("*.lua", prose_of_lua), *_sources("*.sql", prose_of_lua)]
    return [
        f"{path}:{line}: words: {use[0]!r}: rather {one.instead}: {text[max(0, use.start() - 40) : use.end() + 40]}"
        for path, said in files
        for line, text in said
        if any_retired.search(text)  # a look for each by itself takes three times as long
        for one in retired
        for use in one.uses(text)
    ]


def _sources(
    suffix: str, prose: Callable[[str], Iterator[tuple[int, str]]]
) -> Iterator[tuple[str, Iterator[tuple[int, str]]]]:
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob(suffix)):
            if not INSTALLED & {*path.parts}:
                yield str(path.relative_to(ROOT)), prose(path.read_text(encoding="utf-8"))


def main(arguments: list[str]) -> int:
    rules = Rules.read(RULES.read_text(encoding="utf-8"))
    found = found_in(pages(), rules)
    lines = [line for path, lines in found.items() if not arguments or path in arguments for line in lines]
    lines += found_in_code(rules) if not arguments else []
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
