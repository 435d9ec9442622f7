"""Loads Lua scripts and assembles each: its includes come first, without the functions that it does not use. Redis
creates every function of a script at each call; leaving them out saved about 5 % of Redis's time in a call for one job.
Those of an include that says ``-- made when called`` are created by the first call of one of them: the lanes, which few
topics have, took about a tenth of Redis's time for one ``enqueue``.

**No script ends half way because its slot moves.** On a Cluster's slot that is MIGRATING, a key that becomes empty
belongs to the other node at once: Redis ends a script that uses the key again, and keeps what it has written. So each
script is given one key more, which never exists: while the slot moves, Redis refuses the call before the script begins
(TRYAGAIN), and the caller waits. The script's first line takes that key off ``KEYS`` again. Scripts whose header says
``runs while its slot moves`` get none: they never use a key again that they may have emptied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

from ..keys import absent_beside

_INCLUDE = re.compile(r"^-- include: (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|(?<=\s))--.*$", re.MULTILINE)
_WORD = re.compile(r"(?<!\w\.)(?<!\w)\w+")  # not the field of a table, as in string.format
_WHEN_CALLED = re.compile(r"^-- made when called\b", re.MULTILINE)
_CALL = re.compile(r"redis\.p?call\('(\w+)'")
READS = frozenset({
    "EXISTS", "GET", "HEXISTS", "HGET", "HGETALL", "HLEN", "HMGET", "HSCAN", "HSTRLEN", "INFO", "PTTL", "TIME", "XINFO",
    "XLEN", "XPENDING", "XRANGE", "XREVRANGE", "ZCARD", "ZCOUNT", "ZLEXCOUNT", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE",
    "ZREVRANGEBYLEX", "ZSCAN", "ZSCORE",
})  # fmt: skip
"""The commands of scripts that change nothing."""
_RUNS_ON = re.compile(r"^-- runs while its slot moves$", re.MULTILINE)
_FUNCTION = re.compile(r"^local function (\w+)\((?:.* end\n|.*\n(?:.*\n)*?end\n)", re.MULTILINE)


_TAKE_ABSENT = "KEYS[#KEYS] = nil\n"


class Script(NamedTuple):
    source: str
    sha: str
    waits: bool
    """It does not begin while its slot moves."""
    writes: bool

    def keys(self, keys: Sequence[str]) -> Sequence[str]:
        """What Redis is told as the keys of a call."""
        return (*keys, absent_beside(keys[0])) if self.waits else keys


def lua_directory() -> Path:
    """Where the scripts are: inside the installed package, or at the root of a checkout."""
    package = Path(__file__).parents[1]
    packaged = package / "lua"
    return packaged if packaged.is_dir() else package.parent / "lua"


@cache
def _sources() -> dict[str, str]:
    """All files, read together with the first: another version may be installed over them while this process runs."""
    directory = lua_directory()
    return {
        path.relative_to(directory).as_posix(): path.read_text(encoding="utf-8") for path in directory.rglob("*.lua")
    }


class _Piece(NamedTuple):
    """A function of an include, or what stands between two of them."""

    name: str
    """Empty: not a function, and always needed."""
    text: str
    words: frozenset[str]
    """Those outside comments, among them the names of all functions that it calls."""


@cache
def load_script(name: str) -> Script:
    """The script, preceded by the functions that it uses from its includes."""
    sources = _sources()
    source = sources[f"{name}.lua"]
    found = _INCLUDE.search(source)
    includes = [sources[f"lib/{lib.strip()}.lua"] for lib in found[1].split(",")] if found else []
    waits = not _RUNS_ON.search(source)
    source = (_TAKE_ABSENT if waits else "") + assembled(includes, source)
    writes = not READS.issuperset(_CALL.findall(source))
    return Script(source, sha1(source.encode(), usedforsecurity=False).hexdigest(), waits, writes)


@cache
def _pieces(include: str) -> list[_Piece]:
    """In their order. Cached, as most scripts share them: the first job of a worker must not wait for this."""
    found, end = [], 0
    for function in _FUNCTION.finditer(include):
        found += [_piece("", include[end : function.start()]), _piece(function[1], function[0])]
        end = function.end()
    return [*found, _piece("", include[end:])]


def _piece(name: str, text: str) -> _Piece:
    return _Piece(name, text, _words(text))


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_COMMENT.sub("", text)))


def assembled(includes: Sequence[str], script: str) -> str:
    """The source. Functions are defined before their use; so from the end on, each is left out that nothing after it
    names.
    """
    used, kept = set(_words(script)), [script]
    for number, include in enumerate(reversed(includes)):
        named, needed = frozenset(used), list[_Piece]()
        for piece in reversed(_pieces(include)):
            if not piece.name or piece.name in used:
                used |= piece.words
                needed.insert(0, piece)
        if _WHEN_CALLED.search(include):
            kept.insert(0, _made_when_called(f"part_{number}", needed, named))
        else:
            kept.insert(0, "".join(piece.text for piece in needed))
    return "\n".join(kept)


def _made_when_called(part: str, pieces: Sequence[_Piece], named: frozenset[str]) -> str:
    """An include whose functions are created by a function, at the first call of one of those that are ``named``
    outside. What stands before the first of them, such as constants, is outside of that.
    """
    start = next((i for i, piece in enumerate(pieces) if piece.name), len(pieces))
    offered = [piece.name for piece in pieces if piece.name in named]
    if not offered:
        return "".join(piece.text for piece in pieces)
    fields = ", ".join(f"{name} = {name}" for name in offered)
    calls = [
        f"local function {name}(...)\n  if not {part} then make_{part}() end\n  return {part}.{name}(...)\nend\n"
        for name in offered
    ]
    head, functions = ("".join(piece.text for piece in some) for some in (pieces[:start], pieces[start:]))
    return f"{head}local {part}\nlocal function make_{part}()\n{functions}{part} = {{{fields}}}\nend\n{''.join(calls)}"
