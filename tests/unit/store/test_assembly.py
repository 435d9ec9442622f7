"""What Redis gets of the files in ``lua/``."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import lupa.lua51
import pytest
from lupa.lua51 import LuaRuntime

from streamdq.keys import NamespaceKeys
from streamdq.store import assembly
from streamdq.store.assembly import keys_of, library, load_script, lua_directory, script_names, shared_parts, source_of

NAMES = NamespaceKeys("ns")
SHARD = NAMES.shard("t", 0)
CACHED = (
    assembly._sources, assembly.load_script, assembly.source_of, assembly.sha_of, assembly.library,
    assembly.function_of,
)  # fmt: skip


def test_the_keys_are_those_of_the_header_in_its_order() -> None:
    assert load_script("permit").declared.fixed == ("settings",)
    assert keys_of("permit", SHARD) == (SHARD.settings, SHARD.absent)
    assert keys_of("heartbeat", NAMES) == (NAMES.heartbeats,)
    assert keys_of("list_ids", SHARD) == (SHARD.jobs, SHARD.taken, SHARD.taken_until, SHARD.settings)


def test_the_keys_of_groups_follow() -> None:
    own, dead = SHARD.ready_of, SHARD.dead_of
    assert keys_of("touch", SHARD, "a") == (SHARD.ready, SHARD.progress, SHARD.settings, own("a"), SHARD.absent)
    assert keys_of("stats", SHARD, groups=["a", "b"])[4:] == (dead("a"), dead("b"))
    made = keys_of("configure_shard", SHARD, groups=["a"], leaving=["b", "c"])
    assert made[-6:-1] == (own("a"), own("b"), dead("b"), own("c"), dead("c"))


def test_the_keys_that_a_call_names_or_leaves_out() -> None:
    assert keys_of("find_in_order", SHARD, call=[SHARD.bucket])[-1] == SHARD.bucket
    without, given = keys_of("finish", SHARD, "a"), keys_of("finish", SHARD, "a", given=True)
    assert given == (*without[:-1], SHARD.receipts, SHARD.absent)


def test_a_script_begins_with_local_names_of_its_keys() -> None:
    source, body = source_of("stats"), load_script("stats").body
    assert source.endswith(body)
    table = "counts = KEYS[1], bucket = KEYS[2], jobs = KEYS[3], settings = KEYS[4]"
    assert source.removesuffix(body).splitlines()[-3:] == [
        f"local function shard(KEYS) return {{{table}}} end",
        "local counts, bucket, jobs, settings = unpack(KEYS)",
        "local FIXED = 4 -- so many keys come before those of each group",
    ]
    assert "\nKEYS[#KEYS] = nil\nlocal bucket, ready" in source_of("move")


def test_what_it_includes_comes_before() -> None:
    sources = [(lua_directory() / "lib" / f"{part}.lua").read_text() for part in load_script("move").includes]
    assert source_of("move").startswith("\n".join(sources))


def including(part: str) -> list[str]:
    """The functions that include it."""
    scripts = map(load_script, script_names())
    return [script.name for script in scripts if script.is_function and part in script.includes]


def test_the_library_has_all_scripts_and_each_part_once() -> None:
    """A part that few include is there once for each."""
    source = library().source
    assert source.startswith(f"#!lua name={library().name}\n")
    registered = re.findall(rf"^.*function_name = '{library().name}_(\w+)'", source, re.MULTILINE)
    assert registered == [name for name in script_names() if name != "register_topic"]
    for path in (lua_directory() / "lib").glob("*.lua"):
        times = 1 if path.stem in shared_parts() else len(including(path.stem))
        for line in re.findall(r"^local function .*", path.read_text(), re.MULTILINE):
            assert source.count(f"{line}\n") == times


def test_lua_allows_some_more_local_variables_in_the_library() -> None:
    """It allows 200 in one place. Who adds a function is reported here, and not by a server."""
    more = ", ".join(f"more_{i}" for i in range(15))
    LuaRuntime().compile(f"local {more}\n" + library().source.partition("\n")[2])


def test_the_librarys_name_tells_what_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases side by side must not take away each other's functions."""
    before = library().name
    sources = assembly._sources() | {"lib/clock.lua": (lua_directory() / "lib" / "clock.lua").read_text() + "local x\n"}
    monkeypatch.setattr(assembly, "_sources", lambda: sources)
    for function in CACHED[1:]:
        function.cache_clear()
    try:
        assert library().name != before
    finally:
        monkeypatch.undo()
        for function in CACHED[1:]:
            function.cache_clear()
    assert library().name == before


def test_the_library_is_lua() -> None:
    """Lua allows 200 local variables in a function, and 60 of those around it."""
    first, _, rest = library().source.partition("\n")
    assert first
    lupa.lua51.LuaRuntime().compile(rest)


def test_a_version_that_is_installed_over_this_one_is_not_mixed_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each script is assembled when it is first called, perhaps weeks later."""
    expected = source_of("bury")
    directory = tmp_path / "lua"
    shutil.copytree(lua_directory(), directory)
    monkeypatch.setattr(assembly, "lua_directory", lambda: directory)
    for function in CACHED:
        function.cache_clear()
    try:
        load_script("enqueue")
        shutil.rmtree(directory)
        assert source_of("bury") == expected
    finally:
        for function in CACHED:
            function.cache_clear()
