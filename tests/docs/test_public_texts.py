"""What users read of the code is as plain as the pages: docstrings of the reference, the help of commands, and the
descriptions of settings, metrics, errors and the HTTP API.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import pytest

from docs.generate.parts import PARTS, prose
from tests.api.python_names import listed, resolved
from tests.docs.prose import RULES, Page, Rules, words

SENTENCE_WORDS = 30
ANALYTICS = ("analyze", "capacity", "live", "sql", "what-if")
"""Commands that explain tables, whose names make sentences long."""


def texts() -> Iterator[tuple[str, str]]:
    for name, part in PARTS.items():
        yield name, _cells(_without(part(), ANALYTICS))
    for path in listed():
        found = resolved(path)
        yield path, prose(inspect.getdoc(found))
        if inspect.isclass(found):
            for name in vars(found):
                if not name.startswith("_") and callable(getattr(found, name)):
                    yield f"{path}.{name}", prose(inspect.getdoc(getattr(found, name)))


def _without(text: str, commands: tuple[str, ...]) -> str:
    names = "|".join(commands)
    return re.sub(rf"^### `streamdq (?:{names})\b.*?(?=^##|\Z)", "", text, flags=re.MULTILINE | re.DOTALL)


def _cells(text: str) -> str:
    """Each cell of a table is a paragraph, and so is each of several titles in it."""
    row = re.compile(r"^\|(.*)\|$", re.MULTILINE)
    return row.sub(lambda found: "\n\n".join(re.split(r" \| |; ", found[1])) + "\n", text)


@pytest.fixture(scope="module")
def found() -> dict[str, Page]:
    pages = {name: Page(name, text) for name, text in texts()}
    assert len(pages) > 150
    return pages


def test_sentences_are_short(found: dict[str, Page]) -> None:
    long = {
        f"{name}: {sentence[:90]}": len(words(sentence))
        for name, page in found.items()
        for _, sentence in page.sentences
        if len(words(sentence)) > SENTENCE_WORDS
    }
    assert long == {}


def test_retired_words_are_gone(found: dict[str, Page]) -> None:
    rules = Rules.read(RULES.read_text(encoding="utf-8"))
    used = [
        (name, use[0])
        for name, page in found.items()
        for block in page.blocks
        for retired in rules.retired
        for use in retired.uses(block.text)
    ]
    assert used == []
