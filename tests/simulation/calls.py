"""What a command is, in the scripts' names."""

from __future__ import annotations

from functools import cache
from typing import Any

from streamdq.store.assembly import function_of, library, script_names, sha_of, source_of

from .model import Call
from .store import Fields

_CALLS = (b"FCALL", b"EVALSHA", b"EVAL")


@cache
def scripts() -> dict[bytes, str]:
    """The name of each script, by its function, its hash and its text."""
    of_scripts = {
        word.encode(): name for name in script_names() for word in (function_of(name), sha_of(name), source_of(name))
    }
    return {library().name.encode(): "library"} | of_scripts


def name_of(fields: Fields) -> str:
    return scripts()[fields[1]] if fields[0] in _CALLS else fields[0].decode()


def call_of(index: int, now_ms: int, fields: Fields, reply: Any) -> Call:
    name, *rest = fields
    if name in _CALLS:
        count = int(rest[1])
        keys, args = rest[2 : 2 + count], rest[2 + count :]
        return Call(index, now_ms, name_of(fields), [key.decode() for key in keys], args, reply)
    return Call(index, now_ms, name.decode(), [], rest, reply)
