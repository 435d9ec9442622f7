"""Text that is safe to show on a terminal. Ids, bodies and errors come from strangers: a terminal acts on control
characters in them, 8-bit ones included, and characters that set the writing direction make one name look like another.
"""

from __future__ import annotations

import re

# C0 except tab and newline, DEL, C1; the marks, embeddings, overrides and isolates of Unicode's bidirectional
# algorithm; line and paragraph separators; the byte order mark; surrogates, which can't be written at all.
_OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""The text with characters that a terminal would act on escaped as in Python: ``\x9b``, ``\u202e``."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def visible_json(text: str) -> str:
    """JSON with these characters escaped. Its meaning stays the same, as they can only occur in strings."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
