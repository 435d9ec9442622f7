"""Puts a Lua script together: its includes come first, without the functions that it does not use. Redis creates every
function of a script at each call; leaving them out saved about 5 % of Redis's time in a call for one job.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_COMMENT = re.compile(r"(?:^|(?<=\s))--.*$", re.MULTILINE)
_FUNCTION = re.compile(r"^local function (\w+)\((?:.* end\n|.*\n(?:.*\n)*?end\n)", re.MULTILINE)


def assembled(includes: Sequence[str], script: str) -> str:
    """The source. A function is defined before what uses it: so from the end on, what is not named yet is not used."""
    used = _COMMENT.sub("", script)
    kept = [script]
    for include in reversed(includes):
        for found in reversed(list(_FUNCTION.finditer(include))):
            if not re.search(rf"\b{found[1]}\b", used + _after(include, found)):
                include = include[: found.start()] + include[found.end() :]
        used = _COMMENT.sub("", include) + used
        kept.insert(0, include)
    return "\n".join(kept)


def _after(include: str, found: re.Match[str]) -> str:
    return _COMMENT.sub("", include[found.end() :])
