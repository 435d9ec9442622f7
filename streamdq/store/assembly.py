"""Loads Lua scripts and assembles each: its includes come first, without the functions that it does not use. Redis
creates every function of a script at each call; leaving them out saved about 5 % of Redis's time in a call for one job.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

_INCLUDE = re.compile(r"^-- include: (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|(?<=\s))--.*$", re.MULTILINE)
_FUNCTION = re.compile(r"^local function (\w+)\((?:.* end\n|.*\n(?:.*\n)*?end\n)", re.MULTILINE)


class Script(NamedTuple):
    source: str
    sha: str


def lua_directory() -> Path:
    """Where the scripts are: inside the installed package, or at the root of a checkout."""
    package = Path(__file__).parents[1]
    packaged = package / "lua"
    return packaged if packaged.is_dir() else package.parent / "lua"


@cache
def _sources() -> dict[str, str]:
    """All files, read together with the first: another version may be installed over them while this process runs."""
    directory = lua_directory()
    return {path.relative_to(directory).as_posix(): path.read_text() for path in directory.rglob("*.lua")}


@cache
def load_script(name: str) -> Script:
    """The script, preceded by the functions that it uses from its includes."""
    sources = _sources()
    source = sources[f"{name}.lua"]
    found = _INCLUDE.search(source)
    parts = [sources[f"lib/{lib.strip()}.lua"] for lib in found[1].split(",")] if found else []
    source = assembled(parts, source)
    return Script(source, sha1(source.encode(), usedforsecurity=False).hexdigest())


def assembled(includes: Sequence[str], script: str) -> str:
    """The source. Functions are defined before their use; so a search from the end drops each one not named after
    it.
    """
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
