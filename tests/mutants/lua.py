"""Mutants of the Lua scripts, by the syntax tree of tree-sitter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import lupa.lua51
import tree_sitter_lua
from tree_sitter import Language, Node, Parser

from streamdq.store.assembly import load_script, lua_directory, script_names

from .mutant import Edit, Mutant, mutants_of

OTHER = {
    "==": ("~=",), "~=": ("==",), "<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"),
    "+": ("-",), "-": ("+",), "*": ("/",), "/": ("*",), "%": ("*",),
}  # fmt: skip
DROPPED = {"function_call", "assignment_statement", "return_statement", "break_statement", "for_statement"}
_COMMENT = re.compile(r"--.*")
_WORD = re.compile(r"(?<![\w.])\w+")  # not the field of a table
_FUNCTION = re.compile(r"^local function (\w+)\((?:.* end\n|.*\n(?:.*\n)*?end\n)", re.MULTILINE)
_OPTION = re.compile(r"'[A-Z]+'|'[-+*~]'")  # of a Redis command: without it, the command is refused
_lua = lupa.lua51.LuaRuntime()


def files() -> list[str]:
    """Scripts first, then what they include."""
    directory = lua_directory()
    found = (path.relative_to(directory.parent).as_posix() for path in directory.rglob("*.lua"))
    return sorted(found, key=lambda file: (file.count("/"), file))


@cache
def text_of(file: str) -> str:
    return (lua_directory().parent / file).read_text()


def lua_mutants(file: str, source: str) -> list[Mutant]:
    """Those that are Lua: a syntax error proves nothing about the tests."""
    return [mutant for mutant in mutants_of(file, source, edits_of(source)) if _compiles(mutant.source)]


def edits_of(source: str) -> Iterator[Edit]:
    tree = Parser(Language(tree_sitter_lua.language())).parse(source.encode())
    pending = [tree.root_node]
    while pending:
        node = pending.pop()
        pending += node.children
        for start, end, text in _changes(node):
            yield Edit(start, end, text)


def scripts_with(mutant: Mutant) -> set[str]:
    """The scripts that do something else with the mutant: of what they include, those that use the function."""
    path = Path(mutant.file)
    if path.parent.name != "lib":
        return {path.stem}
    before, after = _pieces(text_of(mutant.file)), _pieces(mutant.source)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    including = [name for name in script_names() if path.stem in load_script(name).includes]
    return {name for name in including if "" in changed or changed & _used_by(name)}


def _pieces(source: str) -> dict[str, str]:
    """Its functions, by their names; and what is outside of them, by ''."""
    found = {function[1]: function[0] for function in _FUNCTION.finditer(source)}
    return found | {"": _FUNCTION.sub("", source)}


@cache
def _used_by(script: str) -> set[str]:
    """The functions that it uses, directly or by another one."""
    functions = {name: text for part in load_script(script).includes for name, text in _pieces_of(part).items()}
    used, pending = set[str](), [load_script(script).body]
    while pending:
        words = set(_WORD.findall(_COMMENT.sub("", pending.pop())))
        new = (words & functions.keys()) - used
        used |= new
        pending += [functions[name] for name in new]
    return used


@cache
def _pieces_of(part: str) -> dict[str, str]:
    return _pieces(text_of(f"lua/lib/{part}.lua"))


def _one_more(number: str) -> str:
    try:
        return str(int(number, 0) + 1)
    except ValueError:  # such as 1e15
        return f"({number} + 1)"


def _changes(node: Node) -> Iterator[tuple[int, int, str]]:
    """What is done to this node, apart from what is done to its parts."""
    start, end = node.start_byte, node.end_byte
    match node.type:
        case "binary_expression":
            yield from _binary(node)
        case "unary_expression" if node.children[0].type in ("not", "-"):
            yield start, node.children[1].start_byte, ""
        case "number":
            yield start, end, _one_more(_text(node))
        case "string" if not _OPTION.fullmatch(_text(node)) and not _is_command(node):
            yield start, end, "''" if len(_text(node)) > 2 else "'x'"
        case "true" | "false":
            yield start, end, "false" if node.type == "true" else "true"
        case "if_statement" | "elseif_statement" | "while_statement" | "repeat_statement":
            condition = _field(node, "condition")
            if not _is_comparison(condition):  # of which there are others
                yield condition.start_byte, condition.end_byte, f"not ({_text(condition)})"
    if node.type in DROPPED and _is_statement(node):
        yield start, end, ""


def _binary(node: Node) -> Iterator[tuple[int, int, str]]:
    left, operator, right = node.children
    if operator.type in ("and", "or"):
        yield node.start_byte, node.end_byte, _text(left)
        yield node.start_byte, node.end_byte, _text(right)
    for other in OTHER.get(operator.type, ()):
        yield operator.start_byte, operator.end_byte, other


def _is_comparison(node: Node) -> bool:
    return node.type == "binary_expression" and node.children[1].type in OTHER


def _is_statement(node: Node) -> bool:
    """A script that returns nothing would fail every test."""
    parent = node.parent
    return parent is not None and (
        parent.type == "block" or (parent.type == "chunk" and node.type != "return_statement")
    )


def _is_command(node: Node) -> bool:
    """Whether it is the name of the Redis command in redis.call(...)."""
    arguments = node.parent
    if arguments is None or arguments.type != "arguments" or arguments.named_children[0] != node:
        return False
    return _text(_field(arguments.parent, "name")) in ("redis.call", "redis.pcall")


def _field(node: Node | None, name: str) -> Node:
    found = node and node.child_by_field_name(name)
    assert found is not None, f"no {name} in {node}"
    return found


def _text(node: Node) -> str:
    assert node.text is not None
    return node.text.decode()


def _compiles(source: str) -> bool:
    try:
        _lua.compile(source)
    except lupa.lua51.LuaSyntaxError:
        return False
    return True
