"""Long pages of the reference: the site has a page for each of their sections, and an index in the page's own place.
What linked to an anchor of the page links to that of its section. The index has the old anchors, too, for links from
elsewhere.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from pymdownx.slugs import slugify  # type: ignore[import-untyped]

from docs.generate import parts
from docs.generate.links import DOCS, ROOT, outside_code, with_links

SPLIT = ("reference/analytics.md", "reference/cli.md", "reference/http.md", "reference/python.md")

_ANCHOR = re.compile(r"^(?:#{2,6} (?P<title>.+?)(?: \{ #(?P<id>[\w.-]+) \})?|::: (?P<path>\S+))$", re.MULTILINE)
_HERE = re.compile(r"(?<=\]\()#([\w.-]+)(?=\))")
_slug: Callable[[str, str], str] = slugify(case="lower")


class Section(NamedTuple):
    """``entries``: what can be linked to, by anchor."""

    title: str
    uri: str
    text: str
    entries: dict[str, str]


class Split(NamedTuple):
    """A page: what comes before its first section, and its sections. ``path``: in the repository; ``uri``: of the
    index.
    """

    path: str
    uri: str
    head: str
    sections: list[Section]

    def page_with(self, anchor: str) -> str:
        """Where the anchor is; a member of a class is where the class is."""
        while anchor:
            for section in self.sections:
                if anchor in section.entries:
                    return section.uri
            anchor = anchor.rpartition(".")[0]
        return self.uri

    def pages(self) -> Iterator[tuple[str, str]]:
        """Each page's place and Markdown."""
        yield self.uri, self._linked(self.head, self.uri) + "".join(map(_listed, self.sections))
        whole = self.head.partition("\n")[0].removeprefix("# ")
        short = whole.removeprefix("The ")
        for one in self.sections:
            name = posixpath.basename(one.uri).removesuffix(".md")
            head = f"# {one.title} – {short} {{ #{name} }}\n\nA part of [{whole}](index.md).\n\n"
            yield one.uri, head + self._linked(one.text, one.uri)

    def _linked(self, text: str, uri: str) -> str:
        """With links as in the site: those to anchors of the whole page lead to the pages of its sections."""

        def link(found: re.Match[str]) -> str:
            there = self.page_with(found[1])
            return found[0] if there == uri else f"{posixpath.basename(there)}#{found[1]}"

        text, _sources = with_links(text, self.path, uri, place_of)
        return outside_code(text, lambda part: _HERE.sub(link, part))


def split(uri: str, text: str) -> Split:
    """Divides the page at its titles of the second level."""
    folder = uri.removesuffix(".md")
    head, *rest = outside_code(text, lambda part: re.sub(r"^## ", "\0", part, flags=re.MULTILINE)).split("\0")
    sections = []
    for one in rest:
        title, _, body = one.partition("\n")
        name = _slug(title.replace("`", ""), "-")
        entries = {name: title} | _entries(body)
        sections.append(Section(title, f"{folder}/{name}.md", body.strip() + "\n", entries))
    return Split(f"{DOCS}{uri}", f"{folder}/index.md", head, sections)


@cache
def split_page(uri: str) -> Split:
    """The page of docs/, with what is generated."""
    return split(uri, parts.filled((ROOT / DOCS / uri).read_text(encoding="utf-8")))


def place_of(page: str, anchor: str) -> str:
    """Where the site has what is in ``page`` of the repository."""
    return split_page(page).page_with(anchor) if page in SPLIT else page


def nav_of(nav: list[dict[str, object] | str] | None) -> None:
    """Puts the pages of the sections into the navigation."""
    for item in nav or ():
        if isinstance(item, str):  # a page by its own title
            continue
        for title, value in item.items():
            if isinstance(value, list):
                nav_of(value)
            elif value in SPLIT:
                found = split_page(str(value))
                item[title] = [found.uri, *({one.title.replace("`", ""): one.uri} for one in found.sections)]


def _entries(text: str) -> dict[str, str]:
    found: dict[str, str] = {}

    def look(part: str) -> str:
        for one in _ANCHOR.finditer(part):
            if one["path"]:
                found[one["path"]] = f"`{one['path']}`"
            else:
                found[one["id"] or _slug(one["title"].replace("`", ""), "-")] = one["title"]
        return part

    outside_code(text, look)
    return found


def _listed(section: Section) -> str:
    """Its title and entries in the index."""
    (_name, title), *entries = section.entries.items()
    page = posixpath.basename(section.uri)
    said = {anchor: parts.summary(text) for anchor, text in entries}
    lines = [
        f'- <a id="{anchor}"></a>[{text}]({page}#{anchor}){f": {said[anchor]}" if said[anchor] else ""}'
        + "".join(f"\n    - [`{name}`]({page}#{anchor}.{name})" for name in parts.methods(anchor))
        for anchor, text in entries
    ]
    return f"\n## [{title}]({page})\n\n" + "\n".join(lines) + "\n"
