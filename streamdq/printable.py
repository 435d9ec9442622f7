"""What may reach a terminal. An id, a body or an error is a stranger's text: a terminal obeys control characters in it,
also the 8-bit ones, and characters that set the direction of writing make one name look like another.
"""

from __future__ import annotations

import re

# C0 but for tab and newline, DEL, C1; the marks, embeddings, overrides and isolates of Unicode's bidirectional
# algorithm; the separators of lines and paragraphs; a byte order mark; surrogates, which can't be written at all.
_OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""The text with characters that a terminal would obey written as Python does: ``\x9b``, ``\u202e``."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def visible_json(text: str) -> str:
    """JSON with the same characters escaped: it stays the same JSON, where they can stand in texts alone."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
