"""Pages are written in plain words."""

from __future__ import annotations

import itertools
import re

import pytest

from tests.docs.prose import ROOT, RULES, Page, Rules, found_in, found_in_code, pages
from tests.docs.source import prose_of_lua, prose_of_python

RULES_HERE = Rules.read("""
[limits]
average_words = 6
sentence_words = 12
page_words = 30
long = ["docs/reference/"]
[[retired]]
word = "rings?"
instead = "wake up"
fine = ["key ?rings?"]
[[retired]]
word = "as ever"
instead = "unchanged"
""")


def test_pages_are_plain() -> None:
    assert found_in(pages(), Rules.read(RULES.read_text(encoding="utf-8"))) == {}


def test_code_is_plain() -> None:
    assert found_in_code(Rules.read(RULES.read_text(encoding="utf-8"))) == []


def test_pages_beside_the_code_are_read_too() -> None:
    assert {page.path for page in pages()} >= {
        "CONTRIBUTING.md", "README.md", "benchmarks/README.md", "clients/typescript/README.md", "docs/pipelines.md",
        "docs/runbook/redis.md", "examples/compose/README.md", "lua/README.md",
    }  # fmt: skip


def findings(text: str, path: str = "docs/a.md") -> list[tuple[str, int]]:
    return [(one.rule, one.line) for one in Page(path, text).findings(RULES_HERE)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rings.", [("words", 1)]),
        ("# A ring\n\n| a | ring |\n", [("words", 1), ("words", 3)]),
        ("First.\n\nIt is\nas ever.", [("words", 3)]),
        ("It is as\never.", [("words", 1)]),
        ("A key ring, a keyring, strings. No `ring` is [here](ring.md).", []),
        ("```console\n$ ring\n```\n\n::: lib.ring\n    options: { ring: 1 }\n\n<!-- ring -->\n", []),
        ("---\ntitle: ring\n---\nText.", []),
    ],
)
def test_retired_words_are_found_in_prose_and_headings(text: str, expected: list[tuple[str, int]]) -> None:
    assert findings(text) == expected


def test_sentences_are_counted_without_code_and_tables() -> None:
    page = Page(
        "docs/a.md",
        "# Title of it\n\nOne two `three four` e.g. five. Six\nseven [eight nine](a.md)! "
        "Version 1.0 has **two** parts\n\n- three in item\n- and\n  more here\n\n| a | b c |\n",
    )
    assert [text for _, text in page.sentences] == [
        "One two `C` e.g. five.",
        "Six seven eight nine!",
        "Version 1.0 has two parts",
        "three in item",
        "and more here",
    ]
    assert page.words == 3 + 5 + 4 + 5 + 3 + 3 + 3


def test_long_sentences_and_pages_are_found() -> None:
    long = "a " * 12 + "b."
    assert findings(long) == [("average", 1), ("sentence", 1)]
    assert findings("Four words are here. " * 8) == [("length", 1)]
    assert findings("Four words are here. " * 8, "docs/reference/a.md") == []
    assert findings("A list:\n\n- a\n- b\n- c\n\nFour words are here.") == []


def test_no_line_begins_with_a_number_that_would_become_a_list() -> None:
    """``500.`` at the start of a line ends the paragraph before it."""
    broken = [
        f"{page.path}:{number}"
        for page in pages()
        for number, (before, line) in enumerate(itertools.pairwise((ROOT / page.path).read_text().split("\n")), 2)
        if re.match(r"\s*\d+\. ", line) and re.search(r"\w$", before) and not re.match(r"\s*\d+\. ", before)
    ]
    assert broken == []


def test_prose_of_code_is_comments_docstrings_and_names_of_tests() -> None:
    python = (
        '"""It\nends."""\na = "a word"  # first\n# second\nb = f(\n    """a text""", 1)\n\n# third\n'
        "async def test_a_name() -> None: ...\n"
    )
    assert [*prose_of_python(python)] == [(1, "It ends."), (3, "first second"), (8, "third"), (9, "test a name")]
    assert [*prose_of_lua("-- a\n-- b\nlocal c = 'd' -- e\n")] == [(1, "a b e")]


def test_the_first_pages_are_short() -> None:
    """The README's example is twelve lines, architecture two pages; changes are what users must know."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.+?)```", readme, re.DOTALL)
    assert len(readme.splitlines()) <= 75
    assert len([line for line in example.splitlines() if line]) <= 12
    changes = re.findall(
        r"^## \[(.+?)\].*\n((?:(?!## ).*\n)+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {version: len(text.splitlines()) for version, text in changes if len(text.splitlines()) > 80} == {}
    (architecture,) = (page for page in pages() if page.path == "docs/architecture.md")
    assert architecture.words <= 1200
