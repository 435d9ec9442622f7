"""A script and what it needs of its includes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from streamdq.store import assembly
from streamdq.store.assembly import assembled, load_script, lua_directory

LIB = """-- one(x), two(x): of the first. unused(x): nobody asks for it
local LIMIT = 10
local function one(x) return x + LIMIT end
local function two(x)
  local function within(y) return y end
  return within(one(x))
end
local function unused(x)
  for i = 1, x do
    x = x + i
  end
  return x
end
"""
OTHER = """local function three(x) return two(x) end
local function recursive(x) return x > 0 and recursive(x - 1) end
"""


def functions(source: str) -> list[str]:
    return re.findall(r"^local function (\w+)", source, re.MULTILINE)


def test_what_is_used_directly_or_by_what_is_used_is_kept() -> None:
    source = assembled([LIB, OTHER], "return three(1)")
    assert functions(source) == ["one", "two", "three"]
    assert "local LIMIT = 10" in source
    assert source.endswith("return three(1)")


def test_a_word_in_a_comment_or_within_another_is_no_use() -> None:
    assert functions(assembled([LIB], "-- two(1)\nlocal attwo = 1 -- and two(2)\nreturn attwo")) == []
    assert functions(assembled([LIB], "return one(1)")) == ["one"]


def test_a_function_that_is_handed_on_is_used() -> None:
    assert functions(assembled([LIB], "return each(list, one)")) == ["one"]


def test_a_field_of_a_table_is_no_use() -> None:
    assert functions(assembled([LIB], "return string.one(1)")) == []
    assert functions(assembled([LIB], "return 'x' ..one(1)")) == ["one"]


RARE = """-- made when called
local made = 0
local function four(x) return x and two(4) end
local function five(...) return four(...) end
local function six() return 6 end
"""


def test_what_is_made_when_called_is_within_a_function() -> None:
    source = assembled([LIB, RARE], "return five(1)")
    before, _, factory = source.partition("local function make_part_0()\n")
    within, _, after = factory.partition("\nend\n")
    assert functions(before) == ["one", "two"]
    assert "local made = 0" in before
    assert functions(within) == ["four", "five"]
    assert functions(after) == ["five"]


def test_what_is_made_when_called_is_left_out_if_it_is_not_used() -> None:
    assert functions(assembled([LIB, RARE], "return one(1)")) == ["one"]


@pytest.mark.parametrize("name", sorted(path.stem for path in lua_directory().glob("*.lua")))
def test_each_script_has_no_function_that_it_does_not_use(name: str) -> None:
    source = load_script(name).source
    for function in functions(source):
        assert len(re.findall(rf"^[^\n]*?\b{function}\b", re.sub(r"--.*", "", source), re.MULTILINE)) > 1, function


def test_a_version_that_is_installed_over_this_one_is_not_mixed_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each script is assembled when it is first called, perhaps weeks later."""
    expected = load_script("bury")
    directory = tmp_path / "lua"
    shutil.copytree(lua_directory(), directory)
    monkeypatch.setattr(assembly, "lua_directory", lambda: directory)
    for function in (load_script, assembly._sources):
        function.cache_clear()
    try:
        load_script("enqueue")
        shutil.rmtree(directory)
        assert load_script("bury") == expected
    finally:
        for function in (load_script, assembly._sources):
            function.cache_clear()
