"""Diagrams within pages: as part of the page they have its colours, light or dark."""

from __future__ import annotations

import re

from docs.generate.links import DOCS, ROOT

_IMAGE = re.compile(r"^!\[([^\]]*)\]\((?:\.\./)*(images/diagram-[\w-]+\.svg)\)$", re.MULTILINE)


def inlined(markdown: str) -> str:
    """The Markdown with diagrams instead of links to them."""
    return _IMAGE.sub(lambda found: f'<div class="diagram-box">\n{_svg(found[2])}\n</div>', markdown)


def _svg(file: str) -> str:
    text = (ROOT / DOCS / file).read_text(encoding="utf-8")
    return re.sub(r"\n\s*\n", "\n", text.partition("?>")[2] if text.startswith("<?xml") else text).strip()
