"""What is changed in a script."""

from __future__ import annotations

import pytest

from tests.mutants import lua
from tests.mutants.mutant import Mutant


def changed(source: str) -> list[str]:
    """The mutants of one line in the body of a function."""
    before, after = "local function f(a, b, c)\n", "\nend\nreturn f"
    found = lua.lua_mutants("lua/x.lua", before + source + after)
    assert all(mutant.line == 2 and mutant.was == source for mutant in found)
    return [mutant.now for mutant in found]


@pytest.mark.parametrize(
    ("source", "mutants"),
    [
        ("f(a)", [""]),
        ("a.x = b", [""]),
        ("a = f(b)", [""]),
        ("local x = a", []),
        ("return a", [""]),
        ("do return end", ["do end"]),
        ("return a == b", ["", "return a ~= b"]),
        ("return a ~= b", ["", "return a == b"]),
        ("return a < b", ["", "return a <= b", "return a >= b"]),
        ("return a >= b", ["", "return a < b", "return a > b"]),
        ("return a and b", ["", "return a", "return b"]),
        ("return a or b", ["", "return a", "return b"]),
        ("return not a", ["", "return a"]),
        ("return -a", ["", "return a"]),
        ("return a + b", ["", "return a - b"]),
        ("return a * b", ["", "return a / b"]),
        ("return 7", ["", "return 8"]),
        ("return 1e15", ["", "return (1e15 + 1)"]),
        ("return a[0]", ["", "return a[1]"]),
        ("return true", ["", "return false"]),
        ("return 'x'", ["", "return ''"]),
        ("return ''", ["", "return 'x'"]),
        ("return redis.call('GET', 'x')", ["", "return redis.call('GET', '')"]),
        ("return redis.pcall('SET', a, b, 'PX', '~')", [""]),
        ("for i in a do f(i) end", ["", "for i in a do end"]),
        ("while a do b() end", ["while a do end", "while not (a) do b() end"]),
        ("repeat a() until b", ["repeat until b", "repeat a() until not (b)"]),
        (
            "if a then f() elseif b then g() else h() end",
            [
                "if a then elseif b then g() else h() end",
                "if a then f() elseif b then else h() end",
                "if a then f() elseif b then g() else end",
                "if a then f() elseif not (b) then g() else h() end",
                "if not (a) then f() elseif b then g() else h() end",
            ],
        ),
        ("if a == b then f() end", ["if a ~= b then f() end", "if a == b then end"]),
        ("f(a) -- if a == 1 then", ["-- if a == 1 then"]),
    ],
)
def test_each_change(source: str, mutants: list[str]) -> None:
    assert sorted(changed(source)) == sorted(mutants)


def test_lines_stay_where_they_are_unless_some_are_dropped() -> None:
    (mutant, *_) = lua.lua_mutants("lua/x.lua", "f(\n  a)\nf(2)\n")
    assert (mutant.line, mutant.was, mutant.now, mutant.source) == (1, "f( a)", "", "\nf(2)\n")


def test_what_is_no_lua_is_no_mutant() -> None:
    assert all("break" not in mutant.now for mutant in lua.lua_mutants("lua/x.lua", "break"))


def test_a_mutant_is_part_of_the_scripts_that_use_the_function() -> None:
    file = "lua/lib/notify_mover.lua"
    (mutant,) = (mutant for mutant in lua.lua_mutants(file, lua.text_of(file)) if "ahead <= 10001" in mutant.now)
    by_requeue = {"deliver", "enqueue_after", "look_after"}
    assert lua.scripts_with(mutant) == {"claim", "claim_ranked", "enqueue", "reclaim"} | by_requeue
    assert lua.scripts_with(Mutant("lua/move.lua", 1, "", "", "return 1")) == {"move"}


def test_a_part_may_have_the_name_of_a_script() -> None:
    file = "lua/lib/schedule.lua"
    (mutant,) = (mutant for mutant in lua.lua_mutants(file, lua.text_of(file)) if mutant.was == "schedule.plan = {}")
    assert lua.scripts_with(mutant) == {"fire", "retract", "unschedule"}


@pytest.mark.thorough
def test_every_script_has_mutants() -> None:
    assert len(lua.files()) > 50
    for file in lua.files():
        assert len(lua.lua_mutants(file, lua.text_of(file))) >= 4, file
