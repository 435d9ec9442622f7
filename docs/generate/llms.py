"""llms.txt (llmstxt.org): the site for language models. An index of its pages, all of them in one file, and each as
Markdown beside its HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

_SENTENCE = re.compile(r"^(.+?[.:?!])(?:\s|$)", re.DOTALL)


def files(nav: Navigation, description: str) -> dict[str, str]:
    """Names and contents of the files."""
    index = [f"# streamdq\n\n> {description}\n"]
    everything, found = [], {}
    for section, pages in _sections(nav):
        index.append(f"\n## {section}\n\n")
        for page in pages:
            text = str(page.markdown)
            index.append(f"- [{page.title}]({page.file.src_uri}): {_about(text)}\n")
            everything.append(f"<!-- {page.file.src_uri} -->\n\n{text.strip()}\n\n")
            found[page.file.src_uri] = text
    return {"llms.txt": "".join(index), "llms-full.txt": "".join(everything), **found}


def _sections(nav: Navigation) -> Iterator[tuple[str, list[Page]]]:
    """The parts of the navigation, each with its pages in order."""
    alone = [item for item in nav.items if isinstance(item, Page)]
    if alone:
        yield "Start", alone
    for item in nav.items:
        if isinstance(item, Section):
            yield item.title, list(_pages(item))


def _pages(section: Section) -> Iterator[Page]:
    for item in section.children:
        if isinstance(item, Section):
            yield from _pages(item)
        elif isinstance(item, Page):
            yield item


def _about(markdown: str) -> str:
    """The first sentence of the first paragraph."""
    for paragraph in re.split(r"\n\s*\n", markdown):
        if re.match(r"[A-Z*\[]|`[^`]", paragraph):  # neither a title nor code
            text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
            sentence = _SENTENCE.match(text)
            return sentence[1] if sentence else text
    return ""
