"""Makes what Redis runs of the files in ``lua/``.

A server from Redis 7.0 on, or Valkey, gets all scripts as one library of functions, which it keeps: FCALL costs Redis
much less than EVALSHA, which creates every Lua function of a script anew at each call. Older servers get each script by
itself, behind the text of what it includes. Both begin with a prologue, which is made of the script's header: local
names for its keys, and ``shard``, which makes a table of them for the functions that it includes.

The library's name is a hash of its text. So releases side by side have a library each, and none takes away another's.

**No script ends half way because its slot moves.** On a Cluster's slot that is MIGRATING, a key that becomes empty
belongs to the other node at once: Redis ends a script that uses the key again, and keeps what it has written. So each
script is given one key more, which never exists: while the slot moves, Redis refuses the call before the script begins
(TRYAGAIN), and the caller waits. The prologue takes that key off ``KEYS`` again. Scripts whose header says
``runs while its slot moves`` get none: they never use a key again that they may have emptied.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from graphlib import TopologicalSorter
from hashlib import sha1, sha256
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from ..keys import NamespaceKeys, ShardKeys, absent_beside

_HEADER = re.compile(r"(?:--.*\n)*")
_NO_FUNCTION = re.compile(r"^-- no function: ", re.MULTILINE)
_RUNS_ON = re.compile(r"^-- runs while its slot moves$", re.MULTILINE)
_OF_GROUP: dict[str, Callable[[ShardKeys, str], str]] = {"own": ShardKeys.ready_of, "dead": ShardKeys.dead_of}


class DeclaredKeys(NamedTuple):
    """The keys of a script, by the names that its header gives them, in the order in which Redis gets them."""

    fixed: tuple[str, ...]
    """``keys``: attributes of ShardKeys or NamespaceKeys."""
    of_group: tuple[str, ...]
    """``keys of the group``: ``own`` is ready:GROUP, ``dead`` is dead:GROUP."""
    of_call: tuple[str, ...]
    """``keys of the call``: which keys these are, each call says."""
    of_each_group: tuple[str, ...]
    """``keys of each group``: these, for one group after the other. Lua has no names for them."""
    of_each_leaving: tuple[str, ...]
    """``keys of each leaving group``: the same."""
    if_given: tuple[str, ...]
    """``keys, if given``: a call has all of them, or none."""

    @property
    def named(self) -> tuple[str, ...]:
        return (*self.fixed, *self.of_group, *self.of_call)


_KINDS = (
    "keys", "keys of the group", "keys of the call", "keys of each group", "keys of each leaving group",
    "keys, if given",
)  # fmt: skip


class Script(NamedTuple):
    name: str
    body: str
    """Its file."""
    includes: tuple[str, ...]
    """The parts that it needs, each behind those that it needs itself."""
    declared: DeclaredKeys
    flags: tuple[str, ...]
    """Of a function: ``no-writes``; ``allow-oom``: it runs at the memory limit; neither: Redis refuses it there."""
    waits: bool
    """It does not begin while its slot moves."""
    is_function: bool
    """False: it is called by EVALSHA everywhere. There Redis decides at its first write whether memory allows it."""

    @property
    def writes(self) -> bool:
        return "no-writes" not in self.flags

    @property
    def table(self) -> str:
        """The function that makes a table of the keys, for what the script includes."""
        names = (*self.declared.named, *self.declared.if_given)
        fields = ", ".join(f"{name} = KEYS[{i}]" for i, name in enumerate(names, 1))
        return f"local function shard(KEYS) return {{{fields}}} end\n"

    @property
    def prologue(self) -> str:
        """What a call begins with."""
        declared = self.declared
        names = ", ".join((*declared.named, *declared.if_given))
        lines = ["KEYS[#KEYS] = nil"] if self.waits else []
        lines += [f"local {names} = unpack(KEYS)"]
        if declared.of_each_group:
            lines.append(f"local FIXED = {len(declared.named)} -- so many keys come before those of each group")
        return "".join(f"{line}\n" for line in lines)

    @property
    def source(self) -> str:
        """For EVAL."""
        return "\n".join([*map(_part, self.includes), self.table + self.prologue + self.body])


class Library(NamedTuple):
    name: str
    source: str


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
        path.relative_to(directory).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(directory.rglob("*.lua"))
    }


def _part(name: str) -> str:
    return _sources()[f"lib/{name}.lua"]


@cache
def _included(file: str) -> tuple[str, ...]:
    """The parts whose functions the file itself calls, as its header says."""
    return _listed("include", _header(_sources()[file]))


@cache
def _parts() -> tuple[str, ...]:
    """The names of all parts, each behind those that it includes.

    Raises: CycleError: parts include each other.
    """
    names = [file.removeprefix("lib/").removesuffix(".lua") for file in _sources() if file.startswith("lib/")]
    return (*TopologicalSorter({name: _included(f"lib/{name}.lua") for name in names}).static_order(),)


def _with_what_they_include(names: Iterable[str]) -> tuple[str, ...]:
    found, left = set[str](), [*names]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _included(f"lib/{name}.lua")
    return tuple(name for name in _parts() if name in found)


def _header(text: str) -> str:
    found = _HEADER.match(text)
    return found[0] if found else ""


def _listed(what: str, header: str) -> tuple[str, ...]:
    """The names in the line ``-- what: a, b``, which may go on in lines that begin with ``--`` and three spaces."""
    _, found, rest = header.partition(f"-- {what}: ")
    first, *more = rest.split("\n")
    lines = [first, *(line.removeprefix("--   ") for line in takewhile(lambda line: line.startswith("--   "), more))]
    return tuple(" ".join(lines).split(", ")) if found else ()


@cache
def load_script(name: str) -> Script:
    """Raises: KeyError: there is no such script."""
    body = _sources()[f"{name}.lua"]
    header = _header(body)
    declared = DeclaredKeys(*(_listed(kind, header) for kind in _KINDS))
    waits = not _RUNS_ON.search(header)
    flags, is_function = _listed("flags", header), not _NO_FUNCTION.search(header)
    includes = _with_what_they_include(_included(f"{name}.lua"))
    return Script(name, body, includes, declared, flags, waits, is_function)


def keys_of(
    name: str,
    shard: ShardKeys | NamespaceKeys,
    group: str = "",
    *,
    groups: Iterable[str] = (),
    leaving: Iterable[str] = (),
    call: Sequence[str] = (),
    given: Sequence[str] | bool = (),
) -> tuple[str, ...]:
    """The keys that a call passes to Redis, as the script's header declares them. ``given``: those that are only
    given to some calls; True: the shard's.
    """
    if not leaving and not call and (given is True or not given):
        return _usual_keys(name, shard, group, tuple(groups), bool(given))
    return _keys(name, shard, group, groups, leaving, call, given)


@lru_cache(maxsize=16_384)
def _usual_keys(
    name: str, shard: ShardKeys | NamespaceKeys, group: str, groups: tuple[str, ...], given: bool
) -> tuple[str, ...]:
    """Made once, not for each call."""
    return _keys(name, shard, group, groups, (), (), given)


def _keys(
    name: str,
    shard: Any,
    group: str,
    groups: Iterable[str],
    leaving: Iterable[str],
    call: Sequence[str],
    given: Sequence[str] | bool,
) -> tuple[str, ...]:
    script = load_script(name)
    declared = script.declared
    if given is True:
        given = [getattr(shard, key) for key in declared.if_given]
    found = (
        *(getattr(shard, key) for key in declared.fixed),
        *_of_groups(shard, declared.of_group, [group]),
        *call,
        *_of_groups(shard, declared.of_each_group, groups),
        *_of_groups(shard, declared.of_each_leaving, leaving),
        *(given or ()),
    )
    return (*found, absent_beside(found[0])) if script.waits else found


def _of_groups(shard: Any, names: Sequence[str], groups: Iterable[str]) -> list[str]:
    return [_OF_GROUP[name](shard, group) for group in groups for name in names]


def script_names() -> list[str]:
    return [file.removesuffix(".lua") for file in _sources() if "/" not in file]


@cache
def sha_of(name: str) -> str:
    return sha1(source_of(name).encode(), usedforsecurity=False).hexdigest()


@cache
def source_of(name: str) -> str:
    return load_script(name).source


@cache
def function_of(name: str) -> str:
    """The name of the script's function in the library."""
    return f"{library().name}_{name}"


@cache
def library() -> Library:
    """All scripts, behind what they include. A function with the library's own name tells that it is there."""
    scripts = [script for script in map(load_script, script_names()) if script.is_function]
    shared = [*map(_part, shared_parts())]
    text = "\n".join([*shared, *map(_registered, scripts), _THERE])
    # Without comments, as every primary keeps it, and each of its replicas.
    text = "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("--"))
    name = f"streamdq_{sha256(text.encode()).hexdigest()[:16]}"
    return Library(name, f"#!lua name={name}\n" + text.replace(_NAME, name))


@cache
def shared_parts() -> list[str]:
    """What many functions of the library include. What fewer include stands beside each of them: Lua allows 200 local
    variables in one place.
    """
    lists = [script.includes for script in map(load_script, script_names()) if script.is_function]
    uses = Counter(name for names in lists for name in names)
    fewest = next(
        n for n in range(2, len(lists)) if sum(_locals_in(name) for name in uses if uses[name] >= n) <= _SHARED
    )
    return [name for name in _parts() if uses[name] >= fewest]


def _locals_in(name: str) -> int:
    """How many local variables, functions among them, the part adds to the library."""
    found = re.findall(r"^local (function )?([^=\n]*)", _part(name), re.MULTILINE)
    return sum(1 if is_function else 1 + names.count(",") for is_function, names in found)


_SHARED = 150
"""The rest of the 200 is for what stands beside a single function."""
_NAME = "STREAMDQ_LIBRARY"
_THERE = (
    f"redis.register_function{{function_name = '{_NAME}', flags = {{'no-writes'}}, "
    "callback = function() return 1 end}\n"
)


def _registered(script: Script) -> str:
    flags = ", ".join(f"'{flag}'" for flag in script.flags)
    own = "\n".join(_part(name) for name in script.includes if name not in shared_parts())
    return (
        f"do\n{own}\n{script.table}"
        f"redis.register_function{{function_name = '{_NAME}_{script.name}', flags = {{{flags}}},\n"
        f"callback = function(KEYS, ARGV)\n{script.prologue}{script.body}end}}\nend"
    )
