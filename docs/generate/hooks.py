"""What MkDocs calls while it builds the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

from docs.generate import diagrams, llms, parts, terminal
from docs.generate.links import DOCS, ELSEWHERE, ROOT, page_of, source_page, with_links
from docs.generate.sections import SPLIT, nav_of, place_of, split_page

_NAME_IN_TABLE = re.compile(r"(?<=<td><code>)[\w/.:-]{16,}(?=</code>)")
_BOOSTS = {
    "reference/settings": 4, "reference/cli": 1, "reference/errors": 1,
    "reference/python/queue": 2, "reference/python": 1, "reference/": 0.5,
    "decisions/": 0.2, "source/": 0.2, "changelog": 0.2, "contributing": 0.2, "measuring": 0.2,
}  # fmt: skip
_nav: list[Navigation] = []


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from elsewhere in the repository, the sections of long ones, and the sources that pages name."""
    origin = {page: path for path, page in ELSEWHERE.items() if page != "index.md"}
    origin |= {file.src_uri: f"{DOCS}{file.src_uri}" for file in files.documentation_pages()}
    wanted: set[str] = set()
    for page, path in origin.items():
        text, sources = with_links((ROOT / path).read_text(encoding="utf-8"), path, page, place_of)
        wanted |= sources
        if not path.startswith(DOCS):
            files.append(File.generated(config, page, content=text))
    for page in SPLIT:
        files.remove(files.src_uris[page])
        for uri, markdown in split_page(page).pages():
            files.append(File.generated(config, uri, content=markdown))
    nav_of(config.nav)
    for path in sorted(wanted):
        files.append(File.generated(config, page_of(path), content=source_page(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fills in what is generated, and rewrites the links of the pages of docs/."""
    uri = page.file.src_uri
    page.meta.setdefault("search", {})["boost"] = _boost(uri)
    if page.file.generated_by is not None:
        return markdown
    text, _sources = with_links(markdown, f"{DOCS}{uri}", uri, place_of)
    return diagrams.inlined(parts.filled(text))


def _boost(uri: str) -> float:
    """How much a page counts in the search. Guides come before the reference, except that a setting or a name is found
    where it is explained. Decisions are for those who look for reasons.
    """
    return next((boost for begins, boost in _BOOSTS.items() if uri.startswith(begins)), 1)


def on_page_content(html: str, **_: Any) -> str:
    """A long name in a table may break after an underscore or a slash, and nowhere else. Of a terminal, only what is
    typed is copied.
    """
    html = terminal.with_copies(html)
    return _NAME_IN_TABLE.sub(lambda found: re.sub(r"([_/])(?=\w)", r"\1<wbr>", found[0]), html)


def on_nav(nav: Navigation, **_: Any) -> None:
    _nav[:] = [nav]


def on_post_build(config: MkDocsConfig) -> None:
    """Writes llms.txt, for programs that read the site."""
    site = Path(config.site_dir)
    for name, text in llms.files(_nav[0], str(config.site_description)).items():
        target = site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


__all__ = ["on_files", "on_nav", "on_page_content", "on_page_markdown", "on_post_build"]
