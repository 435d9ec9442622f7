"""What the button of a terminal's block copies: the commands, without the prompt and what they print."""

from __future__ import annotations

import re
from html import escape, unescape

_TERMINAL = re.compile(r'<code>(?=<span class="gp">)(.*?)</code>', re.DOTALL)


def with_copies(html: str) -> str:
    """The page; the theme's button copies what ``data-copy`` says."""
    return _TERMINAL.sub(_with_copy, html)


def _with_copy(found: re.Match[str]) -> str:
    typed = typed_in(unescape(re.sub(r"<[^>]+>", "", found[1])))
    return f'<code data-copy="{escape(typed).replace(chr(10), "&#10;")}">{found[1]}</code>'


def typed_in(text: str) -> str:
    """The lines that are typed; one that ends with a backslash goes on in the next."""
    typed: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            typed.append(line.removeprefix("$ "))
        elif typed and typed[-1].endswith("\\") and not line.startswith("> "):
            typed.append(line)
    return "\n".join(typed)
