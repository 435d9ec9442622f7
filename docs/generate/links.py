"""Links between files of the repository, as GitHub follows them, become links between pages of the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = "docs/"

ELSEWHERE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "benchmarks/README.md": "measuring.md",
    "clients/typescript/README.md": "typescript.md",
    "examples/compose/README.md": "compose.md",
    "examples/production/README.md": "one-host.md",
}
"""Pages that lie outside docs/, and where the site has them. The README has a page of its own in the site's place."""

SOURCES = "source/"
LANGUAGES = {".py": "python", ".lua": "lua", ".sh": "sh", ".yaml": "yaml", ".conf": "nginx", ".toml": "toml"}
_FENCED = re.compile(r"^( *)(`{3,})[^`\n]*\n.*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_ABSOLUTE = re.compile(r"[a-z][a-z+.-]*:|#|/")


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """The Markdown with what is not in fenced blocks changed."""
    parts, end = [], 0
    for block in _FENCED.finditer(text):
        parts += [change(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(text[end:])])


def page_of(path: str) -> str:
    """Where the site has a file of the repository: a page of docs/, one from elsewhere, or the file's source."""
    if (ROOT / path / "README.md").is_file():
        path = f"{path}/README.md"
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    return path.removeprefix(DOCS) if path.startswith(DOCS) else f"{SOURCES}{path}.md"


def with_links(
    text: str, path: str, page: str, place_of: Callable[[str, str], str] = lambda there, _: there
) -> tuple[str, set[str]]:
    """The Markdown of the file ``path`` as that of the site's ``page``, and the sources that it links to. ``place_of``:
    where the site has an anchor of a page, if not in the page.
    """
    sources = set()

    def link(found: re.Match[str]) -> str:
        begin, target, end = found.groups()
        if _ABSOLUTE.match(target):
            return found[0]
        where, sharp, anchor = target.partition("#")
        file = posixpath.normpath(posixpath.join(posixpath.dirname(path), where))
        there = place_of(page_of(file), anchor)
        if there.startswith(SOURCES):
            sources.add(file)
        return f"{begin}{posixpath.relpath(there, posixpath.dirname(page) or '.')}{sharp}{anchor}{end}"

    return outside_code(text, lambda part: _LINK.sub(link, part)), sources


def source_page(path: str) -> str:
    """A page that shows a file of the repository."""
    file = ROOT / path
    code = file.read_text(encoding="utf-8").rstrip("\n")
    return (
        f"---\nsearch:\n  exclude: true\n---\n# {file.name}\n\n`{path}`\n\n"
        f"````{LANGUAGES.get(file.suffix, 'text')}\n{code}\n````\n"
    )
