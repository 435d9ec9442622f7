"""Every script keeps to its header: what it is, what it takes, what it returns; and has a method and a test."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

from streamdq.keys import NamespaceKeys, ShardKeys
from streamdq.store.assembly import _included, library, load_script, lua_directory, shared_parts, source_of
from streamdq.store.scripts import Scripts

SCRIPTS = sorted(lua_directory().glob("*.lua"))
PARTS = sorted((lua_directory() / "lib").glob("*.lua"))
T = TypeVar("T")


def each(of: Iterable[T], name: Callable[[T], str]) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    """One test for all of them, which tells of each that is otherwise: as tests of their own they were thousands."""

    def decorate(check: Callable[[T], None]) -> Callable[[], None]:
        def test() -> None:
            wrong = []
            for one in of:
                try:
                    check(one)
                except AssertionError as error:
                    wrong.append(f"{name(one)}: {error}")
            assert not wrong, "\n".join(wrong)

        return test

    return decorate


each_script = each(SCRIPTS, lambda path: path.stem)
OF_SHARD = {*ShardKeys.__slots__} - {"namespace", "topic", "shard", "prefix", "absent"}
OF_NAMESPACE = {name for name, value in vars(NamespaceKeys).items() if isinstance(value, cached_property)}
OF_GROUP = {"own", "dead"}


def fields_in(heading: str) -> dict[str, str]:
    """The fields that lua/README.md documents under a heading, and what it says of each."""
    text = (lua_directory() / "README.md").read_text()
    _, found, rest = text.partition(f"\n## {heading}\n")
    assert found, heading
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", rest.partition("\n## ")[0], re.MULTILINE)
    assert len(dict(rows)) == len(rows) > 0
    return dict(rows)


FIELDS = fields_in("The shard")
TABLES = {
    "s": FIELDS.keys() | OF_SHARD | OF_GROUP,
    **{
        name: fields_in(heading).keys()
        for name, heading in {
            "job": "A job", "entry": "An entry", "claim": "A claim", "losses": "Losses"
        }.items()
    },
}  # fmt: skip
"""The fields that a table of this name may have, in every file."""
OPTIONAL = {name for name, text in FIELDS.items() if text.endswith("may be nil")}


def header_of(path: Path) -> list[str]:
    """The comment that a file begins with, without its dashes."""
    lines = []
    for line in path.read_text().splitlines():
        if not line.startswith("-- "):
            break
        lines.append(line.removeprefix("-- "))
    return lines


@cache
def code_of(text: str) -> str:
    return "\n".join(line.partition("--")[0] for line in text.splitlines())


def functions_in(code: str) -> set[str]:
    return set(re.findall(r"local function (\w+)", code))


def calls_in(code: str) -> set[str]:
    """Names called as plain functions; texts are left out."""
    return set(re.findall(r"(?<![\w.:])([a-z_]+)\(", re.sub(r"'[^']*'|\"[^\"]*\"", "''", code)))


def constants_in(code: str) -> set[str]:
    return set(re.findall(r"(?<![\w.:'])([A-Z][A-Z_]+)\b(?!')", re.sub(r"'[^']*'", "''", code)))


def names_in(code: str) -> set[str]:
    """Of its local functions, their parameters, and its local variables."""
    lists = re.findall(r"local (?:function (\w+))?([\w, ]*)", code) + re.findall(r"function ?(\w*)\(([\w, ]*)\)", code)
    return {name.strip() for function, names in lists for name in (function, *names.split(","))}


DEFINED_IN = {
    name.strip(): path.stem
    for path in PARTS
    for names in re.findall(r"^local (?:function )?([^=\n(]*)", path.read_text(), re.MULTILINE)
    for name in names.split(",")
}
"""The part that has the function or the constant."""
BUILT_IN = {
    "ipairs", "pairs", "tonumber", "tostring", "unpack", "next", "error", "pcall", "type", "function", "if", "shard",
    "KEYS", "ARGV", "FIXED",
}  # fmt: skip


def includes(path: Path) -> list[str]:
    return [*load_script(path.stem).includes]


def documented(path: Path) -> list[str]:
    """What stands in the brackets of the header's ARGV lines: `1`, `2`, `3..`."""
    return [found[1] for line in header_of(path) if (found := re.match(r"ARGV\[(\d+(?:\.\.)?)\]", line))]


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) > 15


@each_script
def test_the_header_names_the_script_and_its_transition(path: Path) -> None:
    assert re.match(rf"{path.stem}: \S.{{10,}}", header_of(path)[0])


@each_script
def test_the_header_tells_what_it_returns(path: Path) -> None:
    assert any(line.startswith("returns ") for line in header_of(path))


@each_script
def test_arguments_are_documented_in_order_and_only_the_last_repeats(path: Path) -> None:
    lines = documented(path)
    assert [int(line.removesuffix("..")) for line in lines] == list(range(1, len(lines) + 1))
    assert not any(line.endswith("..") for line in lines[:-1])
    assert lines


@each_script
def test_it_declares_keys_that_there_are(path: Path) -> None:
    declared = load_script(path.stem).declared
    assert declared.fixed or declared.of_call
    assert {*declared.fixed} <= OF_SHARD or {*declared.fixed} <= OF_NAMESPACE
    for of_groups in (declared.of_group, declared.of_each_group, declared.of_each_leaving):
        assert {*of_groups} <= OF_GROUP
    names = (*declared.named, *declared.if_given)
    assert len(names) == len({*names})
    lines = [line.partition(": ")[0] for line in header_of(path) if line.startswith("keys")]
    assert len(lines) == sum(map(bool, declared)), "a line that begins with `keys` declares none"


@each_script
def test_it_uses_the_keys_that_it_declares(path: Path) -> None:
    """Itself, or by a function that it includes and gives all of them."""
    code, declared = code_of(path.read_text()), load_script(path.stem).declared
    all_of_them = bool(re.search(r"for i = \d+, #KEYS", code))
    by_functions = set[str]().union(*(fields_needed(OFFERED[name]) for name in calls_in(code) & OFFERED.keys()))
    for name in (*declared.named, *declared.if_given):
        used = re.search(rf"(?<![\w.:'])(s\.)?{name}(?!\w)", code) or name in by_functions
        assert used or all_of_them, f"{name} is declared and not used"
    assert (re.search(r"KEYS\[(?!\])|#KEYS", code) is not None) == bool(
        declared.of_each_group or declared.of_each_leaving
    )
    assert not re.search(r"KEYS\[\d", code)


@each(PARTS, lambda path: path.stem)
def test_a_part_has_nothing_of_the_call_but_its_parameters(path: Path) -> None:
    """In the library it is no part of a call: it has neither KEYS nor ARGV, and what it kept, all calls would see."""
    code = code_of(path.read_text())
    assert not re.search(r"\b(KEYS|ARGV)\b", code)
    for names in re.findall(r"^local (?!function)([^=]+) =", code, re.MULTILINE):
        assert names.isupper(), f"{names} is no constant"


@each_script
def test_it_uses_the_arguments_that_it_documents(path: Path) -> None:
    code, arguments = code_of(path.read_text()), documented(path)
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
            known = re.fullmatch(
                r"(?:[a-z_]+ and [a-z_]+ or )?(KEYS|[a-z_]+)(\.[a-z_]+|\[\w+\])?|'GROUP'|'server'", call
            )
            assert known, f"{file.name}: {call}"


@each_script
def test_a_key_is_not_hidden_by_another_variable(path: Path) -> None:
    """A command would go to a key of another name, which a cluster refuses."""
    code = code_of(path.read_text())
    declared = re.findall(
        r"local ([\w, ]+?)(?: =|$)|for ([\w, ]+) (?:=|in)|function ?\w*\(([\w, ]*)\)", code, re.MULTILINE
    )
    others = {name.strip() for groups in declared for names in groups for name in names.split(",")}
    script = load_script(path.stem)
    assert {*script.declared.named, *script.declared.if_given} & others == set()


@each([*SCRIPTS, *PARTS], lambda path: path.stem)
def test_it_includes_what_has_the_functions_that_it_calls(path: Path) -> None:
    """And the constants that it uses; nothing else."""
    code = code_of(path.read_text())
    used = (calls_in(code) | constants_in(code)) - names_in(code) - BUILT_IN
    assert used - DEFINED_IN.keys() == set()
    file = path.relative_to(lua_directory()).as_posix()
    assert list(_included(file)) == sorted({DEFINED_IN[name] for name in used})


def test_every_part_is_included_somewhere() -> None:
    assert {part for path in SCRIPTS for part in includes(path)} == {part.stem for part in PARTS}


class Function(NamedTuple):
    """A function that a part offers: its signature and body, and the comment directly above it."""

    name: str
    parameters: str
    body: str
    header: str

    @property
    def fields(self) -> set[str]:
        """Fields of `s` that it uses itself."""
        return set(re.findall(r"\bs\.(\w+)", self.body))

    @property
    def sets(self) -> set[str]:
        """Fields of `s` that it sets, or a function that it hands `s` to."""
        called = {name for name in calls_in(self.body) & OFFERED.keys() if re.search(rf"\b{name}\(s\b", self.body)}
        return set_in(self.body).union(*(OFFERED[name].sets for name in called))


def set_in(code: str) -> set[str]:
    """Fields of `s` that get a value."""
    left_sides = re.findall(r"^ *((?:[\w.]+, )*[\w.]+) = ", code, re.MULTILINE)
    return {field for left_side in left_sides for field in re.findall(r"\bs\.(\w+)", left_side)}


_OFFERED = re.compile(r"((?:^-- .*\n)*)^local function (\w+)\(([^)]*)\)(.* end\n|.*\n(?:.*\n)*?end\n)", re.MULTILINE)


@cache
def offered(path: Path) -> list[Function]:
    """The functions of a part, but for those inside of others."""
    found = []
    for comment, name, parameters, body in _OFFERED.findall(path.read_text()):
        header = "\n".join(line.removeprefix("-- ") for line in comment.splitlines())
        found.append(Function(name, parameters, code_of(body), header))
    return found


OFFERED = {function.name: function for path in PARTS for function in offered(path)}
each_function = each(OFFERED.values(), lambda function: function.name)


def fields_needed(function: Function) -> set[str]:
    """Fields of `s` that it uses, and that the functions use to which it hands `s`."""
    called = {name for name in calls_in(function.body) & OFFERED.keys() if re.search(rf"\b{name}\(s\b", function.body)}
    return function.fields.union(*(fields_needed(OFFERED[name]) for name in called))


@each(PARTS, lambda path: path.stem)
def test_every_function_of_a_part_is_offered_under_a_name_of_its_own(path: Path) -> None:
    names = re.findall(r"^local function (\w+)", path.read_text(), re.MULTILINE)
    assert names == [function.name for function in offered(path)] != []
    assert all(OFFERED[name] in offered(path) for name in names)


@each_function
def test_the_header_of_a_function_names_its_parameters(function: Function) -> None:
    signature = f"{function.name}({function.parameters}): "
    line = next((line for line in function.header.splitlines() if line.startswith(f"{function.name}(")), "")
    assert line.startswith(signature)
    assert len(line) > len(signature) + 10


@each((*SCRIPTS, *PARTS), lambda path: path.stem)
def test_a_field_of_a_table_is_documented(path: Path) -> None:
    code = code_of(path.read_text())
    for table, fields in TABLES.items():
        used = set(re.findall(rf"(?<![\w.]){table}\.(\w+)", code))
        assert used <= fields, table


def test_a_documented_field_is_used() -> None:
    code = "\n".join(code_of(path.read_text()) for path in (*SCRIPTS, *PARTS))
    for table, fields in TABLES.items():
        used = set(re.findall(rf"(?<![\w.]){table}\.(\w+)", code))
        assert fields - OF_SHARD - OF_GROUP <= used, table


@each((*SCRIPTS, *PARTS), lambda path: path.stem)
def test_a_function_has_at_most_four_parameters(path: Path) -> None:
    for name, parameters in re.findall(r"function (\w*)\(([^)]*)\)", code_of(path.read_text())):
        assert parameters.count(",") < 4, name


@each_function
def test_a_function_that_uses_the_shard_is_given_it(function: Function) -> None:
    assert bool(fields_needed(function)) == ("s" in function.parameters.split(", "))


@each_function
def test_a_function_uses_its_parameters(function: Function) -> None:
    for name in filter(None, function.parameters.split(", ")):
        assert re.search(rf"\b{name}\b", function.body), name


@each_function
def test_the_header_of_a_function_tells_what_it_returns(function: Function) -> None:
    own = re.sub(r"^  local function (?:.*\n)*?  end\n", "", function.body, flags=re.MULTILINE)
    assert bool(re.search(r"\breturn (?!end\b)\S", own)) == bool(
        re.search(r"(?:^|\): )returns ", function.header, re.MULTILINE)
    )


@each_function
def test_every_function_is_used_by_a_script(function: Function) -> None:
    """Or by another function. In the library, all have to fit into what Lua allows."""
    assert function.name in used_names()


@cache
def used_names() -> set[str]:
    """In the library, but for where a function is declared."""
    return set(re.findall(r"(?<![\w.'])(?<!function )[A-Za-z_]\w*", code_of(library().source)))


@each_script
def test_the_shard_has_the_fields_that_its_functions_use(path: Path) -> None:
    """But for those that say `may be nil`."""
    code = code_of(path.read_text())
    declared = load_script(path.stem).declared
    given = {*declared.named, *declared.if_given} | set_in(code)
    given = given.union(*(OFFERED[name].sets for name in calls_in(code) & OFFERED.keys()))
    for name in calls_in(code) & OFFERED.keys():
        if re.search(rf"\b{name}\((\w+, )?s\b", code):
            assert fields_needed(OFFERED[name]) - given <= OPTIONAL, name


@each_script
def test_there_is_a_method_that_runs_it(path: Path) -> None:
    method = inspect.getsource(getattr(Scripts, path.stem.removesuffix("_ranked")))  # claim and move run either one
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
    assert len(path.read_text().splitlines()) <= 130


def test_the_wheel_and_the_checkout_load_the_same_way() -> None:
    assert source_of("finish").endswith((lua_directory() / "finish.lua").read_text())


LOCALS = 200
"""How many local variables Lua 5.1 allows in a function. What several scripts include is in one function."""


def test_there_is_room_in_the_library() -> None:
    parts = [lua_directory() / "lib" / f"{name}.lua" for name in shared_parts()]
    texts = [path.read_text() for path in parts]
    names = [name for text in texts for name in re.findall(r"^local (?:function )?([\w, ]+)", text, re.MULTILINE)]
    assert sum(len(name.split(",")) for name in names) <= LOCALS - 5


@each(PARTS, lambda path: path.stem)
def test_a_part_calls_nothing_while_the_library_is_loaded(path: Path) -> None:
    """Redis 7.0 has no ``string`` or ``math`` then, and refuses the library."""
    for line in re.findall(r"^local (?!function ).*", path.read_text(), re.MULTILINE):
        assert re.fullmatch(r"local [\w, ]+ = ('[^']*'|[\d., -]+|\{.*\})( *--.*)?", line), line
