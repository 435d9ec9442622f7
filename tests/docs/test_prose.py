"""Pages are written in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.prose import NOT_YET, RULES, Page, Rules, found_in, not_yet, pages, shrink

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


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    rules = Rules.read(RULES.read_text(encoding="utf-8"))
    return {
        name: [f"{name.split()[0]}:{one.line}: {one.text}" for one in findings]
        for name, findings in found_in(pages(), rules).items()
    }


def test_pages_are_plain(found: dict[str, list[str]]) -> None:
    assert {name: lines for name, lines in found.items() if name not in not_yet()} == {}


def test_what_is_mended_leaves_the_list(found: dict[str, list[str]]) -> None:
    assert [name for name in not_yet() if name not in found] == [], "python -m tests.docs.prose --shrink"
    assert len(not_yet()) == len(set(not_yet()))


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


def test_the_list_only_shrinks(tmp_path: Path) -> None:
    file = tmp_path / NOT_YET.name
    file.write_text("# Why\na.md words\nb.md words\n")
    shrink({"b.md words", "c.md words"}, file)
    assert file.read_text() == "# Why\nb.md words\n"
