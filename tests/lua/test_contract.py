"""Every script keeps to its header: what it is, what it takes, what it returns; and has a method and a test."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from streamdq.store.scripts import Scripts, load, lua_directory

SCRIPTS = sorted(lua_directory().glob("*.lua"))
PARTS = sorted((lua_directory() / "lib").glob("*.lua"))
each_script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
TYPES = "HASH|ZSET|STREAM|STRING"


def header_of(path: Path) -> list[str]:
    """The comment that a file begins with, without its dashes."""
    lines = []
    for line in path.read_text().splitlines():
        if not line.startswith("-- "):
            break
        lines.append(line.removeprefix("-- "))
    return lines


def code_of(text: str) -> str:
    return "\n".join(line.partition("--")[0] for line in text.splitlines())


def functions_in(code: str) -> set[str]:
    return set(re.findall(r"local function (\w+)", code))


def calls_in(code: str) -> set[str]:
    """Names called as plain functions; texts are left out."""
    return set(re.findall(r"(?<![\w.:])([a-z_]+)\(", re.sub(r"'[^']*'|\"[^\"]*\"", "''", code)))


def includes(path: Path) -> list[str]:
    found = [line for line in header_of(path) if line.startswith("include: ")]
    assert len(found) <= 1
    return found[0].removeprefix("include: ").split(", ") if found else []


def documented(path: Path, what: str) -> list[str]:
    """What stands in the brackets of the header's KEYS or ARGV lines: `1`, `2`, `3..`."""
    return [found[1] for line in header_of(path) if (found := re.match(rf"{what}\[(\d+(?:\.\.)?)\]", line))]


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) > 15


@each_script
def test_the_header_names_the_script_and_its_transition(path: Path) -> None:
    assert re.match(rf"{path.stem}: \S.{{10,}}", header_of(path)[0])


@each_script
def test_the_header_tells_what_it_returns(path: Path) -> None:
    assert any(line.startswith("returns ") for line in header_of(path))


@each_script
@pytest.mark.parametrize("what", ["KEYS", "ARGV"])
def test_arguments_are_documented_in_order_and_only_the_last_repeats(path: Path, what: str) -> None:
    lines = documented(path, what)
    assert [int(line.removesuffix("..")) for line in lines] == list(range(1, len(lines) + 1))
    assert not any(line.endswith("..") for line in lines[:-1])
    assert lines


@each_script
def test_every_key_says_its_type(path: Path) -> None:
    for line in header_of(path):
        assert not line.startswith("KEYS") or re.match(rf"KEYS\[\d+(?:\.\.)?\] +\S+ +({TYPES})\b", line), line


@each_script
def test_it_uses_the_keys_that_it_documents(path: Path) -> None:
    """Names get the keys in one line, all of them; what is named is used."""
    code, keys = code_of(path.read_text()), documented(path, "KEYS")
    fixed = [key for key in keys if not key.endswith("..")]
    unpacked = re.search(r"^local (.+) = unpack\(KEYS\)$", code, re.MULTILINE)
    if unpacked:
        names = unpacked[1].split(", ")
        assert len(names) == len(fixed)
        rest = code.replace(unpacked[0], "")
    else:
        names = [f"KEYS[{number}]" for number in fixed]
        rest = code
    for name in names:
        assert re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", rest), f"{name} is documented and not used"
    used = {int(number) for number in re.findall(r"KEYS\[(\d+)(?: \+ \w+)?\]", rest)}
    repeats = len(fixed) < len(keys)
    assert all(number <= len(fixed) for number in used) or repeats
    assert bool(re.search(r"KEYS\[(\w+|\d+ \+ \w+)\]|#KEYS", re.sub(r"KEYS\[\d+\]", "", rest))) == repeats


@each_script
def test_it_uses_the_arguments_that_it_documents(path: Path) -> None:
    code, arguments = code_of(path.read_text()), documented(path, "ARGV")
    fixed = [argument for argument in arguments if not argument.endswith("..")]
    direct = {int(number) for number in re.findall(r"ARGV\[(\d+)\]", code)}
    assert direct == {int(argument) for argument in fixed}
    repeats = re.search(r"for i = (\d+), #ARGV, \d+ do|unpack\(ARGV, (\d+)\)", code)
    assert bool(repeats) == (len(fixed) < len(arguments))
    if repeats:
        assert int(repeats[1] or repeats[2]) == len(arguments)


@each_script
def test_no_script_builds_a_key(path: Path) -> None:
    """The first argument of every command is a name, never a text put together."""
    parts = [lua_directory() / "lib" / f"{part}.lua" for part in includes(path)]
    for file in (path, *parts):
        for call in re.findall(r"redis\.p?call\('[A-Z]+',(?: '[A-Z]+',)? ([^,)]+)", code_of(file.read_text())):
            known = re.fullmatch(r"(KEYS|[a-z_]+)(\.[a-z_]+|\[\w+\])?|'GROUP'|'server'", call)
            assert known, f"{file.name}: {call}"


@each_script
def test_includes_exist_are_needed_and_are_complete(path: Path) -> None:
    used = code_of(path.read_text())
    for part in reversed(includes(path)):
        text = code_of((lua_directory() / "lib" / f"{part}.lua").read_text())
        assert functions_in(text) & calls_in(used), f"include {part} is not needed"
        used += text
    known = {"ipairs", "pairs", "tonumber", "tostring", "unpack", "next", "error", "type", "function", "if", "ended"}
    assert calls_in(used) - functions_in(used) - known == set()


@each_script
def test_a_part_comes_before_what_needs_it(path: Path) -> None:
    parts = {part: code_of((lua_directory() / "lib" / f"{part}.lua").read_text()) for part in includes(path)}
    every, defined = set().union(*map(functions_in, parts.values())), set()
    for part, text in parts.items():
        defined |= functions_in(text)
        assert every & calls_in(text) <= defined, f"{part} is included before what it needs"


def test_every_part_is_included_somewhere() -> None:
    assert {part for path in SCRIPTS for part in includes(path)} == {part.stem for part in PARTS}


@pytest.mark.parametrize("path", PARTS, ids=lambda path: path.stem)
def test_every_function_of_a_part_is_explained(path: Path) -> None:
    header = "\n".join(line for line in path.read_text().splitlines() if line.startswith("--"))
    for name in functions_in(path.read_text()):
        assert re.search(rf"\b{name}\b", header) or name in ("field_of", "parse", "format"), name


@each_script
def test_there_is_a_method_that_runs_it(path: Path) -> None:
    method = inspect.getsource(getattr(Scripts, path.stem))
    assert f'"{path.stem}"' in method


@each_script
def test_there_is_a_file_of_tests(path: Path) -> None:
    tests = Path(__file__).with_name(f"test_{path.stem}.py")
    tree = ast.parse(tests.read_text())
    first = (ast.get_docstring(tree) or "").partition(":")[0]
    assert first == path.stem
    assert sum(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in tree.body) >= 2


@each_script
def test_it_stays_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 160


def test_the_wheel_and_the_checkout_load_the_same_way() -> None:
    script = load("finish")
    assert script.source.endswith((lua_directory() / "finish.lua").read_text())
    assert len(script.sha) == 40
