"""What a command is, in the scripts' names."""

from __future__ import annotations

from functools import cache
from typing import Any

from streamdq.store.assembly import load_script, lua_directory

from .model import Call
from .store import Fields


@cache
def scripts() -> dict[bytes, str]:
    """The name of each script, by its hash and by its text."""
    return {
        key: path.stem
        for path in lua_directory().glob("*.lua")
        for script in [load_script(path.stem)]
        for key in (script.sha.encode(), script.source.encode())
    }


def name_of(fields: Fields) -> str:
    return scripts()[fields[1]] if fields[0] in (b"EVALSHA", b"EVAL") else fields[0].decode()


def call_of(index: int, now_ms: int, fields: Fields, reply: Any) -> Call:
    name, *rest = fields
    if name in (b"EVALSHA", b"EVAL"):
        count = int(rest[1])
        keys, args = rest[2 : 2 + count], rest[2 + count :]
        return Call(index, now_ms, name_of(fields), [key.decode() for key in keys], args, reply)
    return Call(index, now_ms, name.decode(), [], rest, reply)
